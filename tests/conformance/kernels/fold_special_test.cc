// Single values, computed by hand from the rules of protocol.md section 7, on the scalar reference and on
// every target.
#include <gtest/gtest.h>

#include <vector>

#include "tests/conformance/kernels/fold_pattern.h"

namespace sluice::kernels::test {
namespace {

using wire::DType;
using wire::Op;

struct Case {
  const char* name;
  DType type;
  Op op;
  std::vector<uint64_t> sources;  // one element each
  uint64_t expected;
  uint32_t divisor = 1;
  Stage stage = Stage::kWhole;
};

constexpr auto kPartial = Stage::kPartial;
constexpr auto kFinish = Stage::kFinish;

const std::vector<Case>& cases() {
  using enum DType;
  using enum Op;
  static const std::vector<Case> all = {
      // Rounding: to nearest, ties to even, once.
      {"1 + 3/512 is above the tie", kBf16, kSum, {0x3f80, 0x3bc0}, 0x3f81},
      {"1 + 2/512 is a tie, rounds to even", kBf16, kSum, {0x3f80, 0x3b80}, 0x3f80},
      {"(1 + 1/128) + 1/256 is a tie, rounds up to even", kBf16, kSum, {0x3f81, 0x3b80}, 0x3f82},
      {"1 + four times 1/512 is 1 + 1/128 when rounded once",
       kBf16,
       kSum,
       {0x3f80, 0x3b00, 0x3b00, 0x3b00, 0x3b00},
       0x3f81},
      {"largest + largest", kBf16, kSum, {0x7f7f, 0x7f7f}, 0x7f80},
      {"-largest - largest", kBf16, kSum, {0xff7f, 0xff7f}, 0xff80},
      {"subnormals add", kBf16, kSum, {0x0001, 0x0002}, 0x0003},
      {"1 + 2^-11 is a tie", kF16, kSum, {0x3c00, 0x1000}, 0x3c00},
      {"1 + 2^-11 + 2^-23 is above the tie", kF16, kSum, {0x3c00, 0x1000, 0x0002}, 0x3c01},
      {"1 + 2^-11 + 2^-24: f32 drops the last", kF16, kSum, {0x3c00, 0x1000, 0x0001}, 0x3c00},
      {"65504 + 16 is the tie that overflows", kF16, kSum, {0x7bff, 0x4c00}, 0x7c00},
      {"65504 + 15.99", kF16, kSum, {0x7bff, 0x4bff}, 0x7bff},
      {"subnormal carries into normal", kF16, kSum, {0x03ff, 0x0001}, 0x0400},
      {"2^-25 is a tie with zero", kF16, kSum, {0x33000000}, 0x0000, 1, kFinish},
      {"3 * 2^-26 is above the tie", kF16, kSum, {0x33400000}, 0x0001, 1, kFinish},
      {"-2^-30 keeps its sign", kF16, kSum, {0xb0800000}, 0x8000, 1, kFinish},
      {"intermediate sums may exceed f16", kF16, kSum, {0x7bff, 0x7bff, 0xfbff}, 0x7bff},
      {"448 + 448", kF8e4m3, kSum, {0x7e, 0x7e}, 0x7e},
      {"-448 - 448", kF8e4m3, kSum, {0xfe, 0xfe}, 0xfe},
      {"infinity has no pattern in e4m3", kF8e4m3, kSum, {0x7f800000}, 0x7e, 1, kFinish},
      {"448 + 1 is nearest to 448", kF8e4m3, kSum, {0x7e, 0x38}, 0x7e},
      {"1 + 1/16 is a tie", kF8e4m3, kSum, {0x38, 0x18}, 0x38},
      {"smallest subnormals add", kF8e4m3, kSum, {0x01, 0x01}, 0x02},
      {"57344 + 57344", kF8e5m2, kSum, {0x7b, 0x7b}, 0x7b},
      {"infinity saturates", kF8e5m2, kSum, {0x7c}, 0x7b},
      {"-infinity saturates in min too", kF8e5m2, kMin, {0xfc, 0x3c}, 0xfb},
      {"a partial keeps infinity", kF8e5m2, kSum, {0x7c}, 0x7f800000, 1, kPartial},
      {"a partial keeps infinity in max", kF8e5m2, kMax, {0x7c, 0x00}, 0x7f800000, 1, kPartial},
      {"infinity times zero", kF8e5m2, kProd, {0x7c, 0x00}, 0x7e},
      {"1.25 + 1/8 is a tie, goes up to even", kF8e5m2, kSum, {0x3d, 0x30}, 0x3e},
      // NaN: one pattern per type, also from one source, also in a partial.
      {"signalling NaN with payload and sign", kF32, kSum, {0xff812345}, 0x7fc00000},
      {"NaN + 1", kF32, kSum, {0xffffffff, 0x3f800000}, 0x7fc00000},
      {"infinity - infinity", kF32, kSum, {0x7f800000, 0xff800000}, 0x7fc00000},
      {"zero times infinity", kF32, kProd, {0x80000000, 0x7f800000}, 0x7fc00000},
      {"infinity - infinity", kF64, kSum, {0x7ff0000000000000, 0xfff0000000000000}, 0x7ff8000000000000},
      {"NaN", kF64, kAvg, {0xfff0000000000001}, 0x7ff8000000000000},
      {"NaN", kF16, kSum, {0xfc01}, 0x7e00},
      {"NaN", kBf16, kProd, {0x7f81, 0x3f80}, 0x7fc0},
      {"NaN", kF8e4m3, kSum, {0xff}, 0x7f},
      {"NaN", kF8e5m2, kSum, {0xfd, 0x00}, 0x7e},
      {"NaN in a partial", kF16, kSum, {0xfc01}, 0x7fc00000, 1, kPartial},
      {"NaN from a partial", kF8e4m3, kSum, {0xffc00001}, 0x7f, 1, kFinish},
      // min and max: NaN loses to everything, -0 < +0.
      {"min(NaN, 1)", kF32, kMin, {0x7fc00001, 0x3f800000}, 0x3f800000},
      {"min(1, -NaN)", kF32, kMin, {0x3f800000, 0xffc00001}, 0x3f800000},
      {"max(-NaN, -1)", kF32, kMax, {0xff800001, 0xbf800000}, 0xbf800000},
      {"max(-1, NaN)", kF32, kMax, {0xbf800000, 0x7fffffff}, 0xbf800000},
      {"min(NaN, +infinity)", kF32, kMin, {0x7fffffff, 0x7f800000}, 0x7f800000},
      {"max(NaN, -infinity)", kF32, kMax, {0xffffffff, 0xff800000}, 0xff800000},
      {"min of NaNs alone", kF32, kMin, {0xff800001, 0x7fffffff}, 0x7fc00000},
      {"max of NaNs alone", kF32, kMax, {0xffffffff, 0x7f800001}, 0x7fc00000},
      {"min(-0, +0)", kF32, kMin, {0x80000000, 0x00000000}, 0x80000000},
      {"min(+0, -0)", kF32, kMin, {0x00000000, 0x80000000}, 0x80000000},
      {"max(-0, +0)", kF32, kMax, {0x80000000, 0x00000000}, 0x00000000},
      {"max(+0, -0)", kF32, kMax, {0x00000000, 0x80000000}, 0x00000000},
      {"min of subnormals", kF32, kMin, {0x00000002, 0x00000001}, 0x00000001},
      {"min(-1, -2)", kF64, kMin, {0xbff0000000000000, 0xc000000000000000}, 0xc000000000000000},
      {"max(NaN, -0)", kF64, kMax, {0xffffffffffffffff, 0x8000000000000000}, 0x8000000000000000},
      {"min of a NaN", kF64, kMin, {0xfff0000000000001}, 0x7ff8000000000000},
      {"min(NaN, 1)", kF16, kMin, {0x7e01, 0x3c00}, 0x3c00},
      {"max(-NaN, -infinity)", kF16, kMax, {0xffff, 0xfc00}, 0xfc00},
      {"min(-0, +0)", kBf16, kMin, {0x0000, 0x8000}, 0x8000},
      {"max of NaNs alone", kBf16, kMax, {0xffff, 0xff81}, 0x7fc0},
      {"min(NaN, 448)", kF8e4m3, kMin, {0xff, 0x7e}, 0x7e},
      {"max(NaN, -448)", kF8e4m3, kMax, {0x7f, 0xfe}, 0xfe},
      {"max(-0, +0)", kF8e5m2, kMax, {0x80, 0x00}, 0x00},
      {"min of NaNs alone", kF8e5m2, kMin, {0xff, 0x7d}, 0x7e},
      {"min(NaN, -0) in a partial", kF8e5m2, kMin, {0x7f, 0x80}, 0x80000000, 1, kPartial},
      {"min of partials", kF16, kMin, {0x7fc00000, 0xbf800000}, 0xbc00, 1, kFinish},
      // Plain floats.
      {"order of sources: (1e30 - 1e30) + 1", kF32, kSum, {0x7149f2ca, 0xf149f2ca, 0x3f800000}, 0x3f800000},
      {"order of sources: (1e30 + 1) - 1e30", kF32, kSum, {0x7149f2ca, 0x3f800000, 0xf149f2ca}, 0x00000000},
      {"tree: (1e30 - 1e30) + (1 + 1)",
       kF32,
       kSum,
       {0x7149f2ca, 0xf149f2ca, 0x3f800000, 0x3f800000},
       0x40000000},
      {"tree: (1e30 + 1) + (-1e30 + 1)",
       kF32,
       kSum,
       {0x7149f2ca, 0x3f800000, 0xf149f2ca, 0x3f800000},
       0x00000000},
      {"tree of five: ((1e30 + 1) + (1 - 1e30)) + 1",
       kF32,
       kSum,
       {0x7149f2ca, 0x3f800000, 0x3f800000, 0xf149f2ca, 0x3f800000},
       0x3f800000},
      {"subnormals are kept", kF32, kSum, {0x00000001, 0x00000001}, 0x00000002},
      {"half of the smallest normal", kF32, kProd, {0x00800000, 0x3f000000}, 0x00400000},
      {"1/3 times 3", kF32, kProd, {0x3eaaaaab, 0x40400000}, 0x3f800000},
      {"-0 + -0", kF32, kSum, {0x80000000, 0x80000000}, 0x80000000},
      {"-0 alone", kF32, kSum, {0x80000000}, 0x80000000},
      // Averages.
      {"(1 + 2) / 2", kF32, kAvg, {0x3f800000, 0x40000000}, 0x3fc00000, 2},
      {"1 / 3", kF32, kAvg, {0x3f800000}, 0x3eaaaaab, 3},
      {"1 / 3", kF64, kAvg, {0x3ff0000000000000}, 0x3fd5555555555555, 3},
      {"1 / 3", kBf16, kAvg, {0x3f80}, 0x3eab, 3},
      {"1 / 3", kF16, kAvg, {0x3c00}, 0x3555, 3},
      {"(65504 + 65504) / 2 does not overflow", kF16, kAvg, {0x7bff, 0x7bff}, 0x7bff, 2},
      {"(448 + 448) / 2 does not saturate", kF8e4m3, kAvg, {0x7e, 0x7e}, 0x7e, 2},
      {"infinity / 2 saturates", kF8e5m2, kAvg, {0x7c}, 0x7b, 2},
      {"the partial of an average is not divided", kBf16, kAvg, {0x3f80, 0x3f80}, 0x40000000, 2, kPartial},
      {"16777217 as f32 divisor is 16777216", kF32, kAvg, {0x4b800000}, 0x3f800000, 16777217},
      // Integers wrap; averages truncate towards zero after wrapping.
      {"127 + 1", kI8, kSum, {0x7f, 0x01}, 0x80},
      {"255 + 1", kU8, kSum, {0xff, 0x01}, 0x00},
      {"-128 * -1", kI8, kProd, {0x80, 0xff}, 0x80},
      {"16 * 17", kU8, kProd, {0x10, 0x11}, 0x10},
      {"largest + 1", kI32, kSum, {0x7fffffff, 1}, 0x80000000},
      {"65536 * 65537", kI32, kProd, {0x10000, 0x10001}, 0x00010000},
      {"largest + 2", kU32, kSum, {0xffffffff, 2}, 1},
      {"largest + 1", kI64, kSum, {0x7fffffffffffffff, 1}, 0x8000000000000000},
      {"(2^32 + 3) * (2^32 + 5)", kU64, kProd, {0x100000003, 0x100000005}, 0x80000000f},
      {"-3 * 5", kI64, kProd, {0xfffffffffffffffd, 5}, 0xfffffffffffffff1},
      {"signed order", kI8, kMin, {0x7f, 0x80}, 0x80},
      {"unsigned order", kU8, kMin, {0x7f, 0x80}, 0x7f},
      {"signed order", kI32, kMax, {0x80000000, 0}, 0},
      {"unsigned order", kU32, kMax, {0x80000000, 0}, 0x80000000},
      {"signed order", kI64, kMin, {0x8000000000000000, 1}, 0x8000000000000000},
      {"unsigned order", kU64, kMin, {0x8000000000000000, 1}, 1},
      {"unsigned order", kU64, kMax, {0x8000000000000000, 1}, 0x8000000000000000},
      {"-7 / 2", kI8, kAvg, {0xfe, 0xfb}, 0xfd, 2},
      {"-7 / 2", kI32, kAvg, {0xfffffffe, 0xfffffffb}, 0xfffffffd, 2},
      {"-7 / 2", kI64, kAvg, {0xfffffffffffffffe, 0xfffffffffffffffb}, 0xfffffffffffffffd, 2},
      {"(255 + 2) wraps to 1, / 2", kU8, kAvg, {0xff, 0x02}, 0x00, 2},
      {"(127 + 1) wraps to -128, / 2", kI8, kAvg, {0x7f, 0x01}, 0xc0, 2},
      {"-128 / 200, a divisor above the range of i8", kI8, kAvg, {0x80}, 0x00, 200},
      {"255 / 128", kU8, kAvg, {0xff}, 0x01, 128},
      {"largest / 3", kU32, kAvg, {0xffffffff}, 0x55555555, 3},
      {"largest / largest divisor", kU32, kAvg, {0xffffffff}, 1, 0xffffffff},
      {"(largest - 1) / largest divisor", kU32, kAvg, {0xfffffffe}, 0, 0xffffffff},
      {"smallest / 3", kI32, kAvg, {0x80000000}, 0xd5555556, 3},
      {"largest / 3", kU64, kAvg, {0xffffffffffffffff}, 0x5555555555555555, 3},
      {"smallest / 1", kI64, kAvg, {0x8000000000000000}, 0x8000000000000000, 1},
      {"the partial of an average is not divided", kI32, kAvg, {3, 4}, 7, 2, kPartial},
      {"the finish of an average is divided", kI32, kAvg, {7, 0xfffffff2}, 0xfffffffd, 2, kFinish},
  };
  return all;
}

// Repeats each value, so that both the vector loop and the scalar tail process it.
constexpr size_t kRepeat = 293;

TEST(FoldSpecial, MatchesManuallyComputedValues) {
  for (const Case& c : cases()) {
    std::vector<std::vector<std::byte>> sources;
    for (const uint64_t pattern : c.sources) {
      sources.push_back(elements(input_of(c.type, c.stage), std::vector<uint64_t>(kRepeat, pattern)));
    }
    for (size_t r = 0; r <= fold_targets().size(); ++r) {
      const FoldTarget* target = r == 0 ? nullptr : &fold_targets()[r - 1];
      const auto result = run_fold(target, c.type, c.op, c.stage, sources, c.divisor);
      for (size_t i = 0; i < kRepeat; ++i) {
        ASSERT_EQ(pattern_at(result, output_of(c.type, c.stage), i), c.expected)
            << c.name << ": " << describe(c.type, c.op, c.stage, r == 0 ? "reference" : target->name)
            << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::test
