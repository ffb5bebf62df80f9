// Class RunnableTargets chooses, among the targets that a file was compiled for, those that this CPU can run.
// Included within HWY_ONCE, after Highway's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reducer/kernels/targets/cpu_targets.h"

// The initializers of a CompiledTarget array, best first, in Highway's order: the name of each target and its
// `function`.
#if HWY_TARGETS & HWY_AVX3
#define SLUICE_AVX3_TARGET(function) {HWY_AVX3, {"AVX3", N_AVX3::function}},
#else
#define SLUICE_AVX3_TARGET(function)
#endif
#if HWY_TARGETS & HWY_AVX2
#define SLUICE_AVX2_TARGET(function) {HWY_AVX2, {"AVX2", N_AVX2::function}},
#else
#define SLUICE_AVX2_TARGET(function)
#endif
#if HWY_TARGETS & HWY_NEON
#define SLUICE_NEON_TARGET(function) {HWY_NEON, {"NEON", N_NEON::function}},
#else
#define SLUICE_NEON_TARGET(function)
#endif
#if HWY_TARGETS & HWY_EMU128
#define SLUICE_EMU128_TARGET(function) {HWY_EMU128, {"EMU128", N_EMU128::function}},
#else
#define SLUICE_EMU128_TARGET(function)
#endif
#if HWY_TARGETS & HWY_SCALAR
#define SLUICE_SCALAR_TARGET(function) {HWY_SCALAR, {"SCALAR", N_SCALAR::function}},
#else
#define SLUICE_SCALAR_TARGET(function)
#endif
#define SLUICE_COMPILED_TARGETS(function) \
  SLUICE_AVX3_TARGET(function)            \
  SLUICE_AVX2_TARGET(function)            \
  SLUICE_NEON_TARGET(function) SLUICE_EMU128_TARGET(function) SLUICE_SCALAR_TARGET(function)

namespace sluice::kernels {

template <class Target>
struct CompiledTarget {
  int64_t bit;
  Target target;
};

template <class Target, size_t kCount>
class RunnableTargets {
 public:
  explicit RunnableTargets(const CompiledTarget<Target> (&compiled)[kCount]) noexcept {
    const int64_t supported = supported_targets();
    for (const CompiledTarget<Target>& c : compiled) {
      if ((supported & c.bit) != 0) targets_[count_++] = c.target;
    }
    // The baseline runs on every CPU that runs this program, even if detection finds no target.
    if (count_ == 0) targets_[count_++] = compiled[kCount - 1].target;
  }
  [[nodiscard]] std::span<const Target> all() const noexcept { return {targets_, count_}; }

 private:
  Target targets_[kCount];
  size_t count_ = 0;
};

}  // namespace sluice::kernels
