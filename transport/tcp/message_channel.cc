#include "transport/tcp/message_channel.h"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "core/clock.h"
#include "core/crc32c.h"
#include "transport/transport.h"

namespace sluice::transport::tcp {
namespace {

// Calls `each` with the offset and the size of each piece, until an error.
template <typename Each>
Status for_pieces(uint64_t bytes, const Each& each) {
  for (uint64_t offset = 0; offset < bytes; offset += wire::kModelDataBytes) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(bytes - offset, wire::kModelDataBytes));
    if (const Status s = each(offset, size); !s.ok()) return s;
  }
  return {};
}

}  // namespace

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

Status MessageChannel::receive(Nanos deadline) {
  const Deadline until(deadline, interrupt_fd_);
  if (const Status s = receive_header(until); !s.ok()) return s;
  if (wire::is_data(header_.type)) return Errc::kUnexpectedMessage;
  body_.resize(header_.length);
  if (const Status s = read_exact(socket_, body_, until); !s.ok()) return s;
  if ((header_.flags & wire::kFlagPayloadCrc) != 0 && crc32c(body_) != header_.payload_crc)
    return Errc::kBadPayloadCrc;
  return {};
}

Status MessageChannel::send_piece(uint64_t offset, std::span<const std::byte> piece) {
  wire::FrameHeader header;
  header.type = wire::FrameType::kModelData;
  header.flags = wire::kFlagPayloadCrc;
  header.chunk = offset;
  header.length = static_cast<uint32_t>(piece.size());
  header.payload_crc = crc32c(piece);
  std::array<std::byte, wire::kHeaderBytes> raw;
  wire::encode_header(header, {}, raw);
  // One system call for header and payload, as far as the socket takes them.
  std::array<iovec, 2> blocks{{{.iov_base = raw.data(), .iov_len = raw.size()},
                               {.iov_base = const_cast<std::byte*>(piece.data()), .iov_len = piece.size()}}};
  const Deadline until(monotonic_now() + stall_, interrupt_fd_);
  ssize_t n = -1;
  while ((n = socket_.send(blocks)) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Errc::kReset;
    if (const Status ready = wait_ready(socket_.fd(), POLLOUT, until); !ready.ok()) return ready;
  }
  const auto sent = static_cast<size_t>(n);
  if (sent < raw.size()) {
    if (const Status s = write_all(socket_, std::span(raw).subspan(sent), until); !s.ok()) return s;
    return write_all(socket_, piece, until);
  }
  return write_all(socket_, piece.subspan(sent - raw.size()), until);
}

Status MessageChannel::receive_piece(uint64_t offset, std::span<std::byte> piece) {
  const Deadline until(monotonic_now() + stall_, interrupt_fd_);
  if (const Status s = receive_header(until); !s.ok()) return s;
  if (header_.type != wire::FrameType::kModelData) return Errc::kUnexpectedMessage;
  if (header_.chunk != offset) return Errc::kBadSequence;
  if (header_.length != piece.size()) return Errc::kBadLength;
  if (const Status s = read_exact(socket_, piece, until); !s.ok()) return s;
  if ((header_.flags & wire::kFlagPayloadCrc) != 0 && crc32c(piece) != header_.payload_crc)
    return Errc::kBadPayloadCrc;
  return {};
}

Status MessageChannel::send_body(std::span<const std::byte> body, const Needed& needed) {
  return for_pieces(body.size(), [&](uint64_t offset, size_t size) {
    const Status s = needed ? needed(offset + size) : Status();
    return s.ok() ? send_piece(offset, body.subspan(offset, size)) : s;
  });
}

Status MessageChannel::receive_body(std::span<std::byte> body, const Arrived& arrived) {
  return for_pieces(body.size(), [&](uint64_t offset, size_t size) {
    const Status s = receive_piece(offset, body.subspan(offset, size));
    if (s.ok() && arrived) arrived(offset + size);
    return s;
  });
}

Status MessageChannel::send_pieces(uint64_t bytes, const Fill& fill) {
  piece_.resize(static_cast<size_t>(std::min<uint64_t>(bytes, wire::kModelDataBytes)));
  return for_pieces(bytes, [&](uint64_t offset, size_t size) {
    const auto piece = std::span(piece_).first(size);
    const Status s = fill(offset, piece);
    return s.ok() ? send_piece(offset, piece) : s;
  });
}

Status MessageChannel::receive_pieces(uint64_t bytes, const Use& use) {
  piece_.resize(static_cast<size_t>(std::min<uint64_t>(bytes, wire::kModelDataBytes)));
  return for_pieces(bytes, [&](uint64_t offset, size_t size) {
    const auto piece = std::span(piece_).first(size);
    const Status s = receive_piece(offset, piece);
    return s.ok() ? use(offset, piece) : s;
  });
}

}  // namespace sluice::transport::tcp
