#include "nccl_plugin/net/greeting.h"

#include <sys/socket.h>

#include <cerrno>

#include "core/crc32c.h"

namespace sluice::nccl::net {
namespace {

template <typename M>
Status decode(std::span<const std::byte> frame, M& out) {
  const auto raw = frame.first<wire::kHeaderBytes>();
  const auto body = frame.subspan(wire::kHeaderBytes);
  wire::FrameHeader h;
  if (const Status s = wire::decode_header(raw, h); !s.ok()) return s;
  if (h.type != M::kType) return Errc::kUnexpectedMessage;
  if (h.ext_len8 != 0) return Errc::kBadExtension;
  if (h.length != body.size()) return Errc::kBadLength;
  if (const Status s = wire::verify_header(raw, {}); !s.ok()) return s;
  if ((h.flags & wire::kFlagPayloadCrc) != 0 && crc32c(body) != h.payload_crc) return Errc::kBadPayloadCrc;
  return wire::decode_body(body, out);
}

}  // namespace

template <size_t N>
Status ExactBytes<N>::read(int fd) noexcept {
  while (filled_ < N) {
    const ssize_t n = ::recv(fd, bytes_.data() + filled_, N - filled_, MSG_DONTWAIT);
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
template class ExactBytes<kStreamBytes>;
template class ExactBytes<kAnswerBytes>;

Status decode_stream(std::span<const std::byte> frame, wire::Stream& out) {
  return decode(frame, out);
}
Status decode_answer(std::span<const std::byte> frame, wire::StreamAnswer& out) {
  return decode(frame, out);
}

Status send_frame(int fd, std::span<const std::byte> frame) noexcept {
  ssize_t n = 0;
  do {
    n = ::send(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(frame.size()) ? Errc::kOk : Errc::kReset;
}

}  // namespace sluice::nccl::net
