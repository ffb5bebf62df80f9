#include "gpu_client/local/packet_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "gpu_client/local/meeting_messages.h"

namespace sluice::local {
namespace {

struct Address {
  explicit Address(const std::string& name) noexcept {
    address.sun_family = AF_UNIX;
    // The first byte stays zero: an abstract name.
    const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), length);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t size = 0;
};

Result<Socket> open_socket() {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail(Errc::kSystem, std::string("cannot create a Unix socket: ") + std::strerror(errno));
  return Socket(fd);
}

union ControlBuffer {
  cmsghdr header;
  std::array<std::byte, CMSG_SPACE(sizeof(int) * 4)> bytes;  // room for more than is expected, to close them
};

// Takes the first descriptor of a message and closes the others.
Socket take_descriptor(msghdr& message) noexcept {
  Socket first;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      Socket taken(fd);
      if (!first.valid()) first = std::move(taken);
    }
  }
  return first;
}

}  // namespace

Result<Socket> listen_at(const std::string& name, int backlog) {
  SLUICE_ASSIGN_OR_RETURN(socket, open_socket());
  const Address address(name);
  if (::bind(socket.fd(), address.get(), address.size) != 0) {
    return fail(errno == EADDRINUSE ? Errc::kAddressInUse : Errc::kSystem,
                std::string("cannot bind a Unix socket: ") + std::strerror(errno));
  }
  if (::listen(socket.fd(), backlog) != 0)
    return fail(Errc::kSystem, std::string("cannot listen at a Unix socket: ") + std::strerror(errno));
  return std::move(socket);
}

Result<Socket> connect_at(const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(socket, open_socket());
  const Address address(name);
  if (::connect(socket.fd(), address.get(), address.size) != 0) {
    // The name is bound but nobody listens yet, it has been released, or the backlog is full.
    const bool may_retry = errno == ECONNREFUSED || errno == EAGAIN;
    return fail(may_retry ? Errc::kReset : Errc::kSystem,
                std::string("cannot connect to a Unix socket: ") + std::strerror(errno));
  }
  return std::move(socket);
}

Result<Socket> accept_from(const Socket& listener) {
  const int fd = ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) return Socket(fd);
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
    return fail(Errc::kSystem, std::string("cannot accept a rank of this host: ") + std::strerror(errno));
  return Socket();  // none, or one that has gone
}

PeerProcess peer_of(const Socket& socket) noexcept {
  ucred credentials{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof credentials;
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  return {.id = credentials.pid, .user = credentials.uid};
}

Status send_packet(const Socket& socket, const std::vector<std::byte>& bytes, int descriptor) {
  iovec block{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &block;
  message.msg_iovlen = 1;
  ControlBuffer control{};
  if (descriptor >= 0) {
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(sizeof descriptor);
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
  }
  const ssize_t sent = ::sendmsg(socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(bytes.size()) ? Errc::kOk : Errc::kReset;
}

Result<std::optional<Packet>> receive_packet(const Socket& socket) {
  Packet packet;
  packet.bytes.resize(kMaxPacket);
  iovec block{.iov_base = packet.bytes.data(), .iov_len = packet.bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &block;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  ssize_t received = ::recvmsg(socket.fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  // A peer that closes with unread packets resets the connection; its own last packets come after that.
  if (received < 0 && errno == ECONNRESET)
    received = ::recvmsg(socket.fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<Packet>();
  if (received <= 0) return fail(Errc::kReset, "connection closed");
  packet.descriptor = take_descriptor(message);
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    return fail(Errc::kSystem, std::string("cannot receive the shared memory: ") + std::strerror(EMFILE));
  if ((message.msg_flags & MSG_TRUNC) != 0) return fail(Errc::kBadLength, "malformed packet");
  packet.bytes.resize(static_cast<size_t>(received));
  return std::optional<Packet>(std::move(packet));
}

Result<Packet> wait_for_packet(const Socket& socket, const transport::tcp::Deadline& deadline) {
  for (;;) {
    auto packet = receive_packet(socket);
    if (!packet) return tl::unexpected(packet.error());
    if (*packet) return std::move(**packet);
    const Status ready = transport::tcp::wait_ready(socket.fd(), POLLIN, deadline);
    if (ready == Errc::kTimeout) return fail(ready.code(), "no answer in time");
    if (!ready.ok()) return fail(ready.code(), "interrupted");
  }
}

}  // namespace sluice::local
