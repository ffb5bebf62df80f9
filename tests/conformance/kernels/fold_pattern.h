// Names, element data and helper functions of the fold tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/instrumented.h"
#include "reducer/kernels/fold.h"
#include "wire/dtype.h"
#include "wire/sum_order.h"

namespace sluice::kernels::test {

// Instrumented or unoptimized builds, and emulated processors, test fewer sizes and fewer random values.
#if !defined(__OPTIMIZE__) || SLUICE_INSTRUMENTED || defined(SLUICE_EMULATED)
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif

inline constexpr Stage kStages[] = {Stage::kWhole, Stage::kPartial, Stage::kFinish};
inline constexpr wire::SumOrder kOrders[] = {wire::SumOrder::kTree, wire::SumOrder::kGroups};

[[nodiscard]] std::vector<wire::DType> all_types();
[[nodiscard]] std::vector<wire::Op> all_ops();
[[nodiscard]] std::vector<wire::Op> ops_of(wire::DType t);  // those that apply to `t`

[[nodiscard]] wire::DType input_of(wire::DType t, Stage stage);
[[nodiscard]] wire::DType output_of(wire::DType t, Stage stage);

// Bytes per element of a source and of the destination.
[[nodiscard]] size_t input_size(wire::DType t, Stage stage);
[[nodiscard]] size_t output_size(wire::DType t, Stage stage);

// "bf16 avg finish on AVX2", "..., in groups".
[[nodiscard]] std::string describe(wire::DType t, wire::Op op, Stage stage, const char* target,
                                   wire::SumOrder order = wire::SumOrder::kTree);

// `count` random elements of `t`: a third arbitrary bits, a third numbers of similar magnitude, and the rest
// zeros of both signs, infinities, NaNs with payloads, subnormals, and the largest and smallest values. `t`
// is not a block type.
[[nodiscard]] std::vector<std::byte> random_elements(wire::DType t, size_t count, std::mt19937_64& random);

// `count` random elements of a source. A block type has blocks with ordinary scales and codes, blocks with
// special ones, and arbitrary bytes.
[[nodiscard]] std::vector<std::byte> random_input(wire::DType t, Stage stage, size_t count,
                                                  std::mt19937_64& random);

// "element 3 is 0x7fc0, reference 0x7f80" for the first difference between two results of a fold.
[[nodiscard]] std::string first_difference(wire::DType t, Stage stage, std::span<const std::byte> result,
                                           std::span<const std::byte> expected);

// Converts between elements of `t` and integers with the same bits.
[[nodiscard]] uint64_t pattern_at(std::span<const std::byte> bytes, wire::DType t, size_t i);
[[nodiscard]] std::vector<std::byte> elements(wire::DType t, const std::vector<uint64_t>& patterns);

// The result of one fold over the sources, on `target`, or on the scalar reference if `target` is null.
[[nodiscard]] std::vector<std::byte> run_fold(const FoldTarget* target, wire::DType t, wire::Op op,
                                              Stage stage, const std::vector<std::vector<std::byte>>& sources,
                                              uint32_t divisor, wire::SumOrder order = wire::SumOrder::kTree);

}  // namespace sluice::kernels::test
