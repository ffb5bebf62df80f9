#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reducer/kernels/fold_half.cc"
#include "reducer/kernels/targets.h"
//
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/families-inl.h"
#include "reducer/kernels/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

FoldFunction find_half(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order) noexcept {
  return t == wire::DType::kF16 ? find_small_float<F16, int16_t, kF16Format>(op, stage, order)
                                : find_small_float<Bf16, int16_t, kBf16Format>(op, stage, order);
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
