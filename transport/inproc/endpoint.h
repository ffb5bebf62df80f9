#pragma once

#include <array>
#include <memory>
#include <string>

#include "transport/inproc/connection.h"
#include "transport/transport.h"

namespace sluice::transport::inproc {

class InprocEndpoint final : public Endpoint {
 public:
  InprocEndpoint(std::shared_ptr<Connection> connection, unsigned side, Handler& handler,
                 const EndpointOptions& options, std::string peer);
  ~InprocEndpoint();  // without callbacks; the peer sees an end in order

  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload, Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override;
  void shutdown() noexcept override;
  bool idle() const noexcept override;
  const EndpointCounters& counters() const noexcept override { return counters_; }
  std::string_view peer() const noexcept override { return peer_; }

  // The context's part of a turn. Returns how much was done.
  unsigned turn(size_t budget_bytes) noexcept;
  [[nodiscard]] bool closing() const noexcept { return closing_; }
  // Gives everything back and calls on_closed(). Destroy after it.
  void finish() noexcept;

 private:
  struct Arriving {
    wire::FrameHeader header;
    std::array<std::byte, wire::kHeaderBytes> raw;
    std::array<std::byte, kMaxExtensions> extension_bytes;
    std::span<const std::byte> extensions;
    std::span<std::byte> payload;
  };

  unsigned give_back_taken() noexcept;
  bool receive_one(size_t& bytes) noexcept;
  [[nodiscard]] bool peek(Arriving& frame) noexcept;
  [[nodiscard]] Status check(Arriving& frame) noexcept;
  [[nodiscard]] bool take(Arriving& frame) noexcept;
  void look_for_end() noexcept;

  Pipe& out() const noexcept { return connection_->pipes[side_]; }
  Pipe& in() const noexcept { return connection_->pipes[1 - side_]; }

  const std::shared_ptr<Connection> connection_;
  const unsigned side_;
  Handler& handler_;
  const EndpointOptions options_;
  const std::string peer_;
  EndpointCounters counters_;
  bool ended_ = false;  // shutdown(), or the peer ended: no put()
  bool closing_ = false;
  Errc reason_ = Errc::kOk;
};

}  // namespace sluice::transport::inproc
