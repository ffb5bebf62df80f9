#include "gpu_client/engine/control/control_connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "core/crc32c.h"

namespace sluice::engine {

ControlConnection::ControlConnection(transport::tcp::Socket socket, std::string name, uint32_t handle)
    : socket_(std::move(socket)), name_(std::move(name)), handle_(handle), in_(kMaxFrame) {}

Status ControlConnection::grow_target() {
  const wire::ConstHeaderBytes raw(in_.data(), wire::kHeaderBytes);
  if (!header_known_) {
    if (const Status s = wire::decode_header(raw, header_); !s.ok()) return s;
    if (wire::is_data(header_.type)) return Errc::kUnexpectedMessage;
    if (header_.extension_bytes() > transport::kMaxExtensionBytes) return Errc::kBadExtension;
    header_known_ = true;
    target_ = wire::kHeaderBytes + header_.extension_bytes();
  }
  if (received_ < target_ || target_ > wire::kHeaderBytes + header_.extension_bytes()) return Errc::kOk;
  const std::span extensions(in_.data() + wire::kHeaderBytes, header_.extension_bytes());
  if (const Status s = wire::verify_header(raw, extensions); !s.ok()) return s;
  target_ += header_.length;
  return Errc::kOk;
}

Status ControlConnection::receive(Frame& out) {
  for (;;) {
    if (received_ == target_) {
      const size_t before = target_;
      if (const Status s = grow_target(); !s.ok()) return s;
      if (target_ == before) {
        const size_t prefix = wire::kHeaderBytes + header_.extension_bytes();
        out = {.header = header_, .body = {in_.data() + prefix, header_.length}};
        received_ = 0, target_ = wire::kHeaderBytes, header_known_ = false;
        const bool checked = (out.header.flags & wire::kFlagPayloadCrc) != 0;
        if (checked && crc32c(out.body) != out.header.payload_crc) return Errc::kBadPayloadCrc;
        return Errc::kOk;
      }
    }
    iovec block{.iov_base = in_.data() + received_, .iov_len = target_ - received_};
    const ssize_t n = socket_.receive({&block, 1});
    if (n > 0) {
      received_ += static_cast<size_t>(n);
    } else if (n == 0) {
      return received_ == 0 ? Errc::kClosed : Errc::kReset;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Errc::kWouldBlock;
    } else if (errno != EINTR) {
      return Errc::kReset;
    }
  }
}

Status ControlConnection::send_bytes(std::vector<std::byte> bytes) {
  if (unsent_.size() + bytes.size() > kMaxUnsent) return Errc::kWouldBlock;
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  return flush();
}

Status ControlConnection::flush() {
  size_t sent = 0;
  Status status;
  while (sent < unsent_.size()) {
    iovec block{.iov_base = unsent_.data() + sent, .iov_len = unsent_.size() - sent};
    const ssize_t n = socket_.send({&block, 1});
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) status = Errc::kReset;
      break;
    }
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
  return status;
}

void ControlConnection::shutdown() noexcept {
  if (!socket_.shutdown_send()) ::shutdown(socket_.fd(), SHUT_WR);  // the socket has no room for close_notify
}

void ControlConnection::close() noexcept {
  std::vector<std::byte>().swap(in_);
  socket_ = transport::tcp::Socket();
  unsent_.clear();
}

}  // namespace sluice::engine
