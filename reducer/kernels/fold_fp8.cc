#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reducer/kernels/fold_fp8.cc"
#include "reducer/kernels/targets.h"
//
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/families-inl.h"
#include "reducer/kernels/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

FoldFunction find_fp8(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order) noexcept {
  return t == wire::DType::kF8e4m3 ? find_small_float<E4m3, int8_t, kE4m3Format>(op, stage, order)
                                   : find_small_float<E5m2, int8_t, kE5m2Format>(op, stage, order);
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
