#pragma once

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "transport/fault/fault_draw.h"
#include "transport/transport.h"

namespace sluice::transport::fault {

// Endpoint to the layer above, handler to the transport below. Allocates as it likes: it is for tests.
class FaultEndpoint final : public Endpoint, public Handler {
 public:
  FaultEndpoint(Handler& above, const FaultPlan& plan, uint32_t number, FaultCounters& faults) noexcept
      : above_(above), faults_(faults), draw_(plan, number) {}

  void bind(Endpoint& below, const EndpointOptions& options);
  // Within a poll(): lets go of what was held back until `now`. Returns how much was done.
  unsigned advance(Nanos now) noexcept;
  // How long the context may sleep on account of this endpoint, seen from the last advance(); nothing: no
  // limit.
  [[nodiscard]] std::optional<Nanos> next_due() const noexcept;
  [[nodiscard]] bool bound() const noexcept { return bound_; }
  // on_closed() was called above.
  [[nodiscard]] bool dead() const noexcept { return dead_; }

  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload, Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override;
  void shutdown() noexcept override;
  bool idle() const noexcept override;
  const EndpointCounters& counters() const noexcept override;
  uint64_t losses() const noexcept override;
  void recall() noexcept override;
  bool lent() const noexcept override { return below_ != nullptr && below_->lent(); }
  std::string_view peer() const noexcept override { return peer_; }

  Placement on_header(Endpoint& ep, const wire::FrameHeader& header,
                      std::span<const std::byte> extensions) noexcept override;
  void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                std::span<std::byte> payload) noexcept override;
  Loan lend(Endpoint& ep) noexcept override;
  void on_sent(Endpoint& ep, Cookie cookie, Status status) noexcept override;
  void on_closed(Endpoint& ep, Errc reason) noexcept override;

 private:
  // An accepted put that the transport below does not have yet.
  struct Held {
    wire::FrameHeader header;
    std::array<std::byte, kMaxExtensions> extensions;
    std::span<const std::byte> payload;
    Cookie cookie = 0;
    Hit hit;
    std::optional<Nanos> release_at;   // set by the first advance() after the put
    std::vector<std::byte> corrupted;  // stands in for payload when the hit says so
  };
  // A callback of the transport below that came during a stall.
  struct Deferred {
    enum class Kind { kFrame, kPlacedFrame, kSent, kClosed } kind;
    wire::FrameHeader header;
    std::array<std::byte, kMaxExtensions> extensions;
    std::vector<std::byte> arrived;  // kFrame: payload, received before the layer above could place it
    bool complete = false;           // kFrame: on_frame() came too
    std::span<std::byte> placed;     // kPlacedFrame: payload, in the place given above
    Cookie cookie = 0;
    Status status;
    Errc reason = Errc::kOk;
    [[nodiscard]] std::span<const std::byte> extension_area() const noexcept {
      return std::span(extensions).first(header.extension_bytes());
    }
  };

  [[nodiscard]] bool stalled() const noexcept {
    return stall_pending_ > 0 || now_ < stall_until_ || !deferred_.empty();
  }
  [[nodiscard]] Status pass_down(const Held& frame) noexcept;
  void start_clocks() noexcept;
  unsigned release_held() noexcept;
  unsigned replay_deferred() noexcept;
  void replay_frame(Deferred& event) noexcept;
  void end(Errc reason) noexcept;

  Handler& above_;
  FaultCounters& faults_;
  FaultDraw draw_;
  Endpoint* below_ = nullptr;  // null after its on_closed()
  EndpointOptions options_;
  std::string peer_;
  EndpointCounters last_counters_;

  bool bound_ = false;
  bool ended_ = false;       // shutdown(), or a drop was carried out: no put()
  bool told_below_ = false;  // of the shutdown
  bool closing_ = false;
  bool dead_ = false;
  Errc reason_ = Errc::kOk;
  Nanos now_ = 0;
  Nanos stall_pending_ = 0;  // a stall whose clock starts with the next advance()
  Nanos stall_until_ = 0;
  size_t outstanding_ = 0;  // accepted and not given back
  std::deque<Held> held_;
  std::deque<std::vector<std::byte>>
      in_flight_;  // corrupted payloads of the puts the transport below has; mostly empty ones
  std::deque<Deferred> deferred_;
  Deferred* arriving_ =
      nullptr;  // the one whose payload the transport below is writing; it stays in deferred_ until then
};

}  // namespace sluice::transport::fault
