#include "reducer/kernels/fold.h"

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

FoldFunction find(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order) noexcept {
  switch (t) {
    case wire::DType::kF32:
    case wire::DType::kF64: return find_float(t, op, stage, order);
    case wire::DType::kF16:
    case wire::DType::kBf16: return find_half(t, op, stage, order);
    case wire::DType::kF8e4m3:
    case wire::DType::kF8e5m2: return find_fp8(t, op, stage, order);
    case wire::DType::kMxfp8:
    case wire::DType::kInt8Block: return find_block(t, op, stage, order);
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
#include "reducer/kernels/targets/runnable_targets.h"

namespace sluice::kernels {
namespace {

constexpr CompiledTarget<FoldTarget> kCompiled[] = {SLUICE_COMPILED_TARGETS(find)};

}  // namespace

std::span<const FoldTarget> fold_targets() noexcept {
  static const RunnableTargets runnable(kCompiled);
  return runnable.all();
}

FoldFunction find_fold(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order) noexcept {
  return fold_targets().front().find(t, op, stage, order);
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
