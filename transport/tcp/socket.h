#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/status.h"
#include "transport/tcp/secure_stream.h"

namespace sluice::transport::tcp {

// AttachedQueuePair is the part of another transport that belongs to a connection (rdma: a queue pair). It
// travels with the Socket to the context that adopts the socket; that context must be of the same transport.
class AttachedQueuePair {
 public:
  AttachedQueuePair() = default;
  AttachedQueuePair(const AttachedQueuePair&) = delete;
  AttachedQueuePair& operator=(const AttachedQueuePair&) = delete;
  virtual ~AttachedQueuePair() = default;
};

// The resources of a Socket as plain values, for queues that hold trivial types. The holder owns them.
struct RawSocket {
  int fd = -1;
  SecureStream* tls = nullptr;
  AttachedQueuePair* queue_pair = nullptr;
};

// Socket owns a file descriptor and, if present, the TLS stream and the queue pair of the connection.
class Socket {
 public:
  Socket() noexcept = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  explicit Socket(RawSocket raw) noexcept : fd_(raw.fd), tls_(raw.tls), queue_pair_(raw.queue_pair) {}
  Socket(Socket&& other) noexcept { *this = std::move(other); }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  // Passes the descriptor to the caller. The connection must have neither TLS nor a queue pair.
  [[nodiscard]] int release() noexcept;
  [[nodiscard]] RawSocket release_raw() noexcept;

  // Sends all further bytes through `stream`, whose handshake is complete.
  void attach_tls(std::unique_ptr<SecureStream> stream) noexcept { tls_ = std::move(stream); }
  [[nodiscard]] const SecureStream* tls() const noexcept { return tls_.get(); }

  // Sends all further frames through `queue_pair`.
  void attach_queue_pair(std::unique_ptr<AttachedQueuePair> queue_pair) noexcept {
    queue_pair_ = std::move(queue_pair);
  }
  [[nodiscard]] bool has_queue_pair() const noexcept { return queue_pair_ != nullptr; }
  [[nodiscard]] std::unique_ptr<AttachedQueuePair> release_queue_pair() noexcept {
    return std::move(queue_pair_);
  }

  // recvmsg and sendmsg, through TLS if attached. They never block and never raise SIGPIPE. These are the
  // calls of the data path: without TLS they add one pointer test to the system call.
  [[nodiscard]] ssize_t receive(std::span<iovec> blocks) const noexcept {
    if (tls_) return tls_->receive(blocks);
    msghdr message{};
    message.msg_iov = blocks.data();
    message.msg_iovlen = blocks.size();
    return ::recvmsg(fd_, &message, MSG_DONTWAIT);
  }
  [[nodiscard]] ssize_t send(std::span<iovec> blocks) const noexcept {
    if (tls_) return tls_->send(blocks);
    msghdr message{};
    message.msg_iov = blocks.data();
    message.msg_iovlen = blocks.size();
    return ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // After a receive() of fewer bytes than requested: true when the next receive() must wait for an event.
  [[nodiscard]] bool is_drained() const noexcept { return !tls_ || !tls_->has_ended(); }
  // True when TLS may hold bytes that no event announces. Only a receive() can tell for certain.
  [[nodiscard]] bool has_pending_bytes() const noexcept { return tls_ && tls_->has_pending_bytes(); }

  // Tells the peer that no more bytes follow. False: no room for the close_notify; call again when writable.
  [[nodiscard]] bool shutdown_send() const noexcept;
  // Ends the connection in order. Reaches the peer even if a forked child holds a copy of the descriptor.
  void shutdown() const noexcept;
  // Resets the connection at once.
  void reset() const noexcept;

  // The number of lost packets of the connection: packets that this host retransmitted, and packets that
  // arrived after a gap. 0 when the kernel does not report it. Gaps do not count where sent packets were seen
  // to be reordered, because received packets may be reordered too.
  [[nodiscard]] uint64_t lost_packets() const noexcept;

 private:
  int fd_ = -1;
  std::unique_ptr<SecureStream> tls_;
  std::unique_ptr<AttachedQueuePair> queue_pair_;
};

// The reason to close a connection after a socket call failed with `error`. ETIMEDOUT (unanswered probes or
// unacknowledged bytes) is kTimeout, because it shows a silent path and not a closed peer.
[[nodiscard]] Errc close_reason(int error) noexcept;

}  // namespace sluice::transport::tcp
