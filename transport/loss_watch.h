// Whether a connection has lost packets, asked once in a while: each question may cost a system call.
#pragma once

#include <cstdint>
#include <utility>

#include "core/units.h"
#include "transport/transport.h"

namespace sluice::transport {

class LossWatch {
 public:
  // Payload bytes sent between two questions.
  static constexpr uint64_t kAskEvery = 512 * kKiB;

  // What was lost before does not count.
  void begin(const Endpoint& ep) noexcept { ask(ep); }
  // Whether packets were lost since the question before; false while it is too early for another.
  [[nodiscard]] bool lost(const Endpoint& ep) noexcept {
    return ep.counters().payload_bytes_out >= ask_at_ && ask(ep);
  }

 private:
  bool ask(const Endpoint& ep) noexcept {
    ask_at_ = ep.counters().payload_bytes_out + kAskEvery;
    const uint64_t before = std::exchange(losses_, ep.losses());
    return losses_ > before;
  }

  uint64_t losses_ = 0;  // Endpoint::losses() when last asked
  uint64_t ask_at_ = 0;  // payload bytes sent
};

}  // namespace sluice::transport
