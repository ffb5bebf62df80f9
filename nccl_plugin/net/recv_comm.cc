#include "nccl_plugin/net/recv_comm.h"

#include <algorithm>
#include <cinttypes>

#include "nccl_plugin/net/frames.h"

namespace sluice::nccl::net {
namespace {

// At most one GRANT per slot, so the queue is never full.
constexpr uint32_t kSendQueue = abi::kMaxRequests;

}  // namespace

RecvComm::RecvComm() : StreamGroup("receive from") {
  for (Slot& s : slots_) s.group = this;
}

Result<std::unique_ptr<RecvComm>> RecvComm::make(ConnectedStreams connected) {
  std::unique_ptr<RecvComm> comm(new RecvComm);
  // No frame deadline: see SendComm::make().
  if (auto adopted = comm->adopt(std::move(connected), {.send_queue = kSendQueue, .frame_deadline = 0});
      !adopted)
    return tl::unexpected(adopted.error());
  return comm;
}

Status RecvComm::receive(std::byte* data, size_t bytes, int tag, Request** request) noexcept {
  *request = nullptr;
  if (!error().ok()) return error();
  const auto free = std::ranges::find(slots_, false, &Slot::in_use);
  if (free == slots_.end()) return Errc::kOk;
  transport::Endpoint* const ep = streams()[0].endpoint;
  const auto slot = static_cast<uint16_t>(free - slots_.begin());
  const Status put = ep == nullptr ? Errc::kClosed
                                   : ep->put(grant_header(next_sequence_, slot, bytes, tag), {}, {},
                                             transport::Cookie{slot});
  if (put == Status(Errc::kWouldBlock)) return Errc::kOk;
  if (!put.ok()) {
    // Data for the open receives may still be in flight, but nothing can arrive for this one.
    if (unfinished_ == 0) fail_group(Errc::kClosed, "sender has closed the connection");
    return put;
  }
  poll_at_next_progress();
  Slot& s = *free;
  s.in_use = true;
  s.data = data;
  s.granted = bytes;
  s.sequence = next_sequence_++;
  s.has_piece = false;
  s.completed = 0;
  add_request();
  ++unfinished_;
  *request = &s;
  return Errc::kOk;
}

// The fields of the frame come from the peer and are not trusted.
transport::ReceiveTarget RecvComm::accept_header(Stream& /*stream*/, const wire::FrameHeader& h) noexcept {
  if (h.type != wire::FrameType::kPiece)
    return reject(Errc::kUnexpectedMessage, "unexpected frame %s from the sender", wire::to_string(h.type));
  if (!unused_fields_are_zero(h)) return reject(Errc::kBadField, "piece with a nonzero reserved field");
  if (h.slot >= slots_.size() || !slots_[h.slot].in_use || slots_[h.slot].sequence != h.sequence)
    return reject(Errc::kSlotNotGranted, "piece for slot %u, grant %" PRIu64 ", which is not open",
                  unsigned{h.slot}, h.sequence);
  Slot& s = slots_[h.slot];
  if (!s.has_piece) {
    if (const transport::ReceiveTarget started = start_message(s, h); !started.status.ok()) return started;
  }
  if (h.chunk != s.message_bytes || h.fingerprint != s.piece_bytes || h.op_id >= s.pieces) {
    return reject(Errc::kBadField,
                  "piece %u announces %" PRIu64 " bytes in pieces of %u, expected %" PRIu64
                  " bytes in pieces of %u",
                  h.op_id, h.chunk, h.fingerprint, s.message_bytes, s.piece_bytes);
  }
  // Cannot overflow: op_id is less than the number of pieces, whose total is message_bytes.
  const uint64_t offset = uint64_t{h.op_id} * s.piece_bytes;
  if (h.length != std::min<uint64_t>(s.piece_bytes, s.message_bytes - offset))
    return reject(Errc::kBadLength,
                  "piece %u has a wrong length of %u bytes, in a message of %" PRIu64
                  " bytes in pieces of %u bytes",
                  h.op_id, h.length, s.message_bytes, s.piece_bytes);
  uint64_t& word = s.started_pieces[h.op_id / 64];
  const uint64_t bit = uint64_t{1} << (h.op_id % 64);
  // Set at the header: a duplicate on another stream would write to the same memory at the same time.
  if ((word & bit) != 0) return reject(Errc::kBadSequence, "piece %u was sent twice", h.op_id);
  word |= bit;
  return {.status = Errc::kOk, .payload = s.data + offset};
}

transport::ReceiveTarget RecvComm::start_message(Slot& s, const wire::FrameHeader& h) noexcept {
  if (h.chunk > s.granted) {
    return reject(Errc::kBadLength,
                  "message of %" PRIu64 " bytes for a receive of %" PRIu64
                  " bytes; check that all ranks call the same collective with the same NCCL_ variables",
                  h.chunk, s.granted);
  }
  if (h.fingerprint > wire::kMaxPayload || (h.fingerprint == 0) != (h.chunk == 0) ||
      piece_count(h.chunk, h.fingerprint) > kMaxPieces) {
    return reject(Errc::kBadField, "message of %" PRIu64 " bytes in invalid pieces of %u bytes", h.chunk,
                  h.fingerprint);
  }
  s.has_piece = true;
  s.message_bytes = h.chunk;
  s.piece_bytes = h.fingerprint;
  s.pieces = static_cast<uint32_t>(piece_count(h.chunk, h.fingerprint));
  std::fill_n(s.started_pieces.begin(), div_ceil(s.pieces, 64), uint64_t{0});
  return {.status = Errc::kOk};
}

void RecvComm::complete_frame(const wire::FrameHeader& h) noexcept {
  Slot& s = slots_[h.slot];
  if (++s.completed < s.pieces) return;
  s.bytes = s.message_bytes;
  s.done = true;
  --unfinished_;
}

void RecvComm::on_stream_end() noexcept {
  // The other streams may still have data that was sent before the end.
  if (open_streams() == 0 && unfinished_ > 0)
    fail_group(Errc::kClosed, "sender closed the connection with receives open");
}

}  // namespace sluice::nccl::net
