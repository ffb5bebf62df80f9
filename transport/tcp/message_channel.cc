#include "transport/tcp/message_channel.h"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "core/clock.h"
#include "core/crc32c.h"
#include "transport/transport.h"

namespace sluice::transport::tcp {
namespace {

// The memory for a piece that has begun to arrive grows by so much.
constexpr size_t kLeastPiece = 16 * 1024;
constexpr Nanos kStalledPause = 20 * kMillisecond;

// One system call for header and payload, as far as the socket takes them.
std::array<iovec, 2> blocks_of(std::span<const std::byte> header, std::span<const std::byte> piece) noexcept {
  return {{{.iov_base = const_cast<std::byte*>(header.data()), .iov_len = header.size()},
           {.iov_base = const_cast<std::byte*>(piece.data()), .iov_len = piece.size()}}};
}

}  // namespace

void MessageChannel::begin_body(uint64_t bytes) noexcept {
  constexpr Nanos kNoLimit = std::numeric_limits<Nanos>::max() / 4;
  const double at_rate =
      static_cast<double>(bytes) / static_cast<double>(limits_.slowest_rate) * static_cast<double>(kSecond);
  const bool is_limited = limits_.time > 0 && at_rate < static_cast<double>(kNoLimit);
  body_left_ = is_limited ? limits_.time + static_cast<Nanos>(at_rate) : kNoLimit;
}

Nanos MessageChannel::frame_deadline(Nanos now) const noexcept {
  return now + std::min(limits_.frame, body_left_);
}

// Calls `each` with the offset and the size of each piece, until an error.
template <typename Each>
Status MessageChannel::for_pieces(uint64_t bytes, const Each& each) {
  begin_body(bytes);
  for (uint64_t offset = 0; offset < bytes; offset += wire::kModelDataBytes) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(bytes - offset, wire::kModelDataBytes));
    if (const Status s = each(offset, size); !s.ok()) return s;
  }
  return {};
}

void MessageChannel::release_buffers() noexcept {
  body_ = {};
  piece_ = {};
  unsent_ = {};
}

Status MessageChannel::receive_header(const Deadline& until) {
  std::array<std::byte, wire::kHeaderBytes> raw;
  std::array<std::byte, kMaxExtensionBytes> area;
  if (const Status s = read_exact(socket_, raw, until); !s.ok()) return s;
  if (const Status s = wire::decode_header(raw, header_); !s.ok()) return s;
  if (header_.extension_bytes() > area.size()) return Errc::kBadExtension;
  const auto extensions = std::span(area).first(header_.extension_bytes());
  if (const Status s = read_exact(socket_, extensions, until); !s.ok()) return s;
  return wire::verify_header(raw, extensions);
}

Status MessageChannel::wait(Nanos deadline) const {
  if (socket_.has_pending_bytes()) return {};
  return wait_ready(socket_.fd(), POLLIN, {deadline, interrupt_fd_});
}

Status MessageChannel::wait_writable(Nanos deadline) const {
  return wait_ready(socket_.fd(), POLLOUT, {deadline, interrupt_fd_});
}

Status MessageChannel::receive(Nanos deadline) {
  const Deadline until(deadline, interrupt_fd_);
  if (const Status s = receive_header(until); !s.ok()) return s;
  return wire::is_data(header_.type) ? Errc::kUnexpectedMessage : receive_message_body(until);
}

Status MessageChannel::receive_message_body(const Deadline& until) {
  body_.resize(header_.length);
  if (const Status s = read_exact(socket_, body_, until); !s.ok()) return s;
  if ((header_.flags & wire::kFlagPayloadCrc) != 0 && crc32c(body_) != header_.payload_crc)
    return Errc::kBadPayloadCrc;
  return {};
}

