#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/status.h"
#include "core/units.h"
#include "transport/tcp/secure_stream.h"
#include "transport/transport.h"

namespace sluice::transport::tcp {

// AttachedChannel is the part of another transport that belongs to a connection: a queue pair (rdma) or an
// end of a pipe (memory). It travels with the Socket to the context that adopts the socket. The kind tells
// that context whether the channel is its own.
class AttachedChannel {
 public:
  enum class Kind : uint8_t { kQueuePair, kPipe };
  explicit AttachedChannel(Kind kind) noexcept : kind_(kind) {}
  AttachedChannel(const AttachedChannel&) = delete;
  AttachedChannel& operator=(const AttachedChannel&) = delete;
  virtual ~AttachedChannel() = default;
  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  const Kind kind_;
};

// The resources of a Socket as plain values, for queues that hold trivial types. The holder owns them.
struct RawSocket {
  int fd = -1;
  SecureStream* tls = nullptr;
  AttachedChannel* channel = nullptr;
};

// Socket owns a file descriptor and, if present, the TLS stream and the channel of the connection.
class Socket {
 public:
  Socket() noexcept = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  explicit Socket(RawSocket raw) noexcept : fd_(raw.fd), tls_(raw.tls), channel_(raw.channel) {}
  Socket(Socket&& other) noexcept { *this = std::move(other); }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  // Passes the descriptor to the caller. The connection must have neither TLS nor a channel.
  [[nodiscard]] int release() noexcept;
  [[nodiscard]] RawSocket release_raw() noexcept;

  // Sends all further bytes through `stream`, whose handshake is complete.
  void attach_tls(std::unique_ptr<SecureStream> stream) noexcept { tls_ = std::move(stream); }
  [[nodiscard]] const SecureStream* tls() const noexcept { return tls_.get(); }

  // Sends all further frames through `channel`; null: through the socket.
  void attach_channel(std::unique_ptr<AttachedChannel> channel) noexcept { channel_ = std::move(channel); }
  [[nodiscard]] bool has_queue_pair() const noexcept { return has(AttachedChannel::Kind::kQueuePair); }
  [[nodiscard]] bool has_pipe() const noexcept { return has(AttachedChannel::Kind::kPipe); }
  [[nodiscard]] bool has_channel() const noexcept { return channel_ != nullptr; }
  [[nodiscard]] std::unique_ptr<AttachedChannel> release_channel() noexcept { return std::move(channel_); }

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
  // See Endpoint::path_stats(). All 0 when the kernel does not report it.
  [[nodiscard]] PathStats path_stats() const noexcept;
  // See Endpoint::network_limited_time(). 0 when the kernel does not report it.
  [[nodiscard]] Nanos network_limited_time() const noexcept;

 private:
  [[nodiscard]] bool has(AttachedChannel::Kind kind) const noexcept {
    return channel_ != nullptr && channel_->kind() == kind;
  }

  int fd_ = -1;
  std::unique_ptr<SecureStream> tls_;
  std::unique_ptr<AttachedChannel> channel_;
};

// The reason to close a connection after a socket call failed with `error`. ETIMEDOUT (unanswered probes or
// unacknowledged bytes) is kTimeout, because it shows a silent path and not a closed peer.
[[nodiscard]] Errc close_reason(int error) noexcept;

}  // namespace sluice::transport::tcp
