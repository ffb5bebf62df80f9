// What the machine's copies between device and host reach at most: one large one, pinned at the host's end,
// by the same calls as everything else here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/e2e/worker_session.h"
#include "bench/gpu/bench_device.h"

namespace sluice::bench {

inline constexpr uint64_t kLimitBytes = 64 * kMiB;

// GB/s (1e9). Each is the median of a few copies.
struct CopyLimits {
  double out_alone = 0;  // one rank, the others idle
  double in_alone = 0;
  double out_together = 0;  // all ranks at once: of each, their mean
  double in_together = 0;
  double both_together = 0;  // all ranks, both ways at once: each way of each
};

// Collective. `pinned`, `from` and `to` have kLimitBytes each; copies go from `from`, and to `to`.
[[nodiscard]] CopyLimits measure_copy_limits(BenchDevice& device, WorkerSession& session, std::byte* pinned,
                                             const std::byte* from, std::byte* to);

}  // namespace sluice::bench
