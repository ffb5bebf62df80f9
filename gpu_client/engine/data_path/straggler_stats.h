// Class StragglerStats measures, per rank, how long chunks waited for that rank (wire::ResultInfo).
//
// The waiting time of rank r is the wall time in which at least one chunk had a contribution from another
// rank and r was the last rank to contribute: the union of the intervals of all such chunks, so it never
// exceeds the age of the session. An interval is as long as the reducer measured, and ends when the result
// arrives here. A wait that has not ended is not included, because its last rank is not known yet.
//
// The thread of the progress loop calls note() and waits_for(). Any thread may call slowest().
#pragma once

#include <cstdint>
#include <memory>

#include "core/units.h"
#include "gpu_client/engine/data_path/interval_union.h"
#include "wire/extension.h"

namespace sluice::engine {

class StragglerStats {
 public:
  // Time before `since` does not count: a reducer may report any lag.
  StragglerStats(uint32_t ranks, Nanos since)
      : ranks_(ranks), since_(since), waits_(std::make_unique<RankWaits[]>(ranks)) {}

  // A result arrived. Ignores ranks outside the session, because the value comes from the network.
  void note(const wire::ResultInfo& info, Nanos now) noexcept {
    if (info.last_rank >= ranks_) return;
    RankWaits& waits = waits_[info.last_rank];
    waits.sum_us += info.lag_us;
    sum_us_ += info.lag_us;
    // All results of a turn have the same time, so the longest lag covers the others.
    if (now == waits.end && info.lag_us <= waits.lag_us) return;
    add(waits, info.lag_us, now);
  }

  struct Slowest {
    uint32_t rank = 0;
    Nanos waited = 0;  // the waiting time of this rank; 0: no rank was waited for
  };
  [[nodiscard]] Slowest slowest() const noexcept;
  // Sums over the chunks: of their waits for this rank, and for any. Unlike the times above, waits at the
  // same time count several times, so the sums of all ranks add up to that of any.
  struct Waits {
    uint64_t rank_us = 0;
    uint64_t all_us = 0;
  };
  [[nodiscard]] Waits waits_for(uint32_t rank) const noexcept {
    return {.rank_us = waits_[rank].sum_us, .all_us = sum_us_};
  }

 private:
  struct RankWaits {
    Nanos end = 0;        // of the latest interval
    uint32_t lag_us = 0;  // the longest with this end
    IntervalUnion intervals;
    uint64_t sum_us = 0;
  };
  void add(RankWaits& waits, uint32_t lag_us, Nanos now) noexcept;

  const uint32_t ranks_;
  const Nanos since_;
  uint64_t sum_us_ = 0;
  const std::unique_ptr<RankWaits[]> waits_;
};

}  // namespace sluice::engine
