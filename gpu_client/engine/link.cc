// What a link sends: COMMIT, RESUME, VIEW_COMMIT, contributions.
#include "gpu_client/engine/link.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/assert.h"
#include "core/crc32c.h"
#include "gpu_client/engine/exchange.h"
#include "wire/extension.h"
#include "wire/messages.h"

namespace sluice::engine {
namespace {

// Contributions use their sequence.
constexpr transport::Cookie kControlCookie = ~transport::Cookie{0};

}  // namespace

Link::Link(Exchange& exchange, const Plan& plan)
    : exchange_(exchange),
      plan_(plan),
      scratch_(exchange.options().slot_bytes + kControlBytes),
      flights_(plan_.slots),
      queue_(OpTable::kCapacity) {
  wire::Resume longest;
  control_body_.reserve(wire::encode_body(longest).size());
}

void Link::bind(transport::Endpoint& ep) noexcept {
  SLUICE_ASSERT(endpoint_ == nullptr && !retired_);
  SLUICE_DASSERT(controls_out_ == 0);
  endpoint_ = &ep;
  state_ = State::kDown;
  in_view_ = false;
  for (Flight& f : flights_) f.lent = nullptr;
  next_lent_ = next_result_;
  loss_watch_.begin(ep);
  exchange_.link_opened();
}

Status Link::begin() noexcept {
  state_ = State::kOpen;
  in_view_ = true;
  return put_control(wire::FrameType::kCommit);
}

Status Link::resume() noexcept {
  state_ = State::kResuming;
  return put_control(wire::FrameType::kResume);
}

// Cold: once for each connection, and for each view.
Status Link::put_control(wire::FrameType type) noexcept {
  SLUICE_DASSERT(controls_out_ == 0);
  const uint64_t incarnation = exchange_.options().incarnation;
  const Exchange::View& view = exchange_.view();
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
  const auto header = wire::control_header(type, control_body_, plan_.handle);
  const Status status = endpoint_->put(header, {}, control_body_, kControlCookie);
  if (status.ok()) {
    ++controls_out_;
    control_bytes_ += control_body_.size();
  }
  return status;
}

bool Link::quiet() const noexcept {
  const bool lent = endpoint_ != nullptr && endpoint_->lent();
  return controls_out_ == 0 && next_sent_ == next_put_ && !receiving_ && !lent;
}

void Link::restart(Share share, uint64_t base) noexcept {
  SLUICE_DASSERT(quiet());
  share_ = std::move(share);
  if (!share_.turns.empty()) {
    const auto turn = std::ranges::lower_bound(share_.turns, base % share_.period) - share_.turns.begin();
    period_base_ = base / share_.period * share_.period;
    turn_ = static_cast<size_t>(turn);
    if (turn_ == share_.turns.size()) turn_ = 0, period_base_ += share_.period;
  }
  next_sequence_ = next_put_ = next_result_ = next_sent_ = next_lent_ = finished_ = 0;
  queue_head_ = queue_tail_ = 0;
  crc_chunk_ = ~uint64_t{0};
  in_view_ = false;
  if (state_ == State::kOpen) {
    static_cast<void>(put_control(wire::FrameType::kViewCommit));  // fails only on one that is closing
  } else if (endpoint_ != nullptr) {
    state_ = State::kDown;
    endpoint_->close(Errc::kReset);
  }
}

void Link::retire() noexcept {
  SLUICE_DASSERT(endpoint_ == nullptr && share_.turns.empty());
  retired_ = true;
  std::vector<std::byte>().swap(scratch_);
  std::vector<Flight>().swap(flights_);
  std::vector<uint16_t>().swap(queue_);
}

void Link::add_operation(uint32_t op) noexcept {
  // An operation stands here once and at most kCapacity are open, so the ring can't run over.
  SLUICE_DASSERT(queue_tail_ - queue_head_ < queue_.size());
  queue_[queue_tail_++ % queue_.size()] = static_cast<uint16_t>(op);
}

void Link::advance() noexcept {
  if (++turn_ == share_.turns.size()) turn_ = 0, period_base_ += share_.period;
  const uint64_t q = next_chunk();
  while (queue_head_ != queue_tail_) {
    const Operation& o = exchange_.table()[queue_[queue_head_ % queue_.size()]];
    if (q < o.first_chunk + o.chunk_count) break;
    ++queue_head_;
  }
}

// Of the chunk to put next, null when there is none yet, or when it would displace what another rank may
// miss.
const ChunkRecord* Link::record_of_next() noexcept {
  const uint64_t q = next_chunk();
  ChunkRing& ring = exchange_.ring();
  if (!ring.may_put(q)) return nullptr;
  if (q >= exchange_.resend_until()) {
    if (queue_head_ == queue_tail_) return nullptr;
    const uint32_t op = queue_[queue_head_ % queue_.size()];
    return &ring.enter(q, op, exchange_.table()[op]);
  }
  // The first chunks after a view change: put before by some link, or overtaken by such.
  if (ring.known(q)) return &ring.record(q);
  const uint32_t op = exchange_.operation_of(q);
  SLUICE_ASSERT(op != kNoOperation);
  return &ring.enter(q, op, exchange_.table()[op]);
}

size_t Link::put_next() noexcept {
  if (state_ != State::kOpen || endpoint_ == nullptr) return 0;
  if (next_put_ < next_sequence_) {
    const ChunkRecord& r = exchange_.ring().record(flight(next_put_).chunk);
    if (r.chunk != flight(next_put_).chunk) {
      endpoint_->close(exchange_.breach(plan_.index, Errc::kBadSequence,
                                        "the reducer lacks contribution %llu, whose result others have",
                                        static_cast<unsigned long long>(next_put_)));
      state_ = State::kDown;
      return 0;
    }
    if (!put_chunk(next_put_, r).ok()) return 0;
    ++next_put_;
    return r.length;
  }
  if (share_.turns.empty()) return 0;
  if (queue_head_ == queue_tail_ && next_chunk() >= exchange_.resend_until()) return 0;
  const uint32_t allowed =
      exchange_.options().paced ? std::min(plan_.slots, exchange_.pace().limit()) : plan_.slots;
  if (outstanding() >= allowed) {
    exchange_.pace().held_back();
    return 0;
  }
  const ChunkRecord* const r = record_of_next();
  if (r == nullptr || !put_chunk(next_sequence_, *r).ok()) return 0;
  flight(next_sequence_) = {.chunk = r->chunk,
                            .op_id = r->op_id,
                            .fingerprint = r->fingerprint,
                            .length = r->length,
                            .dtype = r->dtype,
                            .op = r->op};
  next_put_ = ++next_sequence_;
  exchange_.chunk_put(r->chunk);
  advance();
  return r->length;
}

Status Link::put_chunk(uint64_t sequence, const ChunkRecord& r) noexcept {
  const OpRequest* const request = r.done ? nullptr : &exchange_.table()[r.operation].request;
  const std::span payload(request == nullptr ? r.result : request->send + r.offset, r.length);
  const bool may_look = request == nullptr || !request->on_device;
  const Exchange::View& view = exchange_.view();
  wire::FrameHeader h;
  h.type = wire::FrameType::kContribution;
  h.ext_len8 = wire::kSmallExtensionBytes / 8;
  h.view_version = view.version;
  h.view_hash = static_cast<uint32_t>(view.hash);
  h.session = plan_.handle;
  h.slot = static_cast<uint16_t>(sequence % plan_.slots);
  h.kind = wire::Kind::kAllreduce;
  h.sequence = sequence;
  h.chunk = r.chunk;
  h.op_id = r.op_id;
  h.wire_dtype = h.result_dtype = r.dtype;
  h.acc_dtype = wire::accumulator_of(r.dtype);
  h.op = r.op;
  h.length = r.length;
  h.fingerprint = r.fingerprint;
  if (exchange_.options().payload_crc && may_look) {
    // Right before the bytes are sent, while they are in cache; once, though put() may ask to come again.
    if (crc_chunk_ != r.chunk) crc_ = crc32c(payload), crc_chunk_ = r.chunk;
    h.flags = wire::kFlagPayloadCrc;
    h.payload_crc = crc_;
  }
  if (r.done) h.flags |= wire::kFlagKept;
  if (sequence < next_sequence_ || r.chunk < exchange_.resend_until()) h.flags |= wire::kFlagResent;
  if (exchange_.options().paced && loss_watch_.lost(*endpoint_)) exchange_.losses_seen();
  if (tell_losses_) h.flags |= wire::kFlagLosses;
  std::array<std::byte, wire::kSmallExtensionBytes> extension;
  wire::encode_extension(wire::OpInfo{.count = r.count}, extension);
  const Status status = endpoint_->put(h, extension, payload, sequence);
  if (!status.ok()) return status;
  if ((h.flags & wire::kFlagResent) != 0) bytes_resent_ += h.length;
  crc_chunk_ = ~uint64_t{0};
  tell_losses_ = false;
  return status;
}

void Link::on_sent(transport::Endpoint& /*ep*/, transport::Cookie cookie, Status /*status*/) noexcept {
  if (cookie == kControlCookie) {
    --controls_out_;
    return;
  }
  SLUICE_DASSERT(cookie == next_sent_);
  ++next_sent_;
  finish_flights();
}

void Link::close(Errc reason) noexcept {
  if (endpoint_ != nullptr) endpoint_->close(reason);
}

void Link::on_closed(transport::Endpoint& ep, Errc reason) noexcept {
  last_connection_ = ep.counters();
  past_ += last_connection_;
  endpoint_ = nullptr;
  state_ = State::kDown;
  receiving_ = false;
  exchange_.link_closed(plan_.index, reason);
}

transport::EndpointCounters Link::counters() const noexcept {
  transport::EndpointCounters sum = past_;
  if (endpoint_ != nullptr) sum += endpoint_->counters();
  sum.payload_bytes_out -= std::min(control_bytes_, sum.payload_bytes_out);
  return sum;
}

}  // namespace sluice::engine
