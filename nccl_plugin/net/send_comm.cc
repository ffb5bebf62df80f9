#include "nccl_plugin/net/send_comm.h"

#include <algorithm>
#include <cstdio>

#include "core/clock.h"
#include "nccl_plugin/net/frames.h"

namespace sluice::nccl::net {
namespace {

// What a stream may hold that the socket has not taken: enough for one gathered send, so that the rest can
// still go to another stream.
constexpr uint64_t kUnsentBytes = kMiB;
constexpr unsigned kUnsentFrames = 48;
constexpr uint32_t kSendQueue = 64;
static_assert(kUnsentFrames < kSendQueue);
// Loads that differ by less are equal, and the first stream is taken: many small messages then leave in one
// system call.
constexpr uint64_t kLoadStep = 32 * kKiB;

// A cookie is the message's place and the bytes its piece counted for.
constexpr transport::Cookie cookie_of(size_t place, uint64_t bytes) noexcept {
  return place | bytes << 8;
}
constexpr uint64_t kNotice = 0xff;  // the place of a frame that is no message's
static_assert(abi::kMaxRequests < kNotice);

}  // namespace

SendComm::SendComm() noexcept : StreamGroup("send to") {
  for (Message& m : messages_) m.group = this;
}

Result<std::unique_ptr<SendComm>> SendComm::make(GreetedStreams greeted) {
  std::unique_ptr<SendComm> comm(new SendComm);
  // The receiver sends headers alone. A frame has no deadline: its sender may be stopped for a while, and TCP
  // knows when it is gone.
  if (auto adopted =
          comm->adopt(std::move(greeted), {.send_queue = kSendQueue, .max_payload = 0, .frame_deadline = 0});
      !adopted)
    return tl::unexpected(adopted.error());
  return comm;
}

Status SendComm::send(const std::byte* data, size_t bytes, int tag, Request** request) noexcept {
  *request = nullptr;
  if (!error().ok()) return error();
  if (peer_ended_) {
    end(Errc::kClosed, "the receiver has ended the connection");
    return error();
  }
  if (bytes > kMaxMessageBytes) return Errc::kInvalidArgument;
  const auto free = std::ranges::find(messages_, false, &Message::taken);
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
  m.taken = true;
  m.waits = true;
  request_taken();
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
      poll(monotonic_now());  // the peer shall read why; nobody polls after an error
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
  m.waits = false;
  g.state = Grant::State::kUsed;
  m.slot = slot;
  m.sequence = g.sequence;
  if (m.bytes > g.bytes) return tell_too_long(g, slot, m);
  const auto place = static_cast<uint8_t>(&m - messages_.data());
  sending_[(sending_front_ + sending_count_++) % sending_.size()] = place;
  put_pieces();
}

void SendComm::tell_too_long(const Grant& grant, uint16_t slot, const Message& m) noexcept {
  transport::Endpoint* const ep = streams()[0].endpoint;
  if (ep != nullptr) {
    // Not accepted: the peer sees the connection end instead.
    [[maybe_unused]] const Status put =
        ep->put(piece_header(m.sequence, slot, m.bytes, 0, m.piece_bytes, 0), {}, {}, cookie_of(kNotice, 0));
  }
  std::array<char, 160> text;
  std::snprintf(text.data(), text.size(),
                "message of %zu bytes where the receiver expects %llu at most: do the ranks differ in "
                "collective or in NCCL_ settings?",
                m.bytes, static_cast<unsigned long long>(grant.bytes));
  end(Errc::kBadLength, text.data(), false);  // cut by close(), so that the notice gets out
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
    if (s.endpoint == nullptr || s.unsent_bytes >= kUnsentBytes || s.unsent_frames >= kUnsentFrames) continue;
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
    if (put == Status(Errc::kClosed)) end(Errc::kClosed, "the receiver has ended the connection");
    return false;
  }
  stream.unsent_bytes += load;
  ++stream.unsent_frames;
  ++m.next_piece;
  ++m.unsent_pieces;
  poll_soon();
  return true;
}

void SendComm::sent(Stream& stream, transport::Cookie cookie) noexcept {
  const uint64_t place = cookie & 0xff;
  if (place == kNotice) return;
  stream.unsent_bytes -= cookie >> 8;
  --stream.unsent_frames;
  Message& m = messages_[place];
  if (--m.unsent_pieces == 0 && m.next_piece == m.pieces) {
    m.done = true;
    --unfinished_;
    grants_[m.slot].state = Grant::State::kNone;
  }
  put_pieces();
}

transport::Placement SendComm::header(Stream& stream, const wire::FrameHeader& h) noexcept {
  const auto sequence = static_cast<unsigned long long>(h.sequence);
  if (h.type != wire::FrameType::kGrant || &stream != streams().data())
    return refuse(Errc::kUnexpectedMessage, "%s from a receiver", wire::to_string(h.type));
  if (!other_fields_are_zero(h) || h.fingerprint != 0)
    return refuse(Errc::kBadField, "grant %llu with a field that has no meaning", sequence);
  if (h.sequence != next_grant_)
    return refuse(Errc::kBadSequence, "grant %llu where %llu comes next", sequence,
                  static_cast<unsigned long long>(next_grant_));
  if (h.slot >= grants_.size() || grants_[h.slot].state != Grant::State::kNone)
    return refuse(Errc::kBadSlot, "grant %llu of slot %u, which is in use", sequence, unsigned{h.slot});
  return {.status = Errc::kOk};
}

void SendComm::frame(const wire::FrameHeader& h) noexcept {
  ++next_grant_;
  ++open_grants_;
  grants_[h.slot] = {.state = Grant::State::kOpen,
                     .tag = static_cast<int>(h.op_id),
                     .sequence = h.sequence,
                     .bytes = h.chunk};
  if (waiting_ == 0) return;
  Message* oldest = nullptr;
  for (Message& m : messages_) {
    const bool fits = m.taken && m.waits && m.tag == grants_[h.slot].tag;
    if (fits && (oldest == nullptr || m.order < oldest->order)) oldest = &m;
  }
  if (oldest != nullptr) use_grant(h.slot, *oldest);
}

void SendComm::stream_ended() noexcept {
  peer_ended_ = true;
  if (unfinished_ > 0) end(Errc::kClosed, "the receiver ended the connection with sends open");
}

}  // namespace sluice::nccl::net
