// What a link receives: results, and the few words that a reducer says on a lane connection.
#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "gpu_client/engine/exchange.h"
#include "gpu_client/engine/link.h"
#include "wire/extension.h"
#include "wire/messages.h"

namespace sluice::engine {

Status Link::check_result(const wire::FrameHeader& h) noexcept {
  const auto refuse = [&](Errc code, const char* field, uint64_t got, uint64_t expected) {
    return exchange_.breach(plan_.index, code, "result with %s %llu where %llu belongs", field,
                            static_cast<unsigned long long>(got), static_cast<unsigned long long>(expected));
  };
  const Exchange::View& view = exchange_.view();
  if (h.session != plan_.handle) return refuse(Errc::kBadSession, "session", h.session, plan_.handle);
  if (h.view_version != view.version)
    return refuse(Errc::kBadView, "view version", h.view_version, view.version);
  if (h.view_hash != static_cast<uint32_t>(view.hash))
    return refuse(Errc::kBadView, "view hash", h.view_hash, static_cast<uint32_t>(view.hash));
  if (h.sequence != next_result_) return refuse(Errc::kBadSequence, "sequence", h.sequence, next_result_);
  if (next_result_ == next_put_) {
    return exchange_.breach(plan_.index, Errc::kBadSequence, "result %llu without a contribution",
                            static_cast<unsigned long long>(next_result_));
  }
  if (h.slot != next_result_ % plan_.slots)
    return refuse(Errc::kBadSlot, "slot", h.slot, next_result_ % plan_.slots);
  const Flight& f = flight(next_result_);
  if (h.chunk != f.chunk) return refuse(Errc::kBadField, "chunk", h.chunk, f.chunk);
  if (h.op_id != f.op_id) return refuse(Errc::kBadField, "operation", h.op_id, f.op_id);
  // Kind, encoding, accumulator and result type have been checked against the type by the codec.
  const auto number = [](auto e) { return static_cast<uint64_t>(e); };
  if (h.wire_dtype != f.dtype) return refuse(Errc::kBadDType, "dtype", number(h.wire_dtype), number(f.dtype));
  if (h.op != f.op) return refuse(Errc::kBadOp, "operator", number(h.op), number(f.op));
  if (h.length != f.length) return refuse(Errc::kBadLength, "length", h.length, f.length);
  if (h.fingerprint != f.fingerprint)
    return refuse(Errc::kBadField, "fingerprint", h.fingerprint, f.fingerprint);
  return Errc::kOk;
}

bool Link::is_stale(const wire::FrameHeader& h) const noexcept {
  return !in_view_ && h.view_version < exchange_.view().version && h.session == plan_.handle;
}

// Null: the chunk is done, by a result of an earlier view, and may be in the transport's hands as a
// contribution; a frame that turned out damaged must not have been written over it.
std::byte* Link::place_of_result(const Flight& f, bool given_back) noexcept {
  if (f.lent != nullptr && !exchange_.ring().done(f.chunk)) return f.lent;
  return choose_place(f, given_back);
}

std::byte* Link::choose_place(const Flight& f, bool given_back) noexcept {
  const uint64_t q = f.chunk;
  ChunkRing& ring = exchange_.ring();
  if (ring.done(q)) return nullptr;
  const ChunkRecord& r = ring.record(q);
  const OpRequest& request = exchange_.table()[r.operation].request;
  if (request.on_device) return request.recv + r.offset;  // nothing can be copied there from the ring
  const bool kept_there = r.followed && request.send != request.recv;
  return given_back && (kept_there || !plan_.keep_results) ? request.recv + r.offset : ring.place(q);
}

// Of what is put, though not given back: whoever has the result has had the whole contribution.
transport::Loan Link::lend(transport::Endpoint& /*ep*/) noexcept {
  if (exchange_.ended() || exchange_.stopped() || state_ != State::kOpen) return {};
  for (next_lent_ = std::max(next_lent_, next_result_); next_lent_ < next_put_; ++next_lent_) {
    Flight& f = flight(next_lent_);
    f.lent = choose_place(f, true);
    if (f.lent == nullptr) continue;
    return {.place = f.lent,
            .capacity = f.length,
            .view_version = exchange_.view().version,
            .sequence = next_lent_++};
  }
  return {};
}

// Results come in order, as long as what was asked for. A forecast that is wrong may be written over, so none
// is made before the first frame of this view: what comes ahead of it is of the old one.
transport::Forecast Link::forecast(transport::Endpoint& /*ep*/, unsigned ahead) noexcept {
  const uint64_t sequence = next_result_ + ahead;
  if (exchange_.ended() || !in_view_ || sequence >= next_put_) return {};
  const Flight& f = flight(sequence);
  std::byte* const place = place_of_result(f, sequence < next_sent_);
  if (place == nullptr) return {};
  return {.payload = place, .length = f.length, .extension_bytes = wire::kSmallExtensionBytes};
}

transport::Placement Link::on_header(transport::Endpoint& /*ep*/, const wire::FrameHeader& header,
                                     std::span<const std::byte> /*extensions*/) noexcept {
  std::byte* const words = scratch_.data() + exchange_.options().slot_bytes;
  const bool short_enough = header.length <= kControlBytes;
  if (header.type == wire::FrameType::kResult && state_ == State::kOpen) {
    if (is_stale(header)) {
      if (header.length > exchange_.options().slot_bytes) return {.status = Errc::kBadLength};
      receiving_ = true;
      return {.status = Errc::kOk, .payload = scratch_.data()};
    }
    const Status status = check_result(header);
    if (!status.ok()) return {.status = status};
    Flight& f = flight(next_result_);
    std::byte* const place = f.place = place_of_result(f, next_result_ < next_sent_);
    receiving_ = true;
    return {.status = Errc::kOk, .payload = place != nullptr ? place : scratch_.data()};
  }
  if (header.type == wire::FrameType::kAbort && short_enough) return {.status = Errc::kOk, .payload = words};
  if (header.type == wire::FrameType::kResumeAck && short_enough && state_ == State::kResuming)
    return {.status = Errc::kOk, .payload = words};
  const Errc code = header.type == wire::FrameType::kAbort ? Errc::kBadLength : Errc::kUnexpectedMessage;
  return {.status = exchange_.breach(plan_.index, code, "%s of %u bytes on a lane connection",
                                     wire::to_string(header.type), header.length)};
}

void Link::on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                    std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept {
  if (header.type == wire::FrameType::kAbort) return exchange_.told_abort(plan_.index, payload);
  if (header.type == wire::FrameType::kResumeAck) {
    if (const Status status = resumed(payload); !status.ok()) ep.close(status.code());
    return;
  }
  receiving_ = false;
  if (is_stale(header)) return;
  in_view_ = true;
  if (const auto info = wire::find_result_info(extensions)) exchange_.came_last(*info);
  ++next_result_;
  exchange_.result_came(plan_.index, (header.flags & wire::kFlagLosses) != 0, header.length);
  finish_flights();
}

Status Link::resumed(std::span<const std::byte> body) noexcept {
  wire::ResumeAck ack;
  if (const Status status = wire::decode_body(body, ack); !status.ok()) return status;
  // A result is here only of what the reducer held; it can't hold what was never put.
  if (ack.contributions_held < next_result_ || ack.contributions_held > next_sequence_) {
    return exchange_.breach(
        plan_.index, Errc::kBadSequence, "RESUME_ACK with %llu contributions where %llu to %llu were put",
        static_cast<unsigned long long>(ack.contributions_held),
        static_cast<unsigned long long>(next_result_), static_cast<unsigned long long>(next_sequence_));
  }
  next_put_ = next_sent_ = ack.contributions_held;
  state_ = State::kOpen;
  in_view_ = true;
  finish_flights();
  exchange_.link_resumed(plan_.index);
  return Errc::kOk;
}

// Both events come in order of sequence, so the flights end in that order too.
void Link::finish_flights() noexcept {
  while (finished_ < next_result_ && finished_ < next_sent_) {
    const Flight& f = flight(finished_);
    ++finished_;
    if (exchange_.ended() || f.place == nullptr) continue;
    ChunkRing& ring = exchange_.ring();
    ChunkRecord& r = ring.record(f.chunk);
    SLUICE_DASSERT(r.chunk == f.chunk && !r.done);
    if (f.place == ring.place(f.chunk)) {
      std::memcpy(exchange_.table()[r.operation].request.recv + r.offset, f.place, f.length);
      bytes_copied_ += f.length;
    }
    r.result = f.place;
    ring.finish(f.chunk);
    exchange_.chunk_done(r.operation);
  }
}

}  // namespace sluice::engine
