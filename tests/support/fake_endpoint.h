#pragma once

#include "transport/transport.h"

namespace sluice::test {

// FakeEndpoint is an Endpoint without a connection. The test sets its counters; it counts the calls of
// packet_losses().
struct FakeEndpoint final : transport::Endpoint {
  Status put(const wire::FrameHeader&, std::span<const std::byte>, std::span<const std::byte>,
             transport::Cookie) noexcept override {
    return Errc::kClosed;
  }
  void close(Errc) noexcept override {}
  void shutdown() noexcept override {}
  bool all_sent() const noexcept override { return true; }
  const transport::EndpointCounters& counters() const noexcept override { return sent; }
  uint64_t packet_losses() const noexcept override { return ++samples, lost; }
  transport::PathStats path_stats() const noexcept override { return path; }
  std::string_view peer() const noexcept override { return "fake"; }

  transport::EndpointCounters sent;
  uint64_t lost = 0;
  transport::PathStats path;
  mutable int samples = 0;
};

}  // namespace sluice::test
