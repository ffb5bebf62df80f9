// Folds of floats that accumulate in f32. Compiled once per target.
#include "reducer/kernels/targets.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/combine-inl.h"
#include "reducer/kernels/elements-inl.h"
#include "reducer/kernels/fold.h"
#include "reducer/kernels/fold_loop-inl.h"
#include "reducer/kernels/fold_tree-inl.h"

#if defined(SLUICE_REDUCER_KERNELS_SMALL_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_SMALL_FLOAT_INL_H_
#undef SLUICE_REDUCER_KERNELS_SMALL_FLOAT_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_SMALL_FLOAT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

template <class Kind, class O>
FoldFunction at_stage(Stage stage) noexcept {
  switch (stage) {
    case Stage::kWhole: return fold<Kind, O>;
    case Stage::kPartial: return fold<Kind, O, false, true>;
    case Stage::kFinish: return fold<Kind, O, true, false>;
  }
  return nullptr;
}

// Signed is an integer type as wide as a pattern. The min or max of patterns is one of the patterns, so
// kWhole does not widen.
template <class Kind, class Signed, const FloatFormat& kFormat, bool kMin>
FoldFunction find_order(Stage stage) noexcept {
  using Patterns = Plain<Signed>;
  if (stage == Stage::kWhole) return fold<Patterns, FloatOrder<typename Patterns::D, kFormat, kMin, true>>;
  return at_stage<Kind, FloatOrder<DF, kF32Format, kMin, false>>(stage);
}

template <class Kind, class Signed, const FloatFormat& kFormat>
FoldFunction find_small_float(wire::Op op, Stage stage, wire::SumOrder order) noexcept {
  if (is_tree(op, order)) return find_tree<Kind>(op, stage);
  switch (op) {
    case wire::Op::kSum: return at_stage<Kind, FloatSum<DF>>(stage);
    case wire::Op::kProd: return at_stage<Kind, FloatProd<DF>>(stage);
    case wire::Op::kMin: return find_order<Kind, Signed, kFormat, true>(stage);
    case wire::Op::kMax: return find_order<Kind, Signed, kFormat, false>(stage);
    case wire::Op::kAvg:
      if (stage == Stage::kPartial) return at_stage<Kind, FloatSum<DF>>(stage);
      return at_stage<Kind, FloatAvg<DF>>(stage);
  }
  return nullptr;
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
