#pragma once

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/transport/fault_schedule.h"
#include "transport/transport.h"

namespace sluice::transport::fault {

// FaultEndpoint wraps one endpoint: it is an Endpoint for the layer above and a Handler for the transport
// below. It allocates memory per frame, because it is for tests only.
class FaultEndpoint final : public Endpoint, public Handler {
 public:
  FaultEndpoint(Handler& above, const FaultPlan& plan, uint32_t number, FaultCounters& faults) noexcept
      : above_(above), faults_(faults), schedule_(plan, number) {}

  void bind(Endpoint& below, const EndpointOptions& options);
  // Called by poll(): releases what was held back until `now`. Returns the amount of work done.
  unsigned advance(Nanos now) noexcept;
  // The longest sleep that this endpoint allows, counted from the last advance(); nullopt means no limit.
  [[nodiscard]] std::optional<Nanos> next_due() const noexcept;
  [[nodiscard]] bool is_bound() const noexcept { return bound_; }
  // True after on_closed() of the layer above.
  [[nodiscard]] bool is_finished() const noexcept { return finished_; }

  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload, Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override;
  // advance() shuts down the endpoint below after the held frames.
  void shutdown() noexcept override { ended_ |= !closing_; }
  bool all_sent() const noexcept override {
    return held_.empty() && (below_ == nullptr || below_->all_sent());
  }
  const EndpointCounters& counters() const noexcept override {
    return below_ != nullptr ? below_->counters() : last_counters_;
  }
  uint64_t packet_losses() const noexcept override { return below_ != nullptr ? below_->packet_losses() : 0; }
  PathStats path_stats() const noexcept override {
    return below_ != nullptr ? below_->path_stats() : PathStats{};
  }
  Nanos network_limited_time() const noexcept override {
    return below_ != nullptr ? below_->network_limited_time() : 0;
  }
  void recall() noexcept override {
    if (below_ != nullptr) below_->recall();
  }
  bool has_advertised_buffers() const noexcept override {
    return below_ != nullptr && below_->has_advertised_buffers();
  }
  std::string_view peer() const noexcept override { return peer_; }

  ReceiveTarget on_header(Endpoint& ep, const wire::FrameHeader& header,
                          std::span<const std::byte> extensions) noexcept override;
  void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                std::span<std::byte> payload) noexcept override;
  RemoteBuffer advertise(Endpoint& /*ep*/) noexcept override {
    // A stalled layer grants no buffer.
    return is_stalled() || closing_ ? RemoteBuffer{} : above_.advertise(*this);
  }
  void on_sent(Endpoint& ep, Cookie cookie, Status status) noexcept override;
  void on_closed(Endpoint& ep, Errc reason) noexcept override;

 private:
  // An accepted put that was not forwarded to the transport below yet.
  struct HeldFrame {
    wire::FrameHeader header;
    std::array<std::byte, kMaxExtensionBytes> extensions;
    std::span<const std::byte> payload;
    Cookie cookie = 0;
    PutFaults faults;
    std::optional<Nanos> release_at;   // set by the first advance() after the put
    std::vector<std::byte> corrupted;  // replaces the payload if faults.corrupt
  };
  // A callback of the transport below during a stall.
  struct DeferredCallback {
    enum class Kind { kFrame, kPlacedFrame, kSent, kClosed } kind;
    wire::FrameHeader header;
    std::array<std::byte, kMaxExtensionBytes> extensions;
    std::vector<std::byte> arrived;  // kFrame: the payload, received before on_header() of the layer above
    bool complete = false;           // kFrame: the whole frame has arrived
    std::span<std::byte> placed;     // kPlacedFrame: the payload, in the memory of the layer above
    Cookie cookie = 0;
    Status status;
    Errc reason = Errc::kOk;
    [[nodiscard]] std::span<const std::byte> extension_area() const noexcept {
      return std::span(extensions).first(header.extension_bytes());
    }
  };

  [[nodiscard]] bool is_stalled() const noexcept {
    return stall_pending_ > 0 || now_ < stall_until_ || !deferred_.empty();
  }
  [[nodiscard]] Status forward(const HeldFrame& frame) noexcept;
  DeferredCallback& defer(DeferredCallback::Kind kind, const wire::FrameHeader& header = {},
                          std::span<const std::byte> extensions = {});
  void start_timers() noexcept;
  unsigned release_held() noexcept;
  unsigned replay_deferred() noexcept;
  void replay_frame(DeferredCallback& event) noexcept;
  void finish(Errc reason) noexcept;

  Handler& above_;
  FaultCounters& faults_;
  FaultSchedule schedule_;
  Endpoint* below_ = nullptr;  // null after its on_closed()
  EndpointOptions options_;
  std::string peer_;
  EndpointCounters last_counters_;

  bool bound_ = false;
  bool ended_ = false;          // after shutdown() or a drop: put() returns kClosed
  bool shutdown_sent_ = false;  // below_->shutdown() was called
  bool closing_ = false;
  bool finished_ = false;
  Errc reason_ = Errc::kOk;
  Nanos now_ = 0;
  Nanos stall_pending_ = 0;  // duration of a stall that starts at the next advance()
  Nanos stall_until_ = 0;
  size_t outstanding_ = 0;  // accepted puts without on_sent()
  std::deque<HeldFrame> held_;
  std::deque<std::vector<std::byte>> in_flight_;  // corrupted payloads of the forwarded puts; empty for most
  std::deque<DeferredCallback> deferred_;
  DeferredCallback* incoming_ = nullptr;  // the entry of deferred_ whose payload is still arriving
};

}  // namespace sluice::transport::fault
