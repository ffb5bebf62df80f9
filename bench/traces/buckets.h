// How frameworks put gradients together before they are reduced. All sizes are of the type on the wire.
#pragma once

#include <vector>

#include "bench/traces/gradients.h"
#include "bench/traces/trace.h"

namespace sluice::bench {

// PyTorch's DistributedDataParallel (2.x), from the second step on, when it has put the gradients in the
// order in which they were ready in the first: a bucket is full with the gradient that brings it to its cap
// or above, and ready when its last gradient is.
struct DdpOptions {
  uint64_t first_cap = 1 << 20;  // so that communication begins early
  uint64_t cap = 25 << 20;
};
[[nodiscard]] std::vector<Bucket> ddp_buckets(const std::vector<Gradient>& gradients, uint64_t element_bytes,
                                              const DdpOptions& options);

// Horovod (0.21 to 0.28): at every turn of its cycle, what has got ready since the last one goes into fusion
// buffers; a gradient that does not fit into what is left begins the next one, and one above the threshold
// goes alone. Assumed: cycles begin with the step and are not held up by operations under way (as with NCCL,
// which returns at once), and agreeing on what is ready takes no time.
struct HorovodOptions {
  uint64_t threshold = 128 << 20;  // HOROVOD_FUSION_THRESHOLD; 0: no fusion
  Nanos cycle = kMillisecond;      // HOROVOD_CYCLE_TIME; 0: at once
};
[[nodiscard]] std::vector<Bucket> horovod_buckets(const std::vector<Gradient>& gradients,
                                                  uint64_t element_bytes, const HorovodOptions& options);

// Every gradient by itself.
[[nodiscard]] std::vector<Bucket> single_buckets(const std::vector<Gradient>& gradients,
                                                 uint64_t element_bytes);

}  // namespace sluice::bench
