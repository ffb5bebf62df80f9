#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "core/status.h"
#include "core/units.h"
#include "nccl_plugin/host/repeated_errors.h"
#include "nccl_plugin/host/settings.h"
#include "nccl_plugin/net/connected_streams.h"
#include "nccl_plugin/net/limits.h"
#include "nccl_plugin/net/peer_timeout.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::nccl::net {

// StreamGroup is the common part of SendComm and RecvComm: the streams in a context of their own, driven by
// test(), and their common end.
//
// progress() polls the context if a put happened since the last poll or the last poll did work; otherwise at
// most once per kIdlePause. So a loop of test() over many idle requests reads the clock for each request, and
// makes one system call per comm and microsecond.
class StreamGroup {
 public:
  static constexpr Nanos kIdlePause = kMicrosecond;

  virtual ~StreamGroup() = default;
  StreamGroup(const StreamGroup&) = delete;
  StreamGroup& operator=(const StreamGroup&) = delete;

  // kOk while the group works; then the first reason for its end.
  [[nodiscard]] Status error() const noexcept { return error_; }
  // Returns `status`, the result of a call of NCCL. Logs each kind of failure once.
  Status log_failure(const char* call, Status status) noexcept;
  void log_suppressed_failures() noexcept;
  // Makes progress on all requests, or does nothing (see above).
  void progress() noexcept;

  [[nodiscard]] unsigned open_requests() const noexcept { return open_requests_; }
  void remove_request() noexcept { --open_requests_; }

  // Closes all streams at once. With kReset the peer sees broken connections, otherwise an orderly end. No
  // callback uses the user's memory after this call.
  void close_streams(Errc reason) noexcept;
  // Shuts down all streams after their queued frames. Logs nothing from then on. Poll until open_streams() is
  // 0.
  void begin_shutdown() noexcept;
  void poll(Nanos now) noexcept;
  [[nodiscard]] size_t open_streams() const noexcept { return open_streams_; }
  [[nodiscard]] bool uses_rdma() const noexcept { return rdma_streams_ > 0; }
  [[nodiscard]] bool uses_rdma_only() const noexcept { return rdma_streams_ == stream_count_; }

 protected:
  struct Stream final : transport::Handler {
    StreamGroup* group = nullptr;
    transport::Endpoint* endpoint = nullptr;  // null once closed
    // Frames put and not completed. Updated by the callers of put() and by complete_send().
    uint64_t unsent_bytes = 0;
    unsigned unsent_frames = 0;
    // The socket, for read_ack_state(); -1 with a queue pair, because its device detects a lost peer.
    int fd = -1;
    PeerTimeout peer_timeout;
    transport::ReceiveTarget on_header(transport::Endpoint& ep, const wire::FrameHeader& header,
                                       std::span<const std::byte> extensions) noexcept override;
    void on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                  std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept override;
    void on_sent(transport::Endpoint& ep, transport::Cookie cookie, Status status) noexcept override;
    void on_closed(transport::Endpoint& ep, Errc reason) noexcept override;
  };

  // `action` is for messages: "send to", "receive from".
  explicit StreamGroup(const char* action) : name_(action) {}
  [[nodiscard]] Result<void> adopt(ConnectedStreams connected, const transport::EndpointOptions& options);

  [[nodiscard]] std::span<Stream> streams() noexcept { return {streams_.data(), stream_count_}; }
  void add_request() noexcept { ++open_requests_; }
  // Makes the next progress() poll.
  void poll_at_next_progress() noexcept { next_poll_ = 0; }

  // Ends the group and logs `text`, once. Closes the streams unless `close_now` is false.
  void fail_group(Errc reason, const char* text, bool close_now = true) noexcept;
  // Ends the group for an invalid frame of the peer. Returns the code for on_header().
  [[gnu::format(printf, 3, 4)]] transport::ReceiveTarget reject(Errc code, const char* format, ...) noexcept;

  [[nodiscard]] virtual transport::ReceiveTarget accept_header(Stream& stream,
                                                               const wire::FrameHeader& h) noexcept = 0;
  virtual void complete_frame(const wire::FrameHeader& h) noexcept = 0;
  virtual void complete_send(Stream& stream, transport::Cookie cookie) noexcept = 0;
  // The peer has shut down a stream. All streams are closed when open_streams() is 0.
  virtual void on_stream_end() noexcept = 0;

 private:
  void on_stream_closed(Stream& stream, Errc reason) noexcept;
  void check_peer_timeouts(Nanos now) noexcept;

  std::string name_;  // "send to ADDRESS"
  Status error_;
  RepeatedErrors failures_;
  bool shutting_down_ = false;
  unsigned open_requests_ = 0;
  Nanos next_poll_ = 0;
  Nanos next_timeout_check_ = 0;
  unsigned stream_count_ = 0;
  unsigned rdma_streams_ = 0;  // of stream_count_
  size_t open_streams_ = 0;
  std::array<Stream, kMaxStreams> streams_;
  std::unique_ptr<transport::tcp::TcpContext> context_;  // declared last: destroyed before its handlers
};

}  // namespace sluice::nccl::net
