#include "nccl_plugin/net/recv_comm.h"

#include <algorithm>
#include <cinttypes>

#include "nccl_plugin/net/frames.h"

namespace sluice::nccl::net {
namespace {

// One GRANT for each slot at most: the queue is never full.
constexpr uint32_t kSendQueue = abi::kMaxRequests;

}  // namespace

RecvComm::RecvComm() noexcept : StreamGroup("receive from") {
  for (Slot& s : slots_) s.group = this;
}

Result<std::unique_ptr<RecvComm>> RecvComm::make(GreetedStreams greeted) {
  std::unique_ptr<RecvComm> comm(new RecvComm);
  // No frame deadline: see SendComm::make().
  if (auto adopted = comm->adopt(std::move(greeted), {.send_queue = kSendQueue, .frame_deadline = 0});
      !adopted)
    return tl::unexpected(adopted.error());
  return comm;
}

Status RecvComm::receive(std::byte* data, size_t bytes, int tag, Request** request) noexcept {
  *request = nullptr;
  if (!error().ok()) return error();
  const auto free = std::ranges::find(slots_, false, &Slot::taken);
  if (free == slots_.end()) return Errc::kOk;
  transport::Endpoint* const ep = streams()[0].endpoint;
  const auto slot = static_cast<uint16_t>(free - slots_.begin());
  const Status put = ep == nullptr ? Errc::kClosed
                                   : ep->put(grant_header(next_sequence_, slot, bytes, tag), {}, {},
                                             transport::Cookie{slot});
  if (put == Status(Errc::kWouldBlock)) return Errc::kOk;
  if (!put.ok()) {
    // Receives that are open may still get what is on its way; for this one nothing can come.
    if (unfinished_ == 0) end(Errc::kClosed, "the sender has ended the connection");
    return put;
  }
  poll_soon();
  Slot& s = *free;
  s.taken = true;
  s.data = data;
  s.granted = bytes;
  s.sequence = next_sequence_++;
  s.begun = false;
  s.arrived = 0;
  request_taken();
  ++unfinished_;
  *request = &s;
  return Errc::kOk;
}

// Every field of the frame is the peer's word.
transport::Placement RecvComm::header(Stream& /*stream*/, const wire::FrameHeader& h) noexcept {
  if (h.type != wire::FrameType::kPiece)
    return refuse(Errc::kUnexpectedMessage, "%s from a sender", wire::to_string(h.type));
  if (!other_fields_are_zero(h)) return refuse(Errc::kBadField, "piece with a field that has no meaning");
  if (h.slot >= slots_.size() || !slots_[h.slot].taken || slots_[h.slot].sequence != h.sequence)
    return refuse(Errc::kSlotNotGranted, "piece for slot %u, grant %" PRIu64 ", which is not open",
                  unsigned{h.slot}, h.sequence);
  Slot& s = slots_[h.slot];
  if (!s.begun) {
    if (const transport::Placement begun = begin_message(s, h); !begun.status.ok()) return begun;
  }
  if (h.chunk != s.message_bytes || h.fingerprint != s.piece_bytes || h.op_id >= s.pieces) {
    return refuse(Errc::kBadField,
                  "piece %u, of %" PRIu64 " bytes in pieces of %u, in a message of %" PRIu64
                  " in pieces of %u",
                  h.op_id, h.chunk, h.fingerprint, s.message_bytes, s.piece_bytes);
  }
  // Does not overflow: op_id is below the number of pieces, and all of them together are message_bytes.
  const uint64_t offset = uint64_t{h.op_id} * s.piece_bytes;
  if (h.length != std::min<uint64_t>(s.piece_bytes, s.message_bytes - offset))
    return refuse(Errc::kBadLength, "piece %u of %u bytes in a message of %" PRIu64 " in pieces of %u",
                  h.op_id, h.length, s.message_bytes, s.piece_bytes);
  uint64_t& word = s.begun_pieces[h.op_id / 64];
  const uint64_t bit = uint64_t{1} << (h.op_id % 64);
  // From its header on: a second one on another stream would write to the same place.
  if ((word & bit) != 0) return refuse(Errc::kBadSequence, "piece %u comes twice", h.op_id);
  word |= bit;
  return {.status = Errc::kOk, .payload = s.data + offset};
}

transport::Placement RecvComm::begin_message(Slot& s, const wire::FrameHeader& h) noexcept {
  if (h.chunk > s.granted) {
    return refuse(Errc::kBadLength,
                  "message of %" PRIu64 " bytes for a receive of %" PRIu64
                  ": do the ranks differ in collective or in NCCL_ settings?",
                  h.chunk, s.granted);
  }
  if (h.fingerprint > wire::kMaxPayload || (h.fingerprint == 0) != (h.chunk == 0) ||
      piece_count(h.chunk, h.fingerprint) > kMaxPieces) {
    return refuse(Errc::kBadField, "message of %" PRIu64 " bytes in pieces of %u", h.chunk, h.fingerprint);
  }
  s.begun = true;
  s.message_bytes = h.chunk;
  s.piece_bytes = h.fingerprint;
  s.pieces = static_cast<uint32_t>(piece_count(h.chunk, h.fingerprint));
  std::fill_n(s.begun_pieces.begin(), div_ceil(s.pieces, 64), uint64_t{0});
  return {.status = Errc::kOk};
}

void RecvComm::frame(const wire::FrameHeader& h) noexcept {
  Slot& s = slots_[h.slot];
  if (++s.arrived < s.pieces) return;
  s.bytes = s.message_bytes;
  s.done = true;
  --unfinished_;
}

void RecvComm::stream_ended() noexcept {
  // Others may still hold what was sent before the end.
  if (streams_left() == 0 && unfinished_ > 0)
    end(Errc::kClosed, "the sender ended the connection with receives open");
}

}  // namespace sluice::nccl::net
