#pragma once

#include <cstdint>
#include <utility>

#include "core/units.h"
#include "transport/transport.h"

namespace sluice::transport {

// LossDetector tells whether a connection has lost packets since the last sample. It samples rarely, because
// Endpoint::packet_losses() may cost a system call. Owner thread of the endpoint.
class LossDetector {
 public:
  // Payload bytes sent between two samples.
  static constexpr uint64_t kSampleBytes = 512 * kKiB;

  // Ignores all losses up to now.
  void start(const Endpoint& ep) noexcept { sample(ep); }
  // True when the connection lost packets since the last sample. False while the next sample is not due.
  [[nodiscard]] bool has_new_losses(const Endpoint& ep) noexcept {
    return ep.counters().payload_bytes_out >= next_sample_ && sample(ep);
  }

 private:
  bool sample(const Endpoint& ep) noexcept {
    next_sample_ = ep.counters().payload_bytes_out + kSampleBytes;
    const uint64_t before = std::exchange(losses_, ep.packet_losses());
    return losses_ > before;
  }

  uint64_t losses_ = 0;       // Endpoint::packet_losses() at the last sample
  uint64_t next_sample_ = 0;  // in payload bytes sent
};

}  // namespace sluice::transport
