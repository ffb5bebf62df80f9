#pragma once

#include <array>
#include <memory>
#include <string>

#include "transport/memory/pipe.h"
#include "transport/transport.h"

namespace sluice::transport::memory {

// PipeEndpoint is an Endpoint on one side of a Connection: of transport/memory, and of
// tests/support/transport/inproc, which differs in how its contexts sleep. Owner thread of its own context.
//
// The receiver copies each payload once, from the sender's buffer to the memory of on_header(). on_sent(kOk)
// means that the peer has received the frame.
class PipeEndpoint final : public Endpoint {
 public:
  struct Options {
    EndpointOptions endpoint;
    std::string peer;
    bool is_in_memory = true;  // false: the endpoint stands for one on a network
  };

  // Takes the connection of `end`. `waker` is that of the context, which must poll the endpoint after this.
  PipeEndpoint(PipeEnd& end, Handler& handler, Options options, std::shared_ptr<Waker> waker);
  ~PipeEndpoint();  // no callbacks; the peer sees an orderly end; waits while the peer copies a payload

  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload, Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override;
  void shutdown() noexcept override;
  bool all_sent() const noexcept override { return out().all_received(); }
  const EndpointCounters& counters() const noexcept override { return counters_; }
  std::string_view peer() const noexcept override { return options_.peer; }
  bool is_in_memory() const noexcept override { return options_.is_in_memory; }

  // Completes sent frames and receives. Called by poll() of the context. Returns the amount of work done.
  unsigned poll(size_t budget_bytes) noexcept;
  // True when the endpoint has closed and the peer reads no payload: finish() is due. While the peer reads
  // one, it notifies this side afterwards.
  [[nodiscard]] bool can_finish() const noexcept { return closing_ && !out().has_claim(); }
  // Calls on_sent() for all accepted frames, then on_closed(). Destroy the endpoint afterwards.
  void finish() noexcept;

 private:
  struct IncomingFrame {
    wire::FrameHeader header;
    std::array<std::byte, wire::kHeaderBytes + kMaxExtensionBytes> head;
    std::span<const std::byte> extensions;
    std::span<std::byte> payload;
  };

  unsigned complete_received() noexcept;
  bool receive_one(size_t& bytes) noexcept;
  [[nodiscard]] Status check(IncomingFrame& frame) noexcept;
  [[nodiscard]] bool copy_payload(IncomingFrame& frame) noexcept;
  void check_peer_end() noexcept;
  void notify_peer() noexcept { connection_->notify(1 - side_); }
  void notify_self() noexcept { connection_->notify(side_); }

  Pipe& out() const noexcept { return connection_->pipes[side_]; }
  Pipe& in() const noexcept { return connection_->pipes[1 - side_]; }

  const std::shared_ptr<Connection> connection_;
  const unsigned side_;
  Handler& handler_;
  const Options options_;
  EndpointCounters counters_;
  bool ended_ = false;  // after shutdown() or the peer's end: put() returns kClosed
  bool closing_ = false;
  Errc reason_ = Errc::kOk;
};

}  // namespace sluice::transport::memory
