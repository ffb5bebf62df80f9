#include "reducer/kernels/fold.h"

#include "reducer/kernels/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reducer/kernels/fold.cc"
#include "reducer/kernels/targets.h"
//
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/families-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

FoldFunction find(wire::DType t, wire::Op op, Stage stage) noexcept {
  switch (t) {
    case wire::DType::kF32:
    case wire::DType::kF64: return find_float(t, op, stage);
    case wire::DType::kF16:
    case wire::DType::kBf16: return find_half(t, op, stage);
    case wire::DType::kF8e4m3:
    case wire::DType::kF8e5m2: return find_fp8(t, op, stage);
    case wire::DType::kMxfp8:
    case wire::DType::kInt8Block: return find_block(t, op, stage);
    case wire::DType::kI8:
    case wire::DType::kU8:
    case wire::DType::kI32:
    case wire::DType::kU32:
    case wire::DType::kI64:
    case wire::DType::kU64: return find_integer(t, op, stage);
  }
  return nullptr;
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {
namespace {

struct Compiled {
  int64_t bit;
  FoldTarget target;
};

// Best first, in Highway's order.
constexpr Compiled kCompiled[] = {
#if HWY_TARGETS & HWY_AVX3
    {HWY_AVX3, {"AVX3", N_AVX3::find}},
#endif
#if HWY_TARGETS & HWY_AVX2
    {HWY_AVX2, {"AVX2", N_AVX2::find}},
#endif
#if HWY_TARGETS & HWY_NEON
    {HWY_NEON, {"NEON", N_NEON::find}},
#endif
#if HWY_TARGETS & HWY_EMU128
    {HWY_EMU128, {"EMU128", N_EMU128::find}},
#endif
#if HWY_TARGETS & HWY_SCALAR
    {HWY_SCALAR, {"SCALAR", N_SCALAR::find}},
#endif
};

struct Runnable {
  FoldTarget targets[std::size(kCompiled)];
  size_t count = 0;
  Runnable() noexcept {
    const int64_t supported = supported_targets();
    for (const Compiled& c : kCompiled) {
      if ((supported & c.bit) != 0) targets[count++] = c.target;
    }
    // The baseline runs on every CPU that runs this program, even if detection finds no target.
    if (count == 0) targets[count++] = kCompiled[std::size(kCompiled) - 1].target;
  }
};

}  // namespace

std::span<const FoldTarget> fold_targets() noexcept {
  static const Runnable runnable;
  return {runnable.targets, runnable.count};
}

FoldFunction find_fold(wire::DType t, wire::Op op, Stage stage) noexcept {
  return fold_targets().front().find(t, op, stage);
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
