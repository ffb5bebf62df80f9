// The sending half of LaneConnection: COMMIT, RESUME, VIEW_COMMIT, contributions.
#include "gpu_client/engine/data_path/lane_connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/assert.h"
#include "core/crc32c.h"
#include "gpu_client/engine/data_path/chunk_scheduler.h"
#include "wire/extension.h"
#include "wire/messages.h"
#include "wire/payload/sparse.h"

namespace sluice::engine {
namespace {

// The cookie of a contribution is its sequence.
constexpr transport::Cookie kControlCookie = ~transport::Cookie{0};

}  // namespace

LaneConnection::LaneConnection(ChunkScheduler& scheduler, const Options& options)
    : scheduler_(scheduler),
      options_(options),
      scratch_(scheduler.options().slot_bytes + kControlBytes),
      inflight_(options_.slots),
      queue_(OpTable::kCapacity) {
  wire::Resume longest;
  control_body_.reserve(wire::encode_body(longest).size());
  if (!options_.sparse) return;
  // Pages are touched only when a payload is sparse. Without the memory payloads travel as they are.
  if (auto arena = Arena::map(size_t{options_.slots} * scheduler.options().slot_bytes))
    sparse_payloads_ = std::move(*arena);
}

void LaneConnection::bind(transport::Endpoint& ep) noexcept {
  SLUICE_ASSERT(endpoint_ == nullptr && !retired_);
  SLUICE_DASSERT(controls_in_flight_ == 0);
  endpoint_ = &ep;
  prepared_ = {};
  state_ = State::kDown;
  view_confirmed_ = false;
  for (InflightChunk& f : inflight_) f.advertised = nullptr;
  next_advertised_ = next_result_;
  loss_detector_.start(ep);
  if (options_.path) options_.path->start();
  scheduler_.lane_opened();
}

Status LaneConnection::begin() noexcept {
  state_ = State::kOpen;
  view_confirmed_ = true;
  return put_control(wire::FrameType::kCommit);
}

Status LaneConnection::resume() noexcept {
  state_ = State::kResuming;
  return put_control(wire::FrameType::kResume);
}

// Called once per endpoint and once per view, so it may allocate.
Status LaneConnection::put_control(wire::FrameType type) noexcept {
  SLUICE_DASSERT(controls_in_flight_ == 0);
  const uint64_t incarnation = scheduler_.options().incarnation;
  const ChunkScheduler::View& view = scheduler_.view();
  if (type == wire::FrameType::kCommit) {
    control_body_ = wire::encode_body(wire::Commit{.incarnation = incarnation});
  } else if (type == wire::FrameType::kResume) {
    control_body_ = wire::encode_body(wire::Resume{.incarnation = incarnation,
                                                   .version = view.version,
                                                   .view_hash = view.hash,
                                                   .base_chunk = view.base,
                                                   .results_held = next_result_});
  } else {
    control_body_ = wire::encode_body(
        wire::ViewCommit{.version = view.version, .view_hash = view.hash, .base_chunk = view.base});
  }
  const auto header = wire::control_header(type, control_body_, options_.handle);
  const Status status = endpoint_->put(header, {}, control_body_, kControlCookie);
  if (status.ok()) {
    ++controls_in_flight_;
    control_bytes_ += control_body_.size();
  }
  return status;
}

bool LaneConnection::is_quiescent() const noexcept {
  const bool advertised = endpoint_ != nullptr && endpoint_->has_advertised_buffers();
  return controls_in_flight_ == 0 && next_sent_ == next_put_ && !receiving_ && !advertised;
}

void LaneConnection::restart(Share share, uint64_t base) noexcept {
  SLUICE_DASSERT(is_quiescent());
  share_ = std::move(share);
  if (!share_.turns.empty()) {
    const auto turn = std::ranges::lower_bound(share_.turns, base % share_.period) - share_.turns.begin();
    period_base_ = base / share_.period * share_.period;
    turn_ = static_cast<size_t>(turn);
    if (turn_ == share_.turns.size()) turn_ = 0, period_base_ += share_.period;
  }
  next_sequence_ = next_put_ = next_result_ = next_sent_ = next_advertised_ = finished_ = 0;
  queue_head_ = queue_tail_ = 0;
  prepared_ = {};
  view_confirmed_ = false;
  if (state_ == State::kOpen) {
    static_cast<void>(
        put_control(wire::FrameType::kViewCommit));  // fails only on an endpoint that is closing
  } else if (endpoint_ != nullptr) {
    state_ = State::kDown;
    endpoint_->close(Errc::kReset);
  }
}

void LaneConnection::retire() noexcept {
  SLUICE_DASSERT(endpoint_ == nullptr && share_.turns.empty());
  retired_ = true;
  std::vector<std::byte>().swap(scratch_);
  std::vector<InflightChunk>().swap(inflight_);
  std::vector<uint16_t>().swap(queue_);
  sparse_payloads_ = {};
}

void LaneConnection::add_operation(uint32_t op) noexcept {
  // Each open operation occurs at most once and at most kCapacity are open, so the ring cannot overflow.
  SLUICE_DASSERT(queue_tail_ - queue_head_ < queue_.size());
  queue_[queue_tail_++ % queue_.size()] = static_cast<uint16_t>(op);
}

void LaneConnection::advance() noexcept {
  if (++turn_ == share_.turns.size()) turn_ = 0, period_base_ += share_.period;
  const uint64_t q = next_chunk();
  while (queue_head_ != queue_tail_) {
    const Operation& o = scheduler_.table()[queue_[queue_head_ % queue_.size()]];
    if (q < o.first_chunk + o.chunk_count) break;
    ++queue_head_;
  }
}

// The record of the chunk to put next. Null when there is none, or when its result would overwrite one that
// another rank may lack.
const ChunkRecord* LaneConnection::next_record() noexcept {
  const uint64_t q = next_chunk();
  ChunkRing& ring = scheduler_.ring();
  if (!ring.can_put(q)) return nullptr;
  if (q >= scheduler_.resend_until()) {
    if (queue_head_ == queue_tail_) return nullptr;
    const uint32_t op = queue_[queue_head_ % queue_.size()];
    return &ring.add(q, op, scheduler_.table());
  }
  // A chunk right after a view change: an earlier view put it, or put later ones and not this one.
  if (ring.has_record(q)) return &ring.record(q);
  const uint32_t op = scheduler_.operation_of(q);
  SLUICE_ASSERT(op != kNoOperation);
  return &ring.add(q, op, scheduler_.table());
}

bool LaneConnection::is_limited() const noexcept {
  if (outstanding() >= options_.slots) return true;
  if (!scheduler_.options().limit_inflight) return false;
  // The limit is for bytes: more chunks are in flight if their zero blocks do not travel.
  const uint64_t limit = uint64_t{scheduler_.inflight_limit()} * chunks_for_dense() / kDense;
  if (scheduler_.has_equal_shares()) return outstanding() >= limit;
  // A limit for each connection would let those with small shares run ahead, and leave the others to finish
  // the operation alone. So all connections together keep to a window of consecutive chunks.
  return next_chunk() >= scheduler_.ring().first_unfinished() + limit * scheduler_.connections_in_use();
}

// When the slots are used up by chunks without their zero blocks, the limit is not reached: a trial of
// another limit would show nothing, or a gain that dense chunks pay with lost packets.
void LaneConnection::note_limited() noexcept {
  if (outstanding() < options_.slots || chunks_for_dense() == kDense) scheduler_.note_limited();
}

size_t LaneConnection::put_next() noexcept {
  if (state_ != State::kOpen || endpoint_ == nullptr) return 0;
  if (next_put_ < next_sequence_) {
    const ChunkRecord& r = scheduler_.ring().record(inflight(next_put_).chunk);
    if (r.chunk != inflight(next_put_).chunk) {
      endpoint_->close(
          scheduler_.report_failure(options_.index, Errc::kBadSequence,
                                    "reducer lacks contribution %llu, whose result other ranks have",
                                    static_cast<unsigned long long>(next_put_)));
      state_ = State::kDown;
      return 0;
    }
    if (!put_chunk(next_put_, r).ok()) return 0;
    ++next_put_;
    return r.length;  // also if the payload was empty: 0 says that nothing was put
  }
  if (share_.turns.empty()) return 0;
  if (queue_head_ == queue_tail_ && next_chunk() >= scheduler_.resend_until()) return 0;
  if (is_limited()) {
    note_limited();
    return 0;
  }
  const ChunkRecord* const r = next_record();
  if (r == nullptr || !put_chunk(next_sequence_, *r).ok()) return 0;
  inflight(next_sequence_) = {.chunk = r->chunk,
                              .op_id = r->op_id,
                              .fingerprint = r->fingerprint,
                              .length = r->receives ? r->length : 0,
                              .dtype = r->dtype,
                              .op = r->op,
                              .kind = r->kind,
                              .accepts_sparse = accepts_sparse(*r)};
  next_put_ = ++next_sequence_;
  scheduler_.chunk_put(r->chunk);
  advance();
  return r->length;
}

// The CPU must be able to expand the result. A rank that receives no payload accepts any.
bool LaneConnection::accepts_sparse(const ChunkRecord& r) const noexcept {
  return options_.sparse && (r.done || !r.receives || !scheduler_.table()[r.operation].request.on_device);
}

// Removes zero blocks, if that pays, and computes the checksum: right before the bytes are sent, while they
// are in the cache. A retry after kWouldBlock reuses both.
void LaneConnection::prepare_payload(uint64_t sequence, const ChunkRecord& r,
                                     std::span<const std::byte> payload) noexcept {
  prepared_.chunk = r.chunk;
  prepared_.payload = payload;
  prepared_.sparse = false;
  if (endpoint_->is_in_memory()) return;
  if (sparse_payloads_.size() > 0 && wire::sparse_length(payload, r.dtype) > 0) {
    std::byte* const buffer =
        sparse_payloads_.data() + sequence % options_.slots * scheduler_.options().slot_bytes;
    prepared_.payload = {buffer, wire::encode_sparse(payload, r.dtype, buffer)};
    prepared_.sparse = true;
  }
  if (scheduler_.options().payload_crc) prepared_.crc = crc32c(prepared_.payload);
}

Status LaneConnection::put_chunk(uint64_t sequence, const ChunkRecord& r) noexcept {
  const bool has_payload = r.contributes || (r.done && !r.sends_again);
  std::span payload(r.done ? r.kept : r.send, has_payload ? r.length : 0);
  const bool cpu_readable = r.done || !scheduler_.table()[r.operation].request.on_device;
  const ChunkScheduler::View& view = scheduler_.view();
  wire::FrameHeader h;
  h.type = wire::FrameType::kContribution;
  const bool has_owner = wire::has_owner(r.kind);
  h.ext_len8 = (has_owner ? 2 : 1) * wire::kSmallExtensionBytes / 8;
  h.view_version = view.version;
  h.view_hash = static_cast<uint32_t>(view.hash);
  h.session = options_.handle;
  h.slot = static_cast<uint16_t>(sequence % options_.slots);
  h.kind = r.kind;
  h.sequence = sequence;
  h.chunk = r.chunk;
  h.op_id = r.op_id;
  h.wire_dtype = h.result_dtype = r.dtype;
  h.acc_dtype = wire::accumulator_of(r.dtype);
  h.op = r.op;
  h.fingerprint = r.fingerprint;
  if (has_payload && cpu_readable) {
    if (prepared_.chunk != r.chunk) prepare_payload(sequence, r, payload);
    payload = prepared_.payload;
    if (scheduler_.options().payload_crc && !endpoint_->is_in_memory()) {
      h.flags = wire::kFlagPayloadCrc;
      h.payload_crc = prepared_.crc;
    }
    if (prepared_.sparse) {
      h.encoding = wire::Encoding::kSparse;
      h.ext_len8 += wire::kSmallExtensionBytes / 8;
    }
  }
  h.length = static_cast<uint32_t>(payload.size());
  if (accepts_sparse(r)) h.flags |= wire::kFlagAcceptsSparse;
  if (r.done && !r.sends_again) h.flags |= wire::kFlagKept;
  if (sequence < next_sequence_ || r.chunk < scheduler_.resend_until()) h.flags |= wire::kFlagResent;
  if (scheduler_.makes_trials() && loss_detector_.has_new_losses(*endpoint_)) scheduler_.packet_loss_seen();
  if (flag_packet_loss_) h.flags |= wire::kFlagLosses;
  std::array<std::byte, 4 * wire::kSmallExtensionBytes> extensions;
  const std::span area(extensions);
  constexpr size_t kOne = wire::kSmallExtensionBytes;
  wire::encode_extension(wire::OpInfo{.count = r.count}, area.first<kOne>());
  if (has_owner) {
    wire::encode_extension(wire::ChunkOwner{.owner = r.owner, .chunk_bytes = r.length},
                           area.subspan<kOne, kOne>());
  }
  if (r.caller) {
    wire::encode_extension(*r.caller, area.subspan(has_owner ? 2 * kOne : kOne).first<kOne>());
    h.ext_len8 += kOne / 8;
  }
  if (h.encoding == wire::Encoding::kSparse) {
    wire::encode_extension(wire::Expanded{.bytes = r.length},
                           area.subspan(h.extension_bytes() - kOne).first<kOne>());
  }
  const Status status = endpoint_->put(h, area.first(h.extension_bytes()), payload, sequence);
  if (!status.ok()) return status;
  if ((h.flags & wire::kFlagResent) != 0) bytes_resent_ += h.length;
  if (h.length != 0) sent_for_dense_ = kDense * r.length / h.length;
  prepared_.chunk = ~uint64_t{0};
  flag_packet_loss_ = false;
  return status;
}

void LaneConnection::on_sent(transport::Endpoint& /*ep*/, transport::Cookie cookie,
                             Status /*status*/) noexcept {
  if (cookie == kControlCookie) {
    --controls_in_flight_;
    return;
  }
  SLUICE_DASSERT(cookie == next_sent_);
  ++next_sent_;
  finish_chunks();
}

void LaneConnection::close(Errc reason) noexcept {
  if (endpoint_ != nullptr) endpoint_->close(reason);
}

void LaneConnection::on_closed(transport::Endpoint& ep, Errc reason) noexcept {
  last_connection_ = ep.counters();
  closed_counters_ += last_connection_;
  if (options_.path) options_.path->start();
  endpoint_ = nullptr;
  state_ = State::kDown;
  receiving_ = false;
  scheduler_.lane_closed(options_.index, reason);
}

transport::EndpointCounters LaneConnection::counters() const noexcept {
  transport::EndpointCounters sum = closed_counters_;
  if (endpoint_ != nullptr) sum += endpoint_->counters();
  sum.payload_bytes_out -= std::min(control_bytes_, sum.payload_bytes_out);
  return sum;
}

}  // namespace sluice::engine
