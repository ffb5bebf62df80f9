// Measures the maximum bandwidth of copies between device and host: one large copy from or to pinned memory,
// with the same calls as the pipeline.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/e2e/worker/worker_session.h"
#include "bench/gpu/bench_device.h"
#include "core/units.h"

namespace sluice::bench {

inline constexpr uint64_t kLimitBytes = 64 * kMiB;

// Bandwidths in GB/s (1e9 bytes). Each value is the median of several copies.
struct CopyLimits {
  double out_alone = 0;        // device to host on one rank, the others idle
  double in_alone = 0;         // host to device on one rank, the others idle
  double out_concurrent = 0;   // device to host on all ranks at once, mean of the ranks
  double in_concurrent = 0;    // host to device on all ranks at once, mean of the ranks
  double both_concurrent = 0;  // both directions on all ranks at once, per direction and rank
};

// Collective. `pinned`, `from` and `to` have kLimitBytes each. Copies read from `from` and write to `to`.
[[nodiscard]] CopyLimits measure_copy_limits(BenchDevice& device, WorkerSession& session, std::byte* pinned,
                                             const std::byte* from, std::byte* to);

}  // namespace sluice::bench
