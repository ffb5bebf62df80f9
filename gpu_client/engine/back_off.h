// Pauses between tries that fail: each twice as long as the one before, up to a longest, and each cut at
// random by up to a half, so that those who failed together do not try again together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "core/units.h"

namespace sluice::engine {

class BackOff {
 public:
  BackOff(Nanos first, Nanos longest, uint32_t seed) : first_(first), longest_(longest), random_(seed) {}

  [[nodiscard]] Nanos next() {
    const Nanos whole = pause_;
    pause_ = std::min(2 * pause_, longest_);
    return whole - std::uniform_int_distribution<Nanos>(0, whole / 2)(random_);
  }
  void reset() noexcept { pause_ = first_; }

 private:
  const Nanos first_;
  const Nanos longest_;
  Nanos pause_ = first_;
  std::minstd_rand random_;
};

}  // namespace sluice::engine
