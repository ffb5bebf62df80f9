#include "nccl_plugin/net/handshake_frame.h"

#include <sys/socket.h>

#include <cerrno>

#include "core/crc32c.h"

namespace sluice::nccl::net {

Status HandshakeFrame::fill(int fd, size_t size) noexcept {
  while (filled_ < size) {
    const ssize_t n = ::recv(fd, bytes_.data() + filled_, size - filled_, MSG_DONTWAIT);
    if (n == 0) return Errc::kClosed;
    if (n > 0) {
      filled_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Errc::kWouldBlock;
    } else if (errno != EINTR) {
      return Errc::kReset;
    }
  }
  return Errc::kOk;
}

Status HandshakeFrame::read(int fd) noexcept {
  if (size_ == 0) {
    if (const Status s = fill(fd, wire::kHeaderBytes); !s.ok()) return s;
    wire::FrameHeader h;
    if (const Status s = wire::decode_header(std::span(bytes_).first<wire::kHeaderBytes>(), h); !s.ok())
      return s;
    if (h.ext_len8 != 0) return Errc::kBadExtension;
    if (h.length > kMaxHandshakeFrameBytes - wire::kHeaderBytes) return Errc::kBadLength;
    size_ = wire::kHeaderBytes + h.length;
  }
  return fill(fd, size_);
}

template <typename Message>
Status decode_message(std::span<const std::byte> frame, Message& out) {
  const auto raw = frame.first<wire::kHeaderBytes>();
  const auto body = frame.subspan(wire::kHeaderBytes);
  wire::FrameHeader h;
  if (const Status s = wire::decode_header(raw, h); !s.ok()) return s;
  if (h.type != Message::kType) return Errc::kUnexpectedMessage;
  if (const Status s = wire::verify_header(raw, {}); !s.ok()) return s;
  if ((h.flags & wire::kFlagPayloadCrc) != 0 && crc32c(body) != h.payload_crc) return Errc::kBadPayloadCrc;
  return wire::decode_body(body, out);
}
template Status decode_message(std::span<const std::byte>, wire::StreamAnswer&);
template Status decode_message(std::span<const std::byte>, wire::Pair&);
template Status decode_message(std::span<const std::byte>, wire::Paired&);

Status decode_stream_offer(std::span<const std::byte> frame, wire::StreamOffer& out) {
  wire::Stream stream;
  const Status s = decode_message(frame, stream);
  if (s == Status(Errc::kUnexpectedMessage)) return decode_message(frame, out);
  if (s.ok()) out = {.stream = stream};
  return s;
}

Status send_frame(int fd, std::span<const std::byte> frame) noexcept {
  ssize_t n = 0;
  do {
    n = ::send(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(frame.size()) ? Errc::kOk : Errc::kReset;
}

}  // namespace sluice::nccl::net
