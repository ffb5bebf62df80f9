// What both ends of a pair have in common: the streams in a context of their own, driven by test(), and the
// one end of all of them.
//
// When it polls: whenever something was put since the last poll, or the last poll did something; else at most
// every kIdlePause. So a loop of test() over many idle requests costs a read of the clock each, and a system
// call per comm and microsecond.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "core/status.h"
#include "core/units.h"
#include "nccl_plugin/net/greeted_streams.h"
#include "nccl_plugin/net/limits.h"
#include "nccl_plugin/net/silence.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::nccl::net {

class StreamGroup {
 public:
  static constexpr Nanos kIdlePause = kMicrosecond;

  virtual ~StreamGroup() = default;
  StreamGroup(const StreamGroup&) = delete;
  StreamGroup& operator=(const StreamGroup&) = delete;

  // kOk while it lives, then why it ended: first reason wins.
  [[nodiscard]] Status error() const noexcept { return error_; }
  // Progress of all requests, or nothing (see above).
  void drive() noexcept;

  [[nodiscard]] unsigned open_requests() const noexcept { return open_requests_; }
  void request_over() noexcept { --open_requests_; }

  // All streams end now. The peer sees them break with kReset, else end. No callback of the user's memory
  // after it.
  void cut(Errc reason) noexcept;
  // All streams end in order, after what is queued; over when streams_left() is 0. poll() drives it, nothing
  // is logged.
  void begin_ending() noexcept;
  void poll(Nanos now) noexcept;
  [[nodiscard]] size_t streams_left() const noexcept { return streams_left_; }
  [[nodiscard]] bool any_over_rdma() const noexcept { return over_rdma_ > 0; }
  [[nodiscard]] bool all_over_rdma() const noexcept { return over_rdma_ == stream_count_; }

 protected:
  struct Stream final : transport::Handler {
    StreamGroup* group = nullptr;
    transport::Endpoint* endpoint = nullptr;  // null once closed
    // Put and not given back. Kept by who puts and by sent().
    uint64_t unsent_bytes = 0;
    unsigned unsent_frames = 0;
    // The endpoint's, to ask the kernel; none of a queue pair, whose device gives up by itself.
    int fd = -1;
    Silence silence;
    transport::Placement on_header(transport::Endpoint& ep, const wire::FrameHeader& header,
                                   std::span<const std::byte> extensions) noexcept override;
    void on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                  std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept override;
    void on_sent(transport::Endpoint& ep, transport::Cookie cookie, Status status) noexcept override;
    void on_closed(transport::Endpoint& ep, Errc reason) noexcept override;
  };

  // `what` is for messages: "send to", "receive from".
  explicit StreamGroup(const char* what) noexcept : what_(what) {}
  [[nodiscard]] Result<void> adopt(GreetedStreams greeted, const transport::EndpointOptions& options);

  [[nodiscard]] std::span<Stream> streams() noexcept { return {streams_.data(), stream_count_}; }
  void request_taken() noexcept { ++open_requests_; }
  [[nodiscard]] bool ending() const noexcept { return ending_; }
  // The next drive() polls, however soon.
  void poll_soon() noexcept { next_poll_ = 0; }

  // Ends the group for `reason` and says so, once. The streams are cut, unless `cut_now` is false.
  void end(Errc reason, const char* text, bool cut_now = true) noexcept;
  // Says what a peer's frame got wrong (once), and returns the code for on_header().
  [[gnu::format(printf, 3, 4)]] transport::Placement refuse(Errc code, const char* format, ...) noexcept;

  [[nodiscard]] virtual transport::Placement header(Stream& stream, const wire::FrameHeader& h) noexcept = 0;
  virtual void frame(const wire::FrameHeader& h) noexcept = 0;
  virtual void sent(Stream& stream, transport::Cookie cookie) noexcept = 0;
  // The peer ended this stream in order, or (streams_left() is 0 then) all of them.
  virtual void stream_ended() noexcept = 0;

 private:
  void closed(Stream& stream, Errc reason) noexcept;
  void look_for_silence(Nanos now) noexcept;

  const char* const what_;
  std::string peer_;
  Status error_;
  bool ending_ = false;  // by close(): nothing that happens now is worth a word
  unsigned open_requests_ = 0;
  Nanos next_poll_ = 0;
  Nanos next_look_ = 0;  // for silence
  unsigned stream_count_ = 0;
  unsigned over_rdma_ = 0;  // of them
  size_t streams_left_ = 0;
  std::array<Stream, kMaxStreams> streams_;
  std::unique_ptr<transport::tcp::TcpContext> context_;  // ends before the handlers
};

}  // namespace sluice::nccl::net
