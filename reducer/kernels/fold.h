// The arithmetic of a reducer: n sources, one pass, the order of the sources. Plain C++ face; the vector code
// behind it is compiled for several instruction sets and the best one of this CPU is taken at run time. The
// bits of a result do not depend on that choice: every target equals the scalar reference
// (scalar_reference.h).
//
// Rules (PROTOCOL.md section 7). f16, bf16 and fp8 widen to f32, fold there in source order, and round once,
// to nearest even. fp8 saturates to the largest finite value; f16 and bf16 overflow to infinity. A NaN result
// is the type's canonical quiet NaN. min and max ignore a NaN unless all are NaN, and -0 < +0. Integers wrap.
// Subnormals are kept. avg divides the folded sum by n: in the accumulation type for floats, truncating
// towards zero (on the wrapped sum) for integers.
//
// Sources and destination: any alignment, no overlap between destination and a source. Any thread. Nothing
// allocates or traps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/dtype.h"

namespace sluice::kernels {

inline constexpr size_t kGroup = 8;  // consecutive ranks summed in one fused pass (docs/adr/0002)

// What a fold reads and what it writes.
enum class Stage : uint8_t {
  kWhole,    // sources: wire type; destination: wire type, rounded, divided for avg (n <= kGroup, the common
             // case)
  kPartial,  // sources: wire type; destination: accumulation type, neither rounded nor divided (one group of
             // a larger session)
  kFinish,   // sources: partials in accumulation type, in group order; destination: wire type, rounded,
             // divided for avg
};

// sources[i]: `count` contiguous elements. 1 <= sources.size() <= 256 (kWhole and kPartial: usually <=
// kGroup). divisor: number of ranks in the session, used by avg in kWhole and kFinish, >= 1.
using FoldFunction = void (*)(std::span<const std::byte* const> sources, size_t count, uint32_t divisor,
                              std::byte* destination) noexcept;

// The fold for this CPU's best target; looked up once per operation, called per piece. `t` and `op` must be
// valid.
[[nodiscard]] FoldFunction find_fold(wire::DType t, wire::Op op, Stage stage) noexcept;

// For tests and benchmarks: every target this CPU can run, best first; names like "AVX3", "AVX2", "SCALAR".
struct FoldTarget {
  const char* name;
  FoldFunction (*find)(wire::DType t, wire::Op op, Stage stage) noexcept;
};
[[nodiscard]] std::span<const FoldTarget> fold_targets() noexcept;

}  // namespace sluice::kernels
