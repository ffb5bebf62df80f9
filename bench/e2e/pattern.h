// Data for checks over the network: every rank's elements look random, and yet the reduction over any number
// of ranks is exact in every element type and known without adding anything up, so a check is a comparison of
// bits.
//
// How: with a hashed a(rank, i), rank r contributes a(r+1, i) - a(r, i); the sum over ranks 0..n-1 telescopes
// to a(n, i) - a(0, i), and so does every partial sum in rank order, so none of them leaves the range in
// which the type is exact. Integers use their whole range and wrap. Products telescope the same way (odd
// numbers modulo 2^bits; signed powers of two). For avg of floats the walk is closed, a(n) = a(0), and a
// value t(i) is added: the mean is t(i). For min and max one hashed rank holds the extreme.
//
// The pattern repeats with a prime period, so a chunk (a multiple of 64 bytes) that lands in a wrong place
// shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/dtype.h"

namespace sluice::bench {

inline constexpr size_t kPatternPeriod = 65521;  // elements; the largest prime below 2^16

// In which order of the ranks floats may be added up for the sum to be exact. Rings and trees have orders of
// their own; the data is smaller for them.
enum class AddOrder { kByRank, kAny };

class Pattern {
 public:
  // `ranks` from 1 to 4096. `seed` makes different data of the same kind.
  Pattern(wire::DType dtype, wire::Op op, uint32_t ranks, uint64_t seed,
          AddOrder order = AddOrder::kByRank) noexcept
      : dtype_(dtype), op_(op), ranks_(ranks), seed_(seed), order_(order) {}

  // What `rank` contributes, into `count` elements at `out`.
  void fill(uint32_t rank, size_t count, std::byte* out) const;
  // Elements of `data` that are not what the reduction gives.
  [[nodiscard]] uint64_t count_wrong(const std::byte* data, size_t count) const;

 private:
  [[nodiscard]] uint64_t hash(uint64_t rank, uint64_t i) const noexcept;
  [[nodiscard]] uint64_t contribution(uint32_t rank, uint64_t i) const noexcept;  // as bits of the element
  [[nodiscard]] uint64_t result(uint64_t i) const noexcept;
  [[nodiscard]] uint64_t integer_contribution(uint32_t rank, uint64_t i) const noexcept;
  [[nodiscard]] uint64_t integer_result(uint64_t i) const noexcept;
  [[nodiscard]] double sum_bound() const noexcept;
  [[nodiscard]] double float_contribution(uint32_t rank, uint64_t i) const noexcept;
  [[nodiscard]] double float_result(uint64_t i) const noexcept;
  [[nodiscard]] std::vector<std::byte> one_period(size_t count, bool expected, uint32_t rank) const;

  wire::DType dtype_;
  wire::Op op_;
  uint32_t ranks_;
  uint64_t seed_;
  AddOrder order_;
};

}  // namespace sluice::bench
