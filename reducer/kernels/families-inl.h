// The families of folds of one target. Each has its own file, which bounds the compile time per file.
// Compiled once per target.
#include "reducer/kernels/targets.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/fold.h"
#include "wire/dtype.h"
#include "wire/sum_order.h"

#if defined(SLUICE_REDUCER_KERNELS_FAMILIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_FAMILIES_INL_H_
#undef SLUICE_REDUCER_KERNELS_FAMILIES_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_FAMILIES_INL_H_
#endif

namespace sluice::kernels::HWY_NAMESPACE {

// Each function requires a type of its family. Integers have the same bits in every order.
FoldFunction find_float(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order) noexcept;  // f32 f64
FoldFunction find_half(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order) noexcept;   // f16 bf16
FoldFunction find_fp8(wire::DType t, wire::Op op, Stage stage,
                      wire::SumOrder order) noexcept;  // f8e4m3 f8e5m2
FoldFunction find_block(wire::DType t, wire::Op op, Stage stage,
                        wire::SumOrder order) noexcept;                       // mxfp8 int8-block; sum avg
FoldFunction find_integer(wire::DType t, wire::Op op, Stage stage) noexcept;  // i8 u8 i32 u32 i64 u64

}  // namespace sluice::kernels::HWY_NAMESPACE

#endif  // per-target include guard
