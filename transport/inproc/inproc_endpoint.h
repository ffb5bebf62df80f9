#pragma once

#include <array>
#include <memory>
#include <string>

#include "transport/inproc/connection.h"
#include "transport/transport.h"

namespace sluice::transport::inproc {

// InprocEndpoint is one end of a connection within this process. Owner thread of its own context.
class InprocEndpoint final : public Endpoint {
 public:
  InprocEndpoint(std::shared_ptr<Connection> connection, unsigned side, Handler& handler,
                 const EndpointOptions& options, std::string peer);
  ~InprocEndpoint();  // no callbacks; the peer sees an orderly end

  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload, Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override;
  void shutdown() noexcept override;
  bool all_sent() const noexcept override;
  const EndpointCounters& counters() const noexcept override { return counters_; }
  std::string_view peer() const noexcept override { return peer_; }

  // Completes sent frames and receives. Called by poll() of the context. Returns the amount of work done.
  unsigned poll(size_t budget_bytes) noexcept;
  [[nodiscard]] bool closing() const noexcept { return closing_; }
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
  [[nodiscard]] bool peek(IncomingFrame& frame) noexcept;
  [[nodiscard]] Status check(IncomingFrame& frame) noexcept;
  [[nodiscard]] bool copy_payload(IncomingFrame& frame) noexcept;
  void check_peer_end() noexcept;

  Pipe& out() const noexcept { return connection_->pipes[side_]; }
  Pipe& in() const noexcept { return connection_->pipes[1 - side_]; }

  const std::shared_ptr<Connection> connection_;
  const unsigned side_;
  Handler& handler_;
  const EndpointOptions options_;
  const std::string peer_;
  EndpointCounters counters_;
  bool ended_ = false;  // after shutdown() or the peer's end: put() returns kClosed
  bool closing_ = false;
  Errc reason_ = Errc::kOk;
};

}  // namespace sluice::transport::inproc
