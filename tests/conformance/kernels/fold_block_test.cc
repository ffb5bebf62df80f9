// Folds of the block types mxfp8 and int8-block, on the scalar reference and on every target.
// tests/python/blocks_test.py compares their encoding with an independent implementation.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/conformance/kernels/fold_pattern.h"
#include "wire/payload/block_codec.h"

namespace sluice::kernels::test {
namespace {

using wire::DType;
using wire::kBlockBytes;
using wire::kBlockScaleBytes;
using wire::kBlockValues;
using wire::Op;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kNan = 0x7fc00000;

const std::vector<DType>& block_types() {
  static const std::vector<DType> types = {DType::kMxfp8, DType::kInt8Block};
  return types;
}

// One block whose scales have the given pattern: an E8M0 byte, or an f32.
template <class Code>
Bytes block(DType t, uint32_t scale, const Code& code_of) {
  Bytes bytes(kBlockBytes);
  const size_t size = t == DType::kMxfp8 ? 1 : sizeof scale;
  for (size_t i = 0; i < kBlockScaleBytes; i += size) std::memcpy(&bytes[i], &scale, size);
  for (size_t i = 0; i < kBlockValues; ++i) bytes[kBlockScaleBytes + i] = static_cast<std::byte>(code_of(i));
  return bytes;
}

Bytes all_codes(DType t, uint32_t scale) {
  return block(t, scale, [](size_t i) { return i; });
}

void append(Bytes& all, const Bytes& bytes) {
  all.insert(all.end(), bytes.begin(), bytes.end());
}

// Scales of int8-block: those that senders may use, and others.
std::vector<uint32_t> int8_scales() {
  std::vector<uint32_t> scales = {0,          kNan,       0x00800000, 0x7f7fff00, 0x7c000000,
                                  0x7bffff00, 0x7bffff01, 0x80000000, 0x80800000, 0x00000100,
                                  0x00000001, 0x7f800000, 0xff800000, 0x7f800001};
  std::mt19937 random(1);
  for (uint32_t exponent = 1; exponent < 255; ++exponent)
    scales.push_back((exponent << 23) | (random() & 0x7fff00));
  return scales;
}

// The pattern of a decoded value, by the rules of protocol.md section 6.
uint32_t decoded(DType t, uint32_t scale, uint8_t code) {
  double value = 0;
  if (t == DType::kMxfp8) {
    const int exponent = code >> 3 & 15;
    const int significand = exponent == 0 ? code & 7 : 8 + (code & 7);
    if ((code & 127) == 127 || scale == 255) return kNan;
    value = std::ldexp(significand, std::max(exponent, 1) - 10 + static_cast<int>(scale) - 127);
    if (code >= 128) value = -value;
  } else {
    value = static_cast<double>(static_cast<int8_t>(code)) * static_cast<double>(std::bit_cast<float>(scale));
  }
  const auto narrow = static_cast<float>(value);
  return std::isnan(narrow) ? kNan : std::bit_cast<uint32_t>(narrow);
}

void expect_on_every_target(DType t, Op op, Stage stage, const std::vector<Bytes>& sources,
                            uint32_t divisor) {
  for (const wire::SumOrder order : kOrders) {
    const Bytes expected = run_fold(nullptr, t, op, stage, sources, divisor, order);
    for (const FoldTarget& target : fold_targets()) {
      const Bytes result = run_fold(&target, t, op, stage, sources, divisor, order);
      ASSERT_TRUE(result == expected)
          << describe(t, op, stage, target.name, order) << ", " << sources.size() << " sources, divisor "
          << divisor << ": " << first_difference(t, stage, result, expected);
    }
  }
}

TEST(FoldBlock, DecodesEveryCodeWithEveryScale) {
  for (const DType t : block_types()) {
    std::vector<uint32_t> scales = int8_scales();
    if (t == DType::kMxfp8) {
      scales.resize(256);
      for (uint32_t s = 0; s < 256; ++s) scales[s] = s;
    }
    Bytes blocks;
    for (const uint32_t scale : scales) append(blocks, all_codes(t, scale));
    for (size_t r = 0; r <= fold_targets().size(); ++r) {
      const FoldTarget* target = r == 0 ? nullptr : &fold_targets()[r - 1];
      const Bytes values = run_fold(target, t, Op::kSum, Stage::kPartial, {blocks}, 1);
      for (size_t i = 0; i < scales.size() * kBlockValues; ++i) {
        const uint32_t scale = scales[i / kBlockValues];
        ASSERT_EQ(pattern_at(values, DType::kF32, i), decoded(t, scale, static_cast<uint8_t>(i)))
            << describe(t, Op::kSum, Stage::kPartial, r == 0 ? "reference" : target->name) << ", scale "
            << std::hex << scale << ", code " << i % kBlockValues;
      }
    }
    // Each scale beside every other one, so that a special block is added to an ordinary one and the reverse.
    std::vector<Bytes> sources(2, blocks);
    for (size_t turn = 0; turn < (kSlowBuild ? 3 : scales.size()); ++turn) {
      std::rotate(sources[1].begin(), sources[1].begin() + kBlockBytes, sources[1].end());
      expect_on_every_target(t, Op::kSum, Stage::kPartial, sources, 1);
      expect_on_every_target(t, Op::kAvg, Stage::kWhole, sources, 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FoldBlock, EqualsTheReferenceForAnyNumberOfSources) {
  constexpr size_t kBlocks = SLUICE_INSTRUMENTED ? 3 : 13;
  std::vector<uint32_t> divisors = {1, 3, 0xffffffff};
  if (!SLUICE_INSTRUMENTED) divisors.insert(divisors.end(), {8, 256, 1000, 16777217, 0x80000000});
  std::mt19937_64 random(9);
  for (const DType t : block_types()) {
    for (const Stage stage : kStages) {
      for (size_t n = 1; n <= 17; n += SLUICE_INSTRUMENTED ? 4 : 1) {
        std::vector<Bytes> sources;
        for (size_t k = 0; k < n; ++k) sources.push_back(random_input(t, stage, kBlocks, random));
        const auto divisor = static_cast<uint32_t>(n);
        expect_on_every_target(t, Op::kSum, stage, sources, divisor);
        expect_on_every_target(t, Op::kAvg, stage, sources, divisor);
        for (const uint32_t d : divisors) expect_on_every_target(t, Op::kAvg, stage, sources, d);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The values around every tie of the codes, for groups whose largest value has any exponent.
TEST(FoldBlock, EncodesTies) {
  for (const DType t : block_types()) {
    const size_t group = t == DType::kMxfp8 ? wire::Mxfp8::kGroup : wire::Int8Block::kGroup;
    std::mt19937_64 random(2);
    std::vector<uint64_t> patterns;
    for (int exponent = -149; exponent < 128; exponent += kSlowBuild ? 9 : 1) {
      for (size_t i = 0; i < kBlockValues; ++i) {
        // The half-way points between codes, in units of the smallest distance.
        const auto code = static_cast<int>(random() % 120);
        double x = t == DType::kInt8Block ? (code + 0.5) * 2 : std::ldexp(17 + 2 * (code % 8), code / 8 - 7);
        if (t == DType::kMxfp8 && code < 8) x = (code + 0.5) / 256;
        if (i % group == 0) x = t == DType::kInt8Block ? 254 : 448;
        auto value = static_cast<float>(std::ldexp(x, exponent - (t == DType::kInt8Block ? 8 : 9)));
        if (i % 3 == 1) value = std::nextafter(value, 0.0F);
        if (i % 3 == 2 && i % group != 0) value = std::nextafter(value, HUGE_VALF);
        patterns.push_back(std::bit_cast<uint32_t>(random() % 2 == 0 ? value : -value));
      }
    }
    expect_on_every_target(t, Op::kSum, Stage::kFinish, {elements(DType::kF32, patterns)}, 1);
  }
}

struct EncodingCase {
  const char* name;
  DType type;
  std::vector<uint32_t> values;  // the first values of a block, as f32; the rest is +0
  uint32_t scale;                // of the first group
  std::vector<uint8_t> codes;
};

TEST(FoldBlock, EncodesManuallyComputedValues) {
  using enum DType;
  const std::vector<EncodingCase> cases = {
      {"zeros keep their sign", kMxfp8, {0x00000000, 0x80000000}, 0, {0x00, 0x80}},
      {"448 needs X = 1", kMxfp8, {0x43e00000, 0x3f800000}, 127, {0x7e, 0x38}},
      {"just above 448 needs X = 2", kMxfp8, {0x43e00001, 0x3f800000}, 128, {0x76, 0x30}},
      {"1 is 256 / 2^8", kMxfp8, {0x3f800000, 0xbf800000}, 119, {0x78, 0xf8}},
      {"1 and 1 + 1/16 is a tie, 1 + 3/16 too",
       kMxfp8,
       {0x3f800000, 0x3f880000, 0x3f980000},
       119,
       {0x78, 0x78, 0x7a}},
      {"the smallest f32", kMxfp8, {0x00000001, 0x80000001}, 0, {0x00, 0x80}},
      {"the smallest normal f32", kMxfp8, {0x00800000}, 0, {0x40}},
      {"the largest f32", kMxfp8, {0x7f7fffff, 0x7e800000}, 247, {0x78, 0x68}},
      {"NaN and infinities are no scale",
       kMxfp8,
       {0x7f800000, 0xff800000, 0xffc00001, 0x43e00000},
       127,
       {0x7f, 0x7f, 0x7f, 0x7e}},
      {"a group of infinities", kMxfp8, {0xff800000}, 0, {0x7f, 0x00}},
      {"zeros", kInt8Block, {0x00000000, 0x80000000}, 0, {0, 0}},
      {"127 has scale 1",
       kInt8Block,
       {0x42fe0000, 0xc2fe0000, 0x3f000000, 0x3fc00000, 0x40200000},
       0x3f800000,
       {127, 129, 0, 2, 2}},
      {"1 / 127 is truncated to 16 bits", kInt8Block, {0x3f800000, 0xbf800000}, 0x3c010200, {127, 129}},
      {"the smallest scale", kInt8Block, {0x00000001, 0x00800000, 0x80c00000}, 0x00800000, {0, 1, 254}},
      {"the largest f32", kInt8Block, {0x7f7fffff}, 0x7c010200, {127}},
      {"an infinity makes the scale a NaN", kInt8Block, {0x3f800000, 0xff800000}, kNan, {0, 0}},
      {"so does a NaN", kInt8Block, {0x3f800000, 0xffffffff}, kNan, {0, 0}},
  };
  for (const EncodingCase& c : cases) {
    std::vector<uint64_t> patterns(kBlockValues);
    std::copy(c.values.begin(), c.values.end(), patterns.begin());
    const Bytes values = elements(DType::kF32, patterns);
    for (size_t r = 0; r <= fold_targets().size(); ++r) {
      const FoldTarget* target = r == 0 ? nullptr : &fold_targets()[r - 1];
      const Bytes result = run_fold(target, c.type, Op::kSum, Stage::kFinish, {values}, 1);
      const char* const name = r == 0 ? "reference" : target->name;
      uint32_t scale = 0;
      std::memcpy(&scale, result.data(), c.type == DType::kMxfp8 ? 1 : sizeof scale);
      EXPECT_EQ(scale, c.scale) << c.name << " on " << name << std::hex << ": 0x" << scale;
      for (size_t i = 0; i < c.codes.size(); ++i) {
        EXPECT_EQ(std::to_integer<unsigned>(result[kBlockScaleBytes + i]), c.codes[i])
            << c.name << " on " << name << ", code " << i;
      }
      EXPECT_TRUE(wire::are_valid_blocks(c.type, result)) << c.name;
    }
  }
}

// A zero of the first source keeps its sign, and a sum of products is a sum of the rounded products.
TEST(FoldBlock, AddsAsATreeOverTheSources) {
  for (size_t r = 0; r <= fold_targets().size(); ++r) {
    const FoldTarget* target = r == 0 ? nullptr : &fold_targets()[r - 1];
    const auto sum = [&](DType t, const std::vector<std::pair<uint32_t, uint8_t>>& terms) {
      std::vector<Bytes> sources;
      for (const auto& [scale, code] : terms)
        sources.push_back(block(t, scale, [c = code](size_t) { return c; }));
      const Bytes values = run_fold(target, t, Op::kSum, Stage::kPartial, sources, 1);
      return static_cast<uint32_t>(pattern_at(values, DType::kF32, kBlockValues - 1));
    };
    EXPECT_EQ(sum(DType::kMxfp8, {{127, 0x80}}), 0x80000000U);
    EXPECT_EQ(sum(DType::kMxfp8, {{127, 0x80}, {127, 0x80}}), 0x80000000U);
    EXPECT_EQ(sum(DType::kMxfp8, {{127, 0x80}, {127, 0x00}}), 0U);
    EXPECT_EQ(sum(DType::kMxfp8, {{254, 0x7e}, {254, 0xfe}}), kNan);         // infinity - infinity
    EXPECT_EQ(sum(DType::kMxfp8, {{247, 0x7e}, {246, 0xfe}}), 0x7f800000U);  // fused: finite
    EXPECT_EQ(sum(DType::kMxfp8, {{246, 0xfe}, {247, 0x7e}}), 0x7f800000U);
    EXPECT_EQ(sum(DType::kMxfp8, {{157, 0x38}, {157, 0xb8}, {127, 0x38}}), 0x3f800000U);
    EXPECT_EQ(sum(DType::kMxfp8, {{157, 0x38}, {127, 0x38}, {157, 0xb8}}), 0U);
    // A tree: 2^30 and -2^30 of ranks 0 and 1 cancel before ranks 2 and 3 are added, and across them.
    EXPECT_EQ(sum(DType::kMxfp8, {{157, 0x38}, {157, 0xb8}, {127, 0x38}, {127, 0x38}}), 0x40000000U);
    EXPECT_EQ(sum(DType::kMxfp8, {{157, 0x38}, {127, 0x38}, {127, 0x38}, {157, 0xb8}}), 0U);
    EXPECT_EQ(sum(DType::kInt8Block, {{0x3f800000, 0}, {0x3f800000, 0xff}}), 0xbf800000U);
    EXPECT_EQ(sum(DType::kInt8Block, {{0x7f000000, 0xff}, {0x7f000000, 2}}), 0x7f800000U);  // fused: finite
    EXPECT_EQ(sum(DType::kInt8Block, {{0x7c010200, 0x81}, {0x7c7fff00, 127}}), 0x7f800000U);
    EXPECT_EQ(sum(DType::kInt8Block, {{0x3f800000, 1}, {kNan, 0}}), kNan);
  }
}

TEST(FoldBlock, HasOnlySumAndAvg) {
  for (const DType t : block_types()) {
    for (const Op op : all_ops()) {
      for (const Stage stage : kStages) {
        for (const FoldTarget& target : fold_targets())
          EXPECT_EQ(target.find(t, op, stage, wire::SumOrder::kTree) != nullptr, wire::is_supported(t, op));
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::test
