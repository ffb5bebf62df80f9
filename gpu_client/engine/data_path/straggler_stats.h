// Class StragglerStats sums, per rank, the lag of the rank that contributed last to each chunk
// (wire::ResultInfo). The thread of the progress loop writes; any thread may read.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "wire/extension.h"

namespace sluice::engine {

class StragglerStats {
 public:
  explicit StragglerStats(uint32_t ranks) : lag_us_(ranks) {}

  // Ignores ranks outside the session, because the value comes from the network.
  void note(const wire::ResultInfo& info) noexcept {
    if (info.last_rank >= lag_us_.size()) return;
    auto& lag = lag_us_[info.last_rank];
    lag.store(lag.load(std::memory_order_relaxed) + info.lag_us, std::memory_order_relaxed);
  }

  struct Slowest {
    uint32_t rank = 0;
    // Time from the first rank's contribution to this rank's, summed over the chunks to which this rank
    // contributed last. 0: no rank waited.
    uint64_t lag_us = 0;
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
