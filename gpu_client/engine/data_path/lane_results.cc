// The receiving half of LaneConnection: results, RESUME_ACK and ABORT.
#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "gpu_client/engine/data_path/chunk_scheduler.h"
#include "gpu_client/engine/data_path/lane_connection.h"
#include "wire/extension.h"
#include "wire/messages.h"
#include "wire/payload/sparse.h"

namespace sluice::engine {

Status LaneConnection::check_result(const wire::FrameHeader& h,
                                    std::span<const std::byte> extensions) noexcept {
  const auto refuse = [&](Errc code, const char* field, uint64_t got, uint64_t expected) {
    return scheduler_.report_failure(options_.index, code, "result has %s %llu, expected %llu", field,
                                     static_cast<unsigned long long>(got),
                                     static_cast<unsigned long long>(expected));
  };
  const ChunkScheduler::View& view = scheduler_.view();
  if (h.session != options_.handle) return refuse(Errc::kBadSession, "session", h.session, options_.handle);
  if (h.view_version != view.version)
    return refuse(Errc::kBadView, "view version", h.view_version, view.version);
  if (h.view_hash != static_cast<uint32_t>(view.hash))
    return refuse(Errc::kBadView, "view hash", h.view_hash, static_cast<uint32_t>(view.hash));
  if (h.sequence != next_result_) return refuse(Errc::kBadSequence, "sequence", h.sequence, next_result_);
  if (next_result_ == next_put_) {
    return scheduler_.report_failure(options_.index, Errc::kBadSequence, "result %llu has no contribution",
                                     static_cast<unsigned long long>(next_result_));
  }
  if (h.slot != next_result_ % options_.slots)
    return refuse(Errc::kBadSlot, "slot", h.slot, next_result_ % options_.slots);
  const InflightChunk& f = inflight(next_result_);
  if (h.chunk != f.chunk) return refuse(Errc::kBadField, "chunk", h.chunk, f.chunk);
  if (h.op_id != f.op_id) return refuse(Errc::kBadField, "operation", h.op_id, f.op_id);
  // The codec has checked accumulator type and result type against the dtype.
  const auto number = [](auto e) { return static_cast<uint64_t>(e); };
  if (h.kind != f.kind) return refuse(Errc::kBadKind, "kind", number(h.kind), number(f.kind));
  if (h.wire_dtype != f.dtype) return refuse(Errc::kBadDType, "dtype", number(h.wire_dtype), number(f.dtype));
  if (h.op != f.op) return refuse(Errc::kBadOp, "operator", number(h.op), number(f.op));
  uint32_t length = h.length;
  if (h.encoding == wire::Encoding::kSparse) {
    if (!f.accepts_sparse) return refuse(Errc::kBadEncoding, "encoding", number(h.encoding), 0);
    const auto expanded = wire::find_expanded(extensions);
    if (!expanded) return refuse(Errc::kBadExtension, "extension bytes", extensions.size(), 32);
    length = expanded->bytes;
    if (h.length >= length) return refuse(Errc::kBadLength, "sparse length", h.length, length - 1);
  }
  if (length != f.length) return refuse(Errc::kBadLength, "length", length, f.length);
  if (h.fingerprint != f.fingerprint)
    return refuse(Errc::kBadField, "fingerprint", h.fingerprint, f.fingerprint);
  return Errc::kOk;
}

bool LaneConnection::is_stale(const wire::FrameHeader& h) const noexcept {
  return !view_confirmed_ && h.view_version < scheduler_.view().version && h.session == options_.handle;
}

// Null when a result of an earlier view has completed the chunk. Its buffer may be in use by the transport
// as a kept result that is being sent, so a received frame, which may be damaged, must not overwrite it.
std::byte* LaneConnection::result_buffer(const InflightChunk& f, bool contribution_sent) noexcept {
  if (f.advertised != nullptr && !scheduler_.ring().is_done(f.chunk)) return f.advertised;
  return choose_result_buffer(f, contribution_sent);
}

std::byte* LaneConnection::choose_result_buffer(const InflightChunk& f, bool contribution_sent) noexcept {
  const uint64_t q = f.chunk;
  ChunkRing& ring = scheduler_.ring();
  if (ring.is_done(q)) return nullptr;
  const ChunkRecord& r = ring.record(q);
  if (!r.receives) return ring.buffer(q);
  const OpRequest& request = scheduler_.table()[r.operation].request;
  if (request.on_device) return r.recv;  // the CPU cannot copy from the ring to it
  const bool kept_there = r.followed && r.send != r.recv;
  return contribution_sent && (kept_there || !options_.keep_results) ? r.recv : ring.buffer(q);
}

// Advertises the buffers of contributions that were put, even before on_sent(): a reducer that has the
// result has received the whole contribution.
transport::RemoteBuffer LaneConnection::advertise(transport::Endpoint& /*ep*/) noexcept {
  if (scheduler_.has_ended() || scheduler_.is_stopped() || state_ != State::kOpen) return {};
  for (next_advertised_ = std::max(next_advertised_, next_result_); next_advertised_ < next_put_;
       ++next_advertised_) {
    InflightChunk& f = inflight(next_advertised_);
    f.advertised = f.length == 0 ? nullptr : choose_result_buffer(f, true);
    if (f.advertised == nullptr) continue;
    return {.payload = f.advertised,
            .capacity = f.length,
            .view_version = scheduler_.view().version,
            .sequence = next_advertised_++};
  }
  return {};
}

// Results arrive in order and are as long as their contributions. The transport may write to the predicted
// buffer even when the prediction is wrong. So there is no prediction before the first frame of this view:
// earlier frames belong to the old view.
transport::ExpectedFrame LaneConnection::expected_frame(transport::Endpoint& /*ep*/,
                                                        unsigned ahead) noexcept {
  const uint64_t sequence = next_result_ + ahead;
  if (scheduler_.has_ended() || !view_confirmed_ || sequence >= next_put_) return {};
  const InflightChunk& f = inflight(sequence);
  if (f.length == 0) return {};
  std::byte* const buffer = result_buffer(f, sequence < next_sent_);
  if (buffer == nullptr) return {};
  return {.payload = buffer, .length = f.length, .extension_bytes = wire::kSmallExtensionBytes};
}

transport::ReceiveTarget LaneConnection::on_header(transport::Endpoint& /*ep*/,
                                                   const wire::FrameHeader& header,
                                                   std::span<const std::byte> extensions) noexcept {
  std::byte* const control = scratch_.data() + scheduler_.options().slot_bytes;
  const bool short_enough = header.length <= kControlBytes;
  if (header.type == wire::FrameType::kResult && state_ == State::kOpen) {
    if (is_stale(header)) {
      if (header.length > scheduler_.options().slot_bytes) return {.status = Errc::kBadLength};
      receiving_ = true;
      return {.status = Errc::kOk, .payload = scratch_.data()};
    }
    const Status status = check_result(header, extensions);
    if (!status.ok()) return {.status = status};
    InflightChunk& f = inflight(next_result_);
    std::byte* const buffer = f.buffer = result_buffer(f, next_result_ < next_sent_);
    receiving_ = true;
    return {.status = Errc::kOk, .payload = buffer != nullptr ? buffer : scratch_.data()};
  }
  if (header.type == wire::FrameType::kAbort && short_enough)
    return {.status = Errc::kOk, .payload = control};
  if (header.type == wire::FrameType::kResumeAck && short_enough && state_ == State::kResuming)
    return {.status = Errc::kOk, .payload = control};
  const Errc code = header.type == wire::FrameType::kAbort ? Errc::kBadLength : Errc::kUnexpectedMessage;
  return {.status = scheduler_.report_failure(options_.index, code,
                                              "unexpected %s of %u bytes on a lane connection",
                                              wire::to_string(header.type), header.length)};
}

void LaneConnection::on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                              std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept {
  if (header.type == wire::FrameType::kAbort) return scheduler_.abort_received(options_.index, payload);
  if (header.type == wire::FrameType::kResumeAck) {
    if (const Status status = handle_resume_ack(payload); !status.ok()) ep.close(status.code());
    return;
  }
  receiving_ = false;
  if (is_stale(header)) return;
  view_confirmed_ = true;
  if (header.encoding == wire::Encoding::kSparse &&
      !wire::expand_sparse(payload.data(), header.length, inflight(next_result_).length, header.wire_dtype)) {
    return ep.close(scheduler_.report_failure(options_.index, Errc::kBadField,
                                              "result %llu has a bitmap that disagrees with its length",
                                              static_cast<unsigned long long>(next_result_)));
  }
  if (header.length != 0) received_for_dense_ = kDense * inflight(next_result_).length / header.length;
  if (const auto info = wire::find_result_info(extensions)) scheduler_.note_last_rank(*info);
  if (extensions.size() > wire::kSmallExtensionBytes) note_finding(header, extensions);
  ++next_result_;
  // In bytes that were sent or received, so that the rate of a reduce-scatter is not 0 either.
  const uint32_t bytes = std::max(header.length, scheduler_.ring().record(header.chunk).length);
  scheduler_.result_received(options_.index, (header.flags & wire::kFlagLosses) != 0, bytes);
  finish_chunks();
}

void LaneConnection::note_finding(const wire::FrameHeader& header,
                                  std::span<const std::byte> extensions) noexcept {
  const auto finding = wire::find_finding(extensions);
  // Without a buffer the chunk was done before, and so may its operation be.
  if (!finding || scheduler_.has_ended() || inflight(next_result_).buffer == nullptr) return;
  scheduler_.note_finding(scheduler_.ring().record(header.chunk).operation, *finding);
}

Status LaneConnection::handle_resume_ack(std::span<const std::byte> body) noexcept {
  wire::ResumeAck ack;
  if (const Status status = wire::decode_body(body, ack); !status.ok()) return status;
  // The reducer held every contribution whose result is here, and holds none that was never put.
  if (ack.contributions_held < next_result_ || ack.contributions_held > next_sequence_) {
    return scheduler_.report_failure(options_.index, Errc::kBadSequence,
                                     "RESUME_ACK reports %llu contributions held, expected %llu to %llu",
                                     static_cast<unsigned long long>(ack.contributions_held),
                                     static_cast<unsigned long long>(next_result_),
                                     static_cast<unsigned long long>(next_sequence_));
  }
  next_put_ = next_sent_ = ack.contributions_held;
  state_ = State::kOpen;
  view_confirmed_ = true;
  finish_chunks();
  scheduler_.lane_resumed(options_.index);
  return Errc::kOk;
}

// on_sent() and results both come in order of sequence, so chunks finish in that order too.
void LaneConnection::finish_chunks() noexcept {
  while (finished_ < next_result_ && finished_ < next_sent_) {
    const InflightChunk& f = inflight(finished_);
    ++finished_;
    if (scheduler_.has_ended() || f.buffer == nullptr) continue;
    ChunkRing& ring = scheduler_.ring();
    ChunkRecord& r = ring.record(f.chunk);
    SLUICE_DASSERT(r.chunk == f.chunk && !r.done);
    keep(r, f.buffer);
    ring.complete(f.chunk);
    scheduler_.chunk_done(r.operation);
  }
}

// Gives the caller the chunk's result and keeps what may have to be contributed again.
void LaneConnection::keep(ChunkRecord& r, std::byte* buffer) noexcept {
  std::byte* const ring = scheduler_.ring().buffer(r.chunk);
  if (r.receives) {
    if (buffer == ring) {
      std::memcpy(r.recv, buffer, r.length);
      bytes_copied_ += r.length;
    }
    r.kept = buffer;
    return;
  }
  // A root's own data of a broadcast, or a contribution to what another rank receives.
  if (r.recv != nullptr && r.recv != r.send) std::memcpy(r.recv, r.send, r.length);
  r.kept = r.send;
  if (r.followed || !options_.keep_results) return;
  std::memcpy(ring, r.send, r.length);
  bytes_copied_ += r.length;
  r.kept = ring;
}

}  // namespace sluice::engine
