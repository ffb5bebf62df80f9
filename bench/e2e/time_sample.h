// Timings without end in bounded memory: of more than fit, an even sample (reservoir sampling), so that the
// quantiles of a week are had as those of a minute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/e2e/quantiles.h"

namespace sluice::bench {

class TimeSample {
 public:
  // All its memory is taken, and touched, here.
  explicit TimeSample(size_t capacity) : capacity_(capacity), kept_(capacity) { kept_.clear(); }

  void add(double seconds) {
    ++seen_;
    if (kept_.size() < capacity_) {
      kept_.push_back(seconds);
    } else if (const uint64_t at = random_() % seen_; at < capacity_) {
      kept_[at] = seconds;
    }
  }
  void clear() {
    kept_.clear();
    seen_ = 0;
  }
  // Of what was kept.
  [[nodiscard]] Quantiles quantiles() const { return quantiles_of(kept_); }

 private:
  size_t capacity_;
  uint64_t seen_ = 0;
  std::vector<double> kept_;
  std::mt19937_64 random_;
};

}  // namespace sluice::bench
