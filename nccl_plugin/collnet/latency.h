// Times of requests, for one line at the end: a histogram with four buckets to each power of two, so a
// quantile is right within 19 %.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/units.h"

namespace sluice::nccl::collnet {

class Latency {
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
  // The upper end of the bucket that holds the quantile.
  [[nodiscard]] double quantile_us(double q) const noexcept {
    const auto wanted = static_cast<uint64_t>(q * static_cast<double>(count_));
    uint64_t seen = 0;
    for (unsigned i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen > wanted) return 1e-3 * static_cast<double>((uint64_t{4} + i % 4 + 1) << (i / 4 - 2));
    }
    return 0;
  }

 private:
  std::array<uint64_t, 256> buckets_{};  // from 4 ns on
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace sluice::nccl::collnet
