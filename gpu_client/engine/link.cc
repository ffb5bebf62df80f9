#include "gpu_client/engine/link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/assert.h"
#include "core/crc32c.h"
#include "gpu_client/engine/exchange.h"
#include "wire/extension.h"
#include "wire/messages.h"

namespace sluice::engine {
namespace {

// Contributions use their sequence.
constexpr transport::Cookie kCommitCookie = ~transport::Cookie{0};

}  // namespace

Link::Link(Exchange& exchange, Plan plan)
    : exchange_(exchange), plan_(std::move(plan)), flights_(plan_.slots), queue_(OpTable::kCapacity) {
  wire::Commit commit;
  commit.incarnation = exchange.options().incarnation;
  commit_ = wire::encode_body(commit);
}

Status Link::begin() noexcept {
  loss_watch_.begin(*endpoint_);
  const auto header = wire::control_header(wire::FrameType::kCommit, commit_, plan_.handle);
  return endpoint_->put(header, {}, commit_, kCommitCookie);
}

void Link::add_operation(uint32_t op) noexcept {
  // An operation stands here once and at most kCapacity are open, so the ring can't run over.
  SLUICE_DASSERT(queue_tail_ - queue_head_ < queue_.size());
  queue_[queue_tail_++ % queue_.size()] = static_cast<uint16_t>(op);
}

std::byte* Link::slot(uint64_t sequence) const noexcept {
  return plan_.ring + sequence % plan_.slots * exchange_.options().slot_bytes;
}

// Chunks are numbered through all operations, so the chunks of this link are its sequences: the first one
// that is `chunk` or behind it.
uint64_t Link::sequence_from(uint64_t chunk) const noexcept {
  const auto turn = std::ranges::lower_bound(plan_.turns, chunk % plan_.period) - plan_.turns.begin();
  return chunk / plan_.period * plan_.turns.size() + static_cast<uint64_t>(turn);
}

size_t Link::put_next() noexcept {
  if (queue_head_ == queue_tail_ || endpoint_ == nullptr) return 0;
  const uint32_t allowed =
      exchange_.options().paced ? std::min(plan_.slots, exchange_.pace().limit()) : plan_.slots;
  if (outstanding() >= allowed) {
    exchange_.pace().held_back();
    return 0;
  }
  const uint32_t index = queue_[queue_head_ % queue_.size()];
  const Operation& o = exchange_.table()[index];
  const uint64_t q = period_base_ + plan_.turns[turn_];
  SLUICE_DASSERT(q >= o.first_chunk && q < o.first_chunk + o.chunk_count);
  SLUICE_DASSERT(sequence_from(q) == next_sequence_);
  const uint64_t offset = (q - o.first_chunk) * o.chunk_bytes;
  const auto length = static_cast<uint32_t>(std::min<uint64_t>(o.chunk_bytes, o.bytes - offset));
  const std::span<const std::byte> payload(o.request.send + offset, length);

  wire::FrameHeader h;
  h.type = wire::FrameType::kContribution;
  h.ext_len8 = wire::kSmallExtensionBytes / 8;
  h.view_version = exchange_.options().view_version;
  h.view_hash = exchange_.options().view_hash;
  h.session = plan_.handle;
  h.slot = static_cast<uint16_t>(next_sequence_ % plan_.slots);
  h.kind = wire::Kind::kAllreduce;
  h.sequence = next_sequence_;
  h.chunk = q;
  h.op_id = o.op_id;
  h.wire_dtype = h.result_dtype = o.request.dtype;
  h.acc_dtype = wire::accumulator_of(o.request.dtype);
  h.op = o.request.op;
  h.length = length;
  h.fingerprint = o.fingerprint;
  if (exchange_.options().payload_crc) {
    // Right before the bytes are sent, while they are in cache; once, though put() may ask to come again.
    if (crc_sequence_ != next_sequence_) crc_ = crc32c(payload), crc_sequence_ = next_sequence_;
    h.flags = wire::kFlagPayloadCrc;
    h.payload_crc = crc_;
  }
  if (exchange_.options().paced && loss_watch_.lost(*endpoint_)) exchange_.losses_seen();
  if (tell_losses_) h.flags |= wire::kFlagLosses;
  std::array<std::byte, wire::kSmallExtensionBytes> extension;
  wire::encode_extension(wire::OpInfo{.count = o.request.count}, extension);
  if (!endpoint_->put(h, extension, payload, next_sequence_).ok()) return 0;

  const uint64_t end = sequence_from(o.first_chunk + o.chunk_count);
  flight(next_sequence_) = {.chunk = q,
                            .offset = offset,
                            .operation = index,
                            .length = length,
                            .followed = next_sequence_ + plan_.slots < end};
  ++next_sequence_;
  tell_losses_ = false;
  if (++turn_ == plan_.turns.size()) turn_ = 0, period_base_ += plan_.period;
  if (period_base_ + plan_.turns[turn_] >= o.first_chunk + o.chunk_count) ++queue_head_;
  return length;
}

Status Link::check_result(const wire::FrameHeader& h) noexcept {
  const auto refuse = [&](Errc code, const char* field, uint64_t got, uint64_t expected) {
    return exchange_.breach(plan_.index, code, "result with %s %llu where %llu belongs", field,
                            static_cast<unsigned long long>(got), static_cast<unsigned long long>(expected));
  };
  const Exchange::Options& s = exchange_.options();
  if (h.session != plan_.handle) return refuse(Errc::kBadSession, "session", h.session, plan_.handle);
  if (h.view_version != s.view_version)
    return refuse(Errc::kBadView, "view version", h.view_version, s.view_version);
  if (h.view_hash != s.view_hash) return refuse(Errc::kBadView, "view hash", h.view_hash, s.view_hash);
  if (h.sequence != next_result_) return refuse(Errc::kBadSequence, "sequence", h.sequence, next_result_);
  if (next_result_ == next_sequence_) {
    return exchange_.breach(plan_.index, Errc::kBadSequence, "result %llu without a contribution",
                            static_cast<unsigned long long>(next_result_));
  }
  if (h.slot != next_result_ % plan_.slots)
    return refuse(Errc::kBadSlot, "slot", h.slot, next_result_ % plan_.slots);
  const Flight& f = flight(next_result_);
  const Operation& o = exchange_.table()[f.operation];
  if (h.chunk != f.chunk) return refuse(Errc::kBadField, "chunk", h.chunk, f.chunk);
  if (h.op_id != o.op_id) return refuse(Errc::kBadField, "operation", h.op_id, o.op_id);
  // Kind, encoding, accumulator and result type have been checked against the type by the codec.
  const auto number = [](auto e) { return static_cast<uint64_t>(e); };
  if (h.wire_dtype != o.request.dtype) {
    return refuse(Errc::kBadDType, "dtype", number(h.wire_dtype), number(o.request.dtype));
  }
  if (h.op != o.request.op) return refuse(Errc::kBadOp, "operator", number(h.op), number(o.request.op));
  if (h.length != f.length) return refuse(Errc::kBadLength, "length", h.length, f.length);
  if (h.fingerprint != o.fingerprint)
    return refuse(Errc::kBadField, "fingerprint", h.fingerprint, o.fingerprint);
  return Errc::kOk;
}

std::byte* Link::place_of_result(uint64_t sequence) noexcept {
  const Flight& f = flight(sequence);
  const OpRequest& r = exchange_.table()[f.operation].request;
  const bool kept_there = f.followed && r.send != r.recv;
  const bool given_back = sequence < next_sent_;
  return given_back && (kept_there || !plan_.keep_results) ? r.recv + f.offset : slot(sequence);
}

// Results come in order, as long as what was asked for.
transport::Forecast Link::forecast(transport::Endpoint& /*ep*/, unsigned ahead) noexcept {
  const uint64_t sequence = next_result_ + ahead;
  if (exchange_.ended() || sequence >= next_sequence_) return {};
  return {.payload = place_of_result(sequence),
          .length = flight(sequence).length,
          .extension_bytes = wire::kSmallExtensionBytes};
}

transport::Placement Link::on_header(transport::Endpoint& /*ep*/, const wire::FrameHeader& header,
                                     std::span<const std::byte> /*extensions*/) noexcept {
  if (header.type == wire::FrameType::kResult) {
    const Status status = check_result(header);
    if (!status.ok()) return {.status = status};
    std::byte* const place = place_of_result(next_result_);
    flight(next_result_).direct = place != slot(next_result_);
    return {.status = Errc::kOk, .payload = place};
  }
  if (header.type == wire::FrameType::kAbort && header.length <= kControlBytes) {
    return {.status = Errc::kOk,
            .payload = plan_.ring + size_t{plan_.slots} * exchange_.options().slot_bytes};
  }
  const Errc code = header.type == wire::FrameType::kAbort ? Errc::kBadLength : Errc::kUnexpectedMessage;
  return {.status = exchange_.breach(plan_.index, code, "%s of %u bytes on a lane connection",
                                     wire::to_string(header.type), header.length)};
}

void Link::on_frame(transport::Endpoint& /*ep*/, const wire::FrameHeader& header,
                    std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept {
  if (header.type == wire::FrameType::kAbort) return exchange_.told_abort(plan_.index, payload);
  if (const auto info = wire::find_result_info(extensions)) exchange_.came_last(*info);
  ++next_result_;
  exchange_.result_came(plan_.index, (header.flags & wire::kFlagLosses) != 0, header.length);
  finish_flights();
}

void Link::on_sent(transport::Endpoint& /*ep*/, transport::Cookie cookie, Status /*status*/) noexcept {
  if (cookie == kCommitCookie) return;
  SLUICE_DASSERT(cookie == next_sent_);
  ++next_sent_;
  finish_flights();
}

// Both events come in order of sequence, so the flights end in that order too.
void Link::finish_flights() noexcept {
  while (finished_ < next_result_ && finished_ < next_sent_) {
    const Flight& f = flight(finished_);
    if (!exchange_.ended()) {
      if (!f.direct) {
        std::memcpy(exchange_.table()[f.operation].request.recv + f.offset, slot(finished_), f.length);
        bytes_copied_ += f.length;
      }
      exchange_.chunk_done(f.operation);
    }
    ++finished_;
  }
}

void Link::close(Errc reason) noexcept {
  if (endpoint_ != nullptr) endpoint_->close(reason);
}

void Link::on_closed(transport::Endpoint& ep, Errc reason) noexcept {
  last_counters_ = ep.counters();
  endpoint_ = nullptr;
  exchange_.link_closed(plan_.index, reason);
}

transport::EndpointCounters Link::counters() const noexcept {
  transport::EndpointCounters c = endpoint_ != nullptr ? endpoint_->counters() : last_counters_;
  if (c.frames_out > 0) c.payload_bytes_out -= commit_.size();  // payload is what contributions carry
  return c;
}

}  // namespace sluice::engine
