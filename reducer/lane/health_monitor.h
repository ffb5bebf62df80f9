// Class HealthMonitor finds ranks whose contributions look wrong, in the chunks of one session on one lane.
//
// Every contribution is scanned right after the fold has read it (reducer/kernels/health/scan.h). When the
// chunk is complete, judge() compares the ranks. Memory is allocated in the constructor only: 40 bytes for
// each rank and slot.
//
// Lane thread only, except health_of().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/units.h"
#include "reducer/kernels/health/scan.h"
#include "reducer/lane/lane_counters.h"
#include "wire/extension.h"
#include "wire/frame.h"

namespace sluice::reducer {

// What this lane has seen of one rank.
struct RankHealth {
  Counter non_finite;  // values, since the session began
  FindingCounters findings;
  // Of the operation that was summed last, as far as its chunks belong to this lane.
  RelaxedCounter<double> largest, square_sum;
  Counter values, sampled, zeros;  // square_sum and zeros are of the sampled values
};

class HealthMonitor {
 public:
  // Bytes of each source that are folded and then scanned: eight sources fit into the first-level cache.
  static constexpr size_t kPartBytes = 2 * kKiB;
  // Chunks of fewer values are not compared between ranks: a counter or a loss may differ by any factor.
  static constexpr uint64_t kMinCompared = 256;
  // A largest magnitude that is more than this many times the median of the ranks' is an outlier. Two ranks
  // have no majority, so the factor is larger.
  static constexpr double kOutlierRatio = 1e3;
  static constexpr double kOutlierRatioOfTwo = 1e6;

  HealthMonitor(uint32_t ranks, uint32_t slots);

  // Scans elements [first, first + count) of the chunk in `slot`, which rank first_rank + i contributed at
  // sources[i]. Element 0 must come first; it begins a new chunk.
  void scan(kernels::ScanFunction function, uint32_t slot, Rank first_rank,
            std::span<const std::byte* const> sources, size_t first, size_t count) noexcept;

  // The finding of the chunk in `slot`, whose elements were all scanned. `header` is that of its result.
  [[nodiscard]] std::optional<wire::Finding> judge(uint32_t slot, const wire::FrameHeader& header,
                                                   FindingCounters& findings) noexcept;

  // ---- any thread ----
  [[nodiscard]] const RankHealth& health_of(Rank rank) const noexcept { return published_[rank]; }

 private:
  [[nodiscard]] double median_of_largest(std::span<const kernels::HealthStats> chunk) noexcept;
  void publish(std::span<const kernels::HealthStats> chunk, uint32_t op_id, uint64_t values) noexcept;

  const uint32_t ranks_;
  std::vector<kernels::HealthStats> stats_;  // by slot and rank
  std::vector<double> sorted_;
  std::vector<RankHealth> published_;  // by rank
  uint32_t op_id_ = 0;                 // of the values in published_
};

}  // namespace sluice::reducer
