#include "nccl_plugin/net/send_comm.h"

#include <algorithm>
#include <cstdio>

#include "core/clock.h"
#include "nccl_plugin/net/frames.h"

namespace sluice::nccl::net {
namespace {

// Most unsent data of a stream: enough for one gathered send. The rest can then go to another stream.
constexpr uint64_t kMaxUnsentBytes = kMiB;
constexpr unsigned kMaxUnsentFrames = 48;
constexpr uint32_t kFrameQueue = 64;
static_assert(kMaxUnsentFrames < kFrameQueue);
// Loads that differ by less count as equal, and the first stream is selected: many small messages then need
// one system call.
constexpr uint64_t kLoadStep = 32 * kKiB;

// A cookie holds the index of the message and the load of its piece.
constexpr transport::Cookie cookie_of(size_t index, uint64_t bytes) noexcept {
  return index | bytes << 8;
}
constexpr uint64_t kNoMessage = 0xff;  // the index of a frame without a message
static_assert(abi::kMaxRequests < kNoMessage);

}  // namespace

SendComm::SendComm() : StreamGroup("send to") {
  for (Message& m : messages_) m.group = this;
}

Result<std::unique_ptr<SendComm>> SendComm::make(ConnectedStreams connected) {
  std::unique_ptr<SendComm> comm(new SendComm);
  // The receiver sends headers only. No frame deadline: the peer may be stopped for a while, and TCP detects
  // its loss.
  auto adopted =
      comm->adopt(std::move(connected), {.send_queue = kFrameQueue, .max_payload = 0, .frame_deadline = 0});
  if (!adopted) return tl::unexpected(adopted.error());
  return comm;
}

Status SendComm::send(const std::byte* data, size_t bytes, int tag, Request** request) noexcept {
  *request = nullptr;
  if (!error().ok()) return error();
  if (peer_ended_) {
    fail_group(Errc::kClosed, "receiver has closed the connection");
    return error();
  }
  if (bytes > kMaxMessageBytes) return Errc::kInvalidArgument;
  const auto free = std::ranges::find(messages_, false, &Message::in_use);
  if (free == messages_.end()) return Errc::kOk;
  Message& m = *free;
  m.data = data;
  m.bytes = bytes;
  m.tag = tag;
  m.order = next_order_++;
  m.piece_bytes = piece_bytes(bytes, static_cast<unsigned>(streams().size()));
  m.pieces = static_cast<uint32_t>(piece_count(bytes, m.piece_bytes));
  m.next_piece = 0;
  m.unsent_pieces = 0;
  m.in_use = true;
  m.awaits_grant = true;
  add_request();
  ++unfinished_;
  ++waiting_;

  const Grant* oldest = nullptr;
  if (open_grants_ > 0) {
    for (const Grant& g : grants_) {
      const bool fits = g.state == Grant::State::kOpen && g.tag == tag;
      if (fits && (oldest == nullptr || g.sequence < oldest->sequence)) oldest = &g;
    }
  }
  if (oldest != nullptr) {
    use_grant(static_cast<uint16_t>(oldest - grants_.data()), m);
    if (!error().ok()) {
      poll(monotonic_now());  // sends the notice; there is no poll after an error
      return error();
    }
  }
  *request = &m;
  return Errc::kOk;
}

void SendComm::use_grant(uint16_t slot, Message& m) noexcept {
  Grant& g = grants_[slot];
  --open_grants_;
  --waiting_;
  m.awaits_grant = false;
  g.state = Grant::State::kUsed;
  m.slot = slot;
  m.sequence = g.sequence;
  if (m.bytes > g.bytes) return reject_too_long(g, slot, m);
  const auto index = static_cast<uint8_t>(&m - messages_.data());
  sending_[(sending_front_ + sending_count_++) % sending_.size()] = index;
  put_pieces();
}

void SendComm::reject_too_long(const Grant& grant, uint16_t slot, const Message& m) noexcept {
  transport::Endpoint* const ep = streams()[0].endpoint;
  if (ep != nullptr) {
    // If the put fails, the peer only sees the connection close.
    const auto notice = piece_header(m.sequence, slot, m.bytes, 0, m.piece_bytes, 0);
    [[maybe_unused]] const Status put = ep->put(notice, {}, {}, cookie_of(kNoMessage, 0));
  }
  std::array<char, 224> text;
  std::snprintf(text.data(), text.size(),
                "message of %zu bytes, but the receiver expects at most %llu bytes; check that all ranks "
                "call the same collective with the same NCCL_ variables",
                m.bytes, static_cast<unsigned long long>(grant.bytes));
  fail_group(Errc::kBadLength, text.data(), false);  // the notice is still queued; close() closes the streams
}

void SendComm::put_pieces() noexcept {
  while (sending_count_ > 0 && error().ok()) {
    Stream* const stream = least_loaded();
    if (stream == nullptr) return;
    Message& m = messages_[sending_[sending_front_]];
    if (!put_next_piece(m, *stream)) return;
    if (m.next_piece < m.pieces) continue;
    sending_front_ = (sending_front_ + 1) % static_cast<unsigned>(sending_.size());
    --sending_count_;
  }
}

StreamGroup::Stream* SendComm::least_loaded() noexcept {
  Stream* best = nullptr;
  for (Stream& s : streams()) {
    const bool is_full = s.unsent_bytes >= kMaxUnsentBytes || s.unsent_frames >= kMaxUnsentFrames;
    if (s.endpoint == nullptr || is_full) continue;
    if (best == nullptr || s.unsent_bytes / kLoadStep < best->unsent_bytes / kLoadStep) best = &s;
  }
  return best;
}

bool SendComm::put_next_piece(Message& m, Stream& stream) noexcept {
  const uint64_t offset = uint64_t{m.next_piece} * m.piece_bytes;
  const auto length = static_cast<uint32_t>(std::min<uint64_t>(m.piece_bytes, m.bytes - offset));
  const uint64_t load = wire::kHeaderBytes + length;
  const Status put = stream.endpoint->put(
      piece_header(m.sequence, m.slot, m.bytes, m.next_piece, m.piece_bytes, length), {},
      {m.data + offset, length}, cookie_of(static_cast<size_t>(&m - messages_.data()), load));
  if (!put.ok()) {
    if (put == Status(Errc::kClosed)) fail_group(Errc::kClosed, "receiver has closed the connection");
    return false;
  }
  stream.unsent_bytes += load;
  ++stream.unsent_frames;
  ++m.next_piece;
  ++m.unsent_pieces;
  poll_at_next_progress();
  return true;
}

void SendComm::complete_send(Stream& stream, transport::Cookie cookie) noexcept {
  const uint64_t index = cookie & 0xff;
  if (index == kNoMessage) return;
  stream.unsent_bytes -= cookie >> 8;
  --stream.unsent_frames;
  Message& m = messages_[index];
  if (--m.unsent_pieces == 0 && m.next_piece == m.pieces) {
    m.done = true;
    --unfinished_;
    grants_[m.slot].state = Grant::State::kNone;
  }
  put_pieces();
}

transport::ReceiveTarget SendComm::accept_header(Stream& stream, const wire::FrameHeader& h) noexcept {
  const auto sequence = static_cast<unsigned long long>(h.sequence);
  if (h.type != wire::FrameType::kGrant || &stream != streams().data())
    return reject(Errc::kUnexpectedMessage, "unexpected frame %s from the receiver", wire::to_string(h.type));
  if (!unused_fields_are_zero(h) || h.fingerprint != 0)
    return reject(Errc::kBadField, "grant %llu with a nonzero reserved field", sequence);
  if (h.sequence != next_grant_)
    return reject(Errc::kBadSequence, "grant %llu, expected grant %llu", sequence,
                  static_cast<unsigned long long>(next_grant_));
  if (h.slot >= grants_.size() || grants_[h.slot].state != Grant::State::kNone)
    return reject(Errc::kBadSlot, "grant %llu for slot %u, which is in use", sequence, unsigned{h.slot});
  return {.status = Errc::kOk};
}

void SendComm::complete_frame(const wire::FrameHeader& h) noexcept {
  ++next_grant_;
  ++open_grants_;
  grants_[h.slot] = {.state = Grant::State::kOpen,
                     .tag = static_cast<int>(h.op_id),
                     .sequence = h.sequence,
                     .bytes = h.chunk};
  if (waiting_ == 0) return;
  Message* oldest = nullptr;
  for (Message& m : messages_) {
    const bool fits = m.in_use && m.awaits_grant && m.tag == grants_[h.slot].tag;
    if (fits && (oldest == nullptr || m.order < oldest->order)) oldest = &m;
  }
  if (oldest != nullptr) use_grant(h.slot, *oldest);
}

void SendComm::on_stream_end() noexcept {
  peer_ended_ = true;
  if (unfinished_ > 0) fail_group(Errc::kClosed, "receiver closed the connection with sends open");
}

}  // namespace sluice::nccl::net