// Sends what is left of a frame. Once the peer takes nothing for a while, from a copy.
Status MessageChannel::send_rest(std::span<const std::byte> header, std::span<const std::byte> piece,
                                 const Deadline& until, const Stalled& stalled) {
  Status result;
  while (!header.empty() || !piece.empty()) {
    std::array<iovec, 2> blocks = blocks_of(header, piece);
    if (const ssize_t n = socket_.send(blocks); n >= 0) {
      const size_t of_header = std::min(static_cast<size_t>(n), header.size());
      header = header.subspan(of_header);
      piece = piece.subspan(static_cast<size_t>(n) - of_header);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Errc::kReset;
    const Nanos now = monotonic_now();
    if (now >= until.time) return Errc::kTimeout;
    const Nanos look = stalled ? std::min(until.time, now + kStalledPause) : until.time;
    const Status ready = wait_ready(socket_.fd(), POLLOUT, {look, until.interrupt_fd});
    if (!ready.ok() && ready != Errc::kTimeout) return ready;
    if (ready.ok() || !stalled || !result.ok()) continue;
    if (unsent_.empty()) {
      unsent_.assign(piece.begin(), piece.end());
      piece = unsent_;
    }
    result = stalled();
  }
  unsent_.clear();
  return result;
}

Status MessageChannel::send_piece(uint64_t offset, std::span<const std::byte> piece, const Stalled& stalled) {
  wire::FrameHeader header;
  header.type = wire::FrameType::kModelData;
  header.flags = wire::kFlagPayloadCrc;
  header.chunk = offset;
  header.length = static_cast<uint32_t>(piece.size());
  header.payload_crc = crc32c(piece);
  std::array<std::byte, wire::kHeaderBytes> raw;
  wire::encode_header(header, {}, raw);
  const Nanos begun = monotonic_now();
  const Status s = send_rest(raw, piece, {frame_deadline(begun), interrupt_fd_}, stalled);
  body_left_ -= monotonic_now() - begun;
  return s;
}

Status MessageChannel::receive_piece_header(uint64_t offset, size_t bytes, const Deadline& until) {
  if (const Status s = receive_header(until); !s.ok()) return s;
  if (header_.type == wire::FrameType::kFailed) {
    const Status s = receive_message_body(until);
    return s.ok() ? Errc::kAborted : s;
  }
  if (header_.type != wire::FrameType::kModelData) return Errc::kUnexpectedMessage;
  if (header_.chunk != offset) return Errc::kBadSequence;
  return header_.length == bytes ? Errc::kOk : Errc::kBadLength;
}

Status MessageChannel::check_piece(std::span<const std::byte> piece) const {
  const bool is_damaged =
      (header_.flags & wire::kFlagPayloadCrc) != 0 && crc32c(piece) != header_.payload_crc;
  return is_damaged ? Errc::kBadPayloadCrc : Errc::kOk;
}

Status MessageChannel::receive_piece(uint64_t offset, std::span<std::byte> piece) {
  const Nanos begun = monotonic_now();
  const Deadline until(frame_deadline(begun), interrupt_fd_);
  if (const Status s = receive_piece_header(offset, piece.size(), until); !s.ok()) return s;
  if (const Status s = read_exact(socket_, piece, until); !s.ok()) return s;
  body_left_ -= monotonic_now() - begun;
  return check_piece(piece);
}

Status MessageChannel::receive_growing(uint64_t offset, size_t bytes) {
  const Nanos begun = monotonic_now();
  const Deadline until(frame_deadline(begun), interrupt_fd_);
  if (const Status s = receive_piece_header(offset, bytes, until); !s.ok()) return s;
  for (size_t arrived = 0; arrived < bytes;) {
    const size_t next = std::min(bytes, std::max(piece_.size(), arrived + kLeastPiece));
    if (piece_.size() < next) piece_.resize(next);
    const auto part = std::span(piece_).subspan(arrived, next - arrived);
    if (const Status s = read_exact(socket_, part, until); !s.ok()) return s;
    arrived = next;
  }
  body_left_ -= monotonic_now() - begun;
  return check_piece(std::span(piece_).first(bytes));
}

Status MessageChannel::send_body(std::span<const std::byte> body, const Needed& needed,
                                 const Stalled& stalled) {
  return for_pieces(body.size(), [&](uint64_t offset, size_t size) {
    const Status s = needed ? needed(offset + size) : Status();
    return s.ok() ? send_piece(offset, body.subspan(offset, size), stalled) : s;
  });
}

Status MessageChannel::receive_body(std::span<std::byte> body, const Arrived& arrived) {
  return for_pieces(body.size(), [&](uint64_t offset, size_t size) {
    const Status s = receive_piece(offset, body.subspan(offset, size));
    if (s.ok() && arrived) arrived(offset + size);
    return s;
  });
}

Status MessageChannel::send_pieces(uint64_t bytes, const Fill& fill, const Stalled& stalled) {
  piece_.resize(static_cast<size_t>(std::min<uint64_t>(bytes, wire::kModelDataBytes)));
  return for_pieces(bytes, [&](uint64_t offset, size_t size) {
    const auto piece = std::span(piece_).first(size);
    const Status s = fill(offset, piece);
    return s.ok() ? send_piece(offset, piece, stalled) : s;
  });
}

Status MessageChannel::receive_pieces(uint64_t bytes, const Use& use) {
  return for_pieces(bytes, [&](uint64_t offset, size_t size) {
    const Status s = receive_growing(offset, size);
    return s.ok() ? use(offset, std::span(piece_).first(size)) : s;
  });
}

}  // namespace sluice::transport::tcp
