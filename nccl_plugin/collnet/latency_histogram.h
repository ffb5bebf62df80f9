#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/units.h"

namespace sluice::nccl::collnet {

// LatencyHistogram records the durations of requests in four buckets per power of two: the error of a
// quantile is at most 19 %. One thread at a time.
class LatencyHistogram {
 public:
  void add(Nanos time) noexcept {
    const auto n = static_cast<uint64_t>(time < 4 ? 4 : time);
    const auto power = static_cast<unsigned>(std::bit_width(n)) - 1;
    ++buckets_[power * 4 + ((n >> (power - 2)) & 3)];
    ++count_;
    sum_ += n;
  }
  [[nodiscard]] uint64_t count() const noexcept { return count_; }
  [[nodiscard]] double mean_us() const noexcept {
    return count_ == 0 ? 0 : 1e-3 * static_cast<double>(sum_) / static_cast<double>(count_);
  }
  // Returns the upper bound of the bucket of the quantile.
  [[nodiscard]] double quantile_us(double q) const noexcept {
    const auto rank = static_cast<uint64_t>(q * static_cast<double>(count_));
    uint64_t seen = 0;
    for (unsigned i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen > rank) return 1e-3 * static_cast<double>((uint64_t{4} + i % 4 + 1) << (i / 4 - 2));
    }
    return 0;
  }

 private:
  std::array<uint64_t, 256> buckets_{};  // the first bucket starts at 4 ns
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace sluice::nccl::collnet
