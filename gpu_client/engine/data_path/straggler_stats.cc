#include "gpu_client/engine/data_path/straggler_stats.h"

#include <algorithm>

namespace sluice::engine {

void StragglerStats::add(RankWaits& waits, uint32_t lag_us, Nanos now) noexcept {
  waits.end = now;
  waits.lag_us = lag_us;
  waits.intervals.add(std::max(since_, now - Nanos{lag_us} * kMicrosecond), now);
}

StragglerStats::Slowest StragglerStats::slowest() const noexcept {
  Slowest s;
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (const Nanos waited = waits_[rank].intervals.total(); waited > s.waited)
      s = {.rank = rank, .waited = waited};
  }
  return s;
}

}  // namespace sluice::engine
