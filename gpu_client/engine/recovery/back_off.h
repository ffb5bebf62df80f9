// Class BackOff computes the pauses between attempts that fail. Each pause is twice the previous one, up to a
// maximum. Each is shortened at random by up to half, so that clients that failed together do not retry
// together.
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
