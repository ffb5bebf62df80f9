#include "bench/traces/buckets.h"

namespace sluice::bench {
namespace {

// Rounds up, so that no bucket is ready too early.
uint64_t microseconds(Nanos time) {
  return div_ceil(static_cast<uint64_t>(time), kMicrosecond);
}

}  // namespace

std::vector<Bucket> ddp_buckets(const std::vector<Gradient>& gradients, uint64_t element_bytes,
                                const DdpOptions& options) {
  std::vector<Bucket> buckets;
  Bucket open;
  for (const Gradient& gradient : gradients) {
    open.bytes += gradient.elements * element_bytes;
    open.ready_us = microseconds(gradient.ready);
    if (open.bytes < (buckets.empty() ? options.first_cap : options.cap)) continue;
    buckets.push_back(open);
    open = {};
  }
  if (open.bytes != 0) buckets.push_back(open);
  return buckets;
}

std::vector<Bucket> horovod_buckets(const std::vector<Gradient>& gradients, uint64_t element_bytes,
                                    const HorovodOptions& options) {
  std::vector<Bucket> buckets;
  for (const Gradient& gradient : gradients) {
    const uint64_t bytes = gradient.elements * element_bytes;
    const uint64_t ready = static_cast<uint64_t>(gradient.ready);
    const uint64_t cycle_end =
        options.cycle == 0 ? ready : round_up(ready, static_cast<uint64_t>(options.cycle));
    const uint64_t ready_us = microseconds(static_cast<Nanos>(cycle_end));
    if (!buckets.empty() && buckets.back().ready_us == ready_us &&
        buckets.back().bytes + bytes <= options.threshold) {
      buckets.back().bytes += bytes;
    } else {
      buckets.push_back({.ready_us = ready_us, .bytes = bytes});
    }
  }
  return buckets;
}

std::vector<Bucket> single_buckets(const std::vector<Gradient>& gradients, uint64_t element_bytes) {
  std::vector<Bucket> buckets;
  for (const Gradient& gradient : gradients) {
    buckets.push_back({.ready_us = microseconds(gradient.ready), .bytes = gradient.elements * element_bytes});
  }
  return buckets;
}

}  // namespace sluice::bench
