// Class ObservedLane stands between a LaneConnection and its endpoint, and tells OperationRecorder when a
// contribution was put and when its result arrived. A session without observers has none, so its lane
// connections work at full speed. Thread of the progress loop.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/units.h"
#include "gpu_client/engine/data_path/lane_connection.h"
#include "transport/transport.h"

namespace sluice::engine {

class OperationRecorder;

class ObservedLane final : public transport::Handler, public transport::Endpoint {
 public:
  ObservedLane(OperationRecorder& recorder, LaneConnection& lane, uint32_t index)
      : recorder_(recorder), lane_(lane), index_(index), puts_(lane.slots()) {}

  // Attaches the endpoint that has this object as its handler, and returns the one to bind the lane
  // connection to.
  [[nodiscard]] transport::Endpoint& attach(transport::Endpoint& ep) noexcept {
    endpoint_ = &ep;
    return *this;
  }

  transport::ReceiveTarget on_header(transport::Endpoint& ep, const wire::FrameHeader& header,
                                     std::span<const std::byte> extensions) noexcept override {
    return lane_.on_header(ep, header, extensions);
  }
  void on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept override;
  transport::ExpectedFrame expected_frame(transport::Endpoint& ep, unsigned ahead) noexcept override {
    return lane_.expected_frame(ep, ahead);
  }
  transport::RemoteBuffer advertise(transport::Endpoint& ep) noexcept override { return lane_.advertise(ep); }
  void on_sent(transport::Endpoint& ep, transport::Cookie cookie, Status status) noexcept override {
    lane_.on_sent(ep, cookie, status);
  }
  void on_closed(transport::Endpoint& ep, Errc reason) noexcept override { lane_.on_closed(ep, reason); }

  [[nodiscard]] Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                           std::span<const std::byte> payload, transport::Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override { endpoint_->close(reason); }
  void shutdown() noexcept override { endpoint_->shutdown(); }
  [[nodiscard]] bool all_sent() const noexcept override { return endpoint_->all_sent(); }
  [[nodiscard]] const transport::EndpointCounters& counters() const noexcept override {
    return endpoint_->counters();
  }
  void recall() noexcept override { endpoint_->recall(); }
  [[nodiscard]] bool has_advertised_buffers() const noexcept override {
    return endpoint_->has_advertised_buffers();
  }
  [[nodiscard]] uint64_t packet_losses() const noexcept override { return endpoint_->packet_losses(); }
  [[nodiscard]] bool is_in_memory() const noexcept override { return endpoint_->is_in_memory(); }
  [[nodiscard]] transport::PathStats path_stats() const noexcept override { return endpoint_->path_stats(); }
  [[nodiscard]] Nanos network_limited_time() const noexcept override {
    return endpoint_->network_limited_time();
  }
  [[nodiscard]] std::string_view peer() const noexcept override { return endpoint_->peer(); }

 private:
  // A contribution without a result, stored at sequence mod W.
  struct Put {
    uint64_t chunk = ~uint64_t{0};
    uint32_t operation = 0;  // index in the table; kNoOperation: a kept result, which is not measured
    uint16_t view_version = 0;
    Nanos at = 0;
  };

  OperationRecorder& recorder_;
  LaneConnection& lane_;
  const uint32_t index_;
  transport::Endpoint* endpoint_ = nullptr;
  std::vector<Put> puts_;
};

}  // namespace sluice::engine
