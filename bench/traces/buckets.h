// Functions that group gradients into buckets like training frameworks do. All sizes refer to the wire type.
#pragma once

#include <vector>

#include "bench/traces/gradients.h"
#include "bench/traces/trace.h"

namespace sluice::bench {

// Buckets of PyTorch's DistributedDataParallel (2.x) from the second step on, when it has sorted the
// gradients by the time at which they were ready in the first step. The gradient that reaches the cap
// completes a bucket. A bucket is ready when its last gradient is ready.
struct DdpOptions {
  uint64_t first_cap = 1 << 20;  // small, so that communication starts early
  uint64_t cap = 25 << 20;
};
[[nodiscard]] std::vector<Bucket> ddp_buckets(const std::vector<Gradient>& gradients, uint64_t element_bytes,
                                              const DdpOptions& options);

// Buckets of Horovod (0.21 to 0.28). In each cycle the gradients that became ready are packed into fusion
// buffers. A gradient that does not fit starts the next buffer; a gradient above the threshold is reduced
// alone. Assumptions: the cycles start with the step, operations in flight do not delay them (as with NCCL,
// which returns immediately), and the negotiation of ready tensors takes no time.
struct HorovodOptions {
  uint64_t threshold = 128 << 20;  // HOROVOD_FUSION_THRESHOLD; 0: no fusion
  Nanos cycle = kMillisecond;      // HOROVOD_CYCLE_TIME; 0: no delay
};
[[nodiscard]] std::vector<Bucket> horovod_buckets(const std::vector<Gradient>& gradients,
                                                  uint64_t element_bytes, const HorovodOptions& options);

// One bucket per gradient.
[[nodiscard]] std::vector<Bucket> single_buckets(const std::vector<Gradient>& gradients,
                                                 uint64_t element_bytes);

}  // namespace sluice::bench
