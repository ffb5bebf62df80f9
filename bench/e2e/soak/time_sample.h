// Class TimeSample keeps a uniform sample of an unlimited number of times in bounded memory (reservoir
// sampling). The quantiles of the sample estimate those of all times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/e2e/report/quantiles.h"

namespace sluice::bench {

class TimeSample {
 public:
  // Allocates and touches all memory.
  explicit TimeSample(size_t capacity) : capacity_(capacity), sample_(capacity) { sample_.clear(); }

  void add(double seconds) {
    ++added_;
    if (sample_.size() < capacity_) {
      sample_.push_back(seconds);
    } else if (const uint64_t at = random_() % added_; at < capacity_) {
      sample_[at] = seconds;
    }
  }
  void clear() {
    sample_.clear();
    added_ = 0;
  }
  // Returns the quantiles of the sample.
  [[nodiscard]] Quantiles quantiles() const { return quantiles_of(sample_); }

 private:
  size_t capacity_;
  uint64_t added_ = 0;
  std::vector<double> sample_;
  std::mt19937_64 random_;
};

}  // namespace sluice::bench
