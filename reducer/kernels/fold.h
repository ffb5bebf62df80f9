// The reducer's arithmetic: folds n sources into one destination, in one pass.
//
// The vector code is compiled for several instruction sets; the best one of this CPU is chosen at run time.
// The choice does not change the bits of a result: every target equals scalar_reference.h.
//
// Order (protocol.md section 7). Sums, products and averages of floats and blocks are balanced binary trees
// over the sources, or for sessions with earlier releases sequences in source order. The other results do
// not depend on the order. Ranks are folded in groups of kGroup, which are subtrees, so partial sums of
// groups folded by kFinish give the tree over all ranks.
//
// Rules. f16, bf16 and fp8 widen to f32, fold and round once, to
// nearest even. fp8 saturates to the largest finite value; f16 and bf16 overflow to infinity. A NaN result is
// the type's canonical quiet NaN. min and max ignore a NaN unless all inputs are NaN, and -0 < +0. Integers
// wrap. Subnormals are kept. avg divides the folded sum by n: floats in the accumulation type, integers by
// truncating the wrapped sum towards zero.
//
// An element of a block type is a block of 256 values (wire/payload/block_codec.h), or its 256 partial sums
// in f32. Blocks are decoded to f32, folded and encoded once.
//
// Sources and destination may have any alignment; the destination overlaps no source. Any thread. No function
// here allocates or traps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/dtype.h"
#include "wire/sum_order.h"

namespace sluice::kernels {

inline constexpr size_t kGroup = 8;         // consecutive ranks summed in one pass (docs/design/adr/0002)
inline constexpr size_t kMaxSources = 256;  // of one fold

// The element types that a fold reads and writes.
enum class Stage : uint8_t {
  kWhole,    // wire type to wire type, rounded, divided for avg. For sessions of one group.
  kPartial,  // wire type to accumulation type, neither rounded nor divided. One group of a larger session.
  kFinish,   // partial sums in group order to wire type, rounded, divided for avg.
};

// Each source has `count` contiguous elements; 1 <= sources.size() <= kMaxSources, usually at most kGroup
// except for kFinish. `divisor` is the number of ranks of the session, >= 1; avg uses it in kWhole and
// kFinish.
using FoldFunction = void (*)(std::span<const std::byte* const> sources, size_t count, uint32_t divisor,
                              std::byte* destination) noexcept;

// The fold of this CPU's best target. Looked up once per slice. `t` and `op` must be valid. Null
// if wire::is_supported() is false.
[[nodiscard]] FoldFunction find_fold(wire::DType t, wire::Op op, Stage stage,
                                     wire::SumOrder order = wire::SumOrder::kTree) noexcept;

// For tests and benchmarks: the targets that this CPU can run, best first, e.g. "AVX3", "AVX2", "SCALAR".
struct FoldTarget {
  const char* name;
  FoldFunction (*find)(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order) noexcept;
};
[[nodiscard]] std::span<const FoldTarget> fold_targets() noexcept;

}  // namespace sluice::kernels
