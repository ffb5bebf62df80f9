// Names, element data and runners shared by the tests of the folds.
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

namespace sluice::kernels::test {

// Instrumented or unoptimised code gets fewer sizes and fewer random values.
#if !defined(__OPTIMIZE__) || SLUICE_INSTRUMENTED
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif

inline constexpr Stage kStages[] = {Stage::kWhole, Stage::kPartial, Stage::kFinish};

[[nodiscard]] std::vector<wire::DType> all_types();
[[nodiscard]] std::vector<wire::Op> all_ops();

[[nodiscard]] wire::DType input_of(wire::DType t, Stage stage);
[[nodiscard]] wire::DType output_of(wire::DType t, Stage stage);

// "bf16 avg finish on AVX2".
[[nodiscard]] std::string describe(wire::DType t, wire::Op op, Stage stage, const char* target);

// `count` elements of `t`: a third any bits at all, a third numbers of like magnitude, the rest zeros of both
// signs, infinities, NaNs with payloads, subnormals, the largest and the smallest values.
[[nodiscard]] std::vector<std::byte> random_elements(wire::DType t, size_t count, std::mt19937_64& random);

// Element i of `bytes` as a number of its width, and back.
[[nodiscard]] uint64_t pattern_at(std::span<const std::byte> bytes, wire::DType t, size_t i);
[[nodiscard]] std::vector<std::byte> elements(wire::DType t, const std::vector<uint64_t>& patterns);

// The result of one fold over sources given as elements, on a target or ("reference") on the scalar
// reference.
[[nodiscard]] std::vector<std::byte> run_fold(const FoldTarget* target, wire::DType t, wire::Op op,
                                              Stage stage, const std::vector<std::vector<std::byte>>& sources,
                                              uint32_t divisor);

}  // namespace sluice::kernels::test
