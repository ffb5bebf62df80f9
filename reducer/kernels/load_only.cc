#include "reducer/kernels/load_only.h"

#include "reducer/kernels/targets/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reducer/kernels/load_only.cc"
#include "reducer/kernels/targets.h"
//
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

uint32_t xor_words(const std::byte* const* sources, size_t n, size_t bytes) {
  const hn::ScalableTag<uint32_t> d;
  constexpr size_t kStep = hn::MaxLanes(d) * sizeof(uint32_t);
  auto a = hn::Zero(d);
  auto b = hn::Zero(d);
  auto c = hn::Zero(d);
  auto e = hn::Zero(d);
  size_t i = 0;
  for (; bytes - i >= 4 * kStep; i += 4 * kStep) {
    for (size_t k = 0; k < n; ++k) {
      const std::byte* p = sources[k] + i;
      for (size_t line = 0; line < 4 * kStep; line += 64) __builtin_prefetch(p + 512 + line);
      a = hn::Xor(a, load(d, p));
      b = hn::Xor(b, load(d, p + kStep));
      c = hn::Xor(c, load(d, p + 2 * kStep));
      e = hn::Xor(e, load(d, p + 3 * kStep));
    }
  }
  alignas(64) std::byte lanes[kStep];
  store(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)), d, lanes);
  uint32_t all = 0;
  const auto take = [&all](const std::byte* p) {
    uint32_t word;
    std::memcpy(&word, p, sizeof word);
    all ^= word;
  };
  for (size_t j = 0; j < kStep; j += sizeof(uint32_t)) take(lanes + j);
  for (; bytes - i >= sizeof(uint32_t); i += sizeof(uint32_t)) {
    for (size_t k = 0; k < n; ++k) take(sources[k] + i);
  }
  return all;
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {
namespace {

// Of the best target, which a fold of this CPU has too.
decltype(&HWY_STATIC_DISPATCH(xor_words)) best_xor_words() noexcept {
  [[maybe_unused]] const int64_t supported = supported_targets();
#if HWY_TARGETS & HWY_AVX3
  if ((supported & HWY_AVX3) != 0) return N_AVX3::xor_words;
#endif
#if HWY_TARGETS & HWY_AVX2
  if ((supported & HWY_AVX2) != 0) return N_AVX2::xor_words;
#endif
#if HWY_TARGETS & HWY_NEON
  if ((supported & HWY_NEON) != 0) return N_NEON::xor_words;
#endif
  return HWY_STATIC_DISPATCH(xor_words);  // the baseline
}

}  // namespace

uint32_t load_only(std::span<const std::byte* const> sources, size_t bytes) noexcept {
  static const auto best = best_xor_words();
  return best(sources.data(), sources.size(), bytes);
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
