// Class Pattern generates the data of each rank and the expected result of a reduction. The elements look
// random, but the result over any number of ranks is exact in every element type and has a closed form. A
// check is therefore a bitwise comparison.
//
// Method: let a(rank, i) be a hash. Rank r contributes a(r+1, i) - a(r, i). The sum over ranks 0..n-1
// telescopes to a(n, i) - a(0, i). Partial sums in rank order telescope too, so they stay in the range in
// which the type is exact. Integers use their whole range and wrap. Products telescope in the same way (odd
// numbers modulo 2^bits; signed powers of two). For avg of floats the walk is closed, a(n) = a(0), and a
// value t(i) is added, so the mean is t(i). Partial sums over the ranks of a host are exact too. For min and
// max, a hash selects the rank that holds the extreme.
//
// The pattern has a prime period, so a check detects a chunk (a multiple of 64 bytes) at a wrong offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/dtype.h"

namespace sluice::bench {

inline constexpr size_t kPatternPeriod = 65521;  // elements; the largest prime below 2^16

// The order in which floats are added. kAny covers rings and trees; its values are smaller, so that the sum
// stays exact in every order.
enum class SummationOrder { kByRank, kAny };

class Pattern {
 public:
  // `ranks`: 1 to 4096. Different seeds give different data.
  Pattern(wire::DType dtype, wire::Op op, uint32_t ranks, uint64_t seed,
          SummationOrder order = SummationOrder::kByRank) noexcept
      : dtype_(dtype), op_(op), ranks_(ranks), seed_(seed), order_(order) {}

  // Writes the contribution of `rank` to `count` elements at `out`.
  void fill(uint32_t rank, size_t count, std::byte* out) const;
  // Writes the expected result.
  void fill_result(size_t count, std::byte* out) const;
  // Returns the number of elements of `data` that differ from the expected result.
  [[nodiscard]] uint64_t count_wrong(const std::byte* data, size_t count) const;

 private:
  [[nodiscard]] uint64_t hash(uint64_t rank, uint64_t i) const noexcept;
  [[nodiscard]] uint64_t contribution(uint32_t rank, uint64_t i) const noexcept;  // bits of the element
  [[nodiscard]] uint64_t result(uint64_t i) const noexcept;
  [[nodiscard]] uint64_t integer_contribution(uint32_t rank, uint64_t i) const noexcept;
  [[nodiscard]] uint64_t integer_result(uint64_t i) const noexcept;
  [[nodiscard]] double sum_bound() const noexcept;
  [[nodiscard]] double mean_bound() const noexcept;
  [[nodiscard]] double float_contribution(uint32_t rank, uint64_t i) const noexcept;
  [[nodiscard]] double float_result(uint64_t i) const noexcept;
  void repeat(const std::vector<std::byte>& period, size_t count, std::byte* out) const;
  [[nodiscard]] std::vector<std::byte> one_period(size_t count, bool expected, uint32_t rank) const;

  wire::DType dtype_;
  wire::Op op_;
  uint32_t ranks_;
  uint64_t seed_;
  SummationOrder order_;
};

}  // namespace sluice::bench
