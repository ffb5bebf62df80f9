#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reducer/kernels/fold_float.cc"
#include "reducer/kernels/targets.h"
//
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/combine-inl.h"
#include "reducer/kernels/elements-inl.h"
#include "reducer/kernels/families-inl.h"
#include "reducer/kernels/fold_loop-inl.h"
#include "reducer/kernels/fold_tree-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

// The accumulation type is the wire type, so stages differ only in whether avg divides.
template <class T, const FloatFormat& kFormat>
FoldFunction find_plain_float(wire::Op op, Stage stage, wire::SumOrder order) noexcept {
  using Kind = Plain<T>;
  using D = typename Kind::D;
  if (is_tree(op, order)) return find_tree<Kind>(op, stage);
  switch (op) {
    case wire::Op::kSum: return fold<Kind, FloatSum<D>>;
    case wire::Op::kProd: return fold<Kind, FloatProd<D>>;
    case wire::Op::kMin: return fold<Kind, FloatOrder<D, kFormat, true, true>>;
    case wire::Op::kMax: return fold<Kind, FloatOrder<D, kFormat, false, true>>;
    case wire::Op::kAvg: return stage == Stage::kPartial ? fold<Kind, FloatSum<D>> : fold<Kind, FloatAvg<D>>;
  }
  return nullptr;
}

FoldFunction find_float(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order) noexcept {
  return t == wire::DType::kF32 ? find_plain_float<float, kF32Format>(op, stage, order)
                                : find_plain_float<double, kF64Format>(op, stage, order);
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
