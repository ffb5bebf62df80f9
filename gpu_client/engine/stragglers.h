// Who came last, chunk by chunk, as the results tell (wire::ResultInfo). Written by the driver's thread, read
// by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "wire/extension.h"

namespace sluice::engine {

class Stragglers {
 public:
  explicit Stragglers(uint32_t ranks) : lag_us_(ranks) {}

  // A rank that there is not is a peer's word, and ignored.
  void note(const wire::ResultInfo& info) noexcept {
    if (info.last_rank >= lag_us_.size()) return;
    auto& lag = lag_us_[info.last_rank];
    lag.store(lag.load(std::memory_order_relaxed) + info.lag_us, std::memory_order_relaxed);
  }

  struct Slowest {
    uint32_t rank = 0;
    uint64_t lag_us = 0;  // between the first rank's chunk and this one's, over all chunks at which it came
                          // last; 0: nobody waited
  };
  [[nodiscard]] Slowest slowest() const noexcept {
    Slowest s;
    for (uint32_t rank = 0; rank < lag_us_.size(); ++rank) {
      if (const uint64_t lag = lag_us_[rank].load(std::memory_order_relaxed); lag > s.lag_us)
        s = {.rank = rank, .lag_us = lag};
    }
    return s;
  }

 private:
  std::vector<std::atomic<uint64_t>> lag_us_;
};

}  // namespace sluice::engine
