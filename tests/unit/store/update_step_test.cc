#include "store/update/update_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/float_bits.h"

namespace sluice::store {
namespace {

using Words = std::vector<uint32_t>;
using Floats = std::vector<float>;

Floats floats_of(const Words& words) {
  Floats out;
  for (const uint32_t word : words) out.push_back(float_of(word));
  return out;
}

Words words_of(const Floats& values) {
  Words out;
  for (const float x : values) out.push_back(bits_of(x));
  return out;
}

struct Version {
  std::array<Floats, kMaxArrays> arrays;

  explicit Version(Floats parameters) {
    for (Floats& array : arrays) array.resize(parameters.size());
    arrays[0] = std::move(parameters);
  }
  [[nodiscard]] ConstShardArrays read() const {
    return {arrays[0].data(), arrays[1].data(), arrays[2].data()};
  }
  [[nodiscard]] ShardArrays write() { return {arrays[0].data(), arrays[1].data(), arrays[2].data()}; }
};

// One step with deltas of weight 1, in ranges of `range` elements.
Version step(const UpdateRule& rule, uint64_t steps_before, const Version& from,
             const std::vector<StagedDelta>& deltas, size_t range = 1 << 20) {
  Version to(Floats(from.arrays[0].size(), 777));
  const UpdateStep update(rule, steps_before, deltas);
  for (size_t first = 0; first < from.arrays[0].size(); first += range)
    update.run(from.read(), to.write(), first, std::min(range, from.arrays[0].size() - first));
  return to;
}

// ---- Golden values of PyTorch ----

struct GoldenStep {
  Words gradient;
  std::vector<Words> arrays;
};
struct GoldenCase {
  UpdateRule rule;
  Words parameters;
  std::vector<GoldenStep> steps;
};

const std::vector<GoldenCase>& golden_cases() {
  static const std::vector<GoldenCase> cases = {
#include "tests/unit/store/update_golden.inc"
  };
  return cases;
}

TEST(UpdateStep, GivesTheBitsOfPyTorch) {
  for (const GoldenCase& golden : golden_cases()) {
    SCOPED_TRACE(testing::Message() << to_string(golden.rule.kind) << ' ' << golden.rule.beta1);
    Version version(floats_of(golden.parameters));
    for (size_t t = 0; t < golden.steps.size(); ++t) {
      const Floats gradient = floats_of(golden.steps[t].gradient);
      version = step(golden.rule, t, version, {{.values = gradient.data()}});
      ASSERT_EQ(golden.steps[t].arrays.size(), array_count(golden.rule.kind));
      for (size_t a = 0; a < golden.steps[t].arrays.size(); ++a)
        EXPECT_EQ(words_of(version.arrays[a]), golden.steps[t].arrays[a]) << "step " << t << " array " << a;
    }
  }
}

// ---- Values by hand: powers of two, so that all operations are exact ----

TEST(UpdateStep, ComputesEachRuleByHand) {
  const Floats delta = {4, -8};
  const std::vector<StagedDelta> deltas = {{.values = delta.data()}};
  EXPECT_EQ(step({.kind = RuleKind::kAdd}, 0, Version({1, 2}), deltas).arrays[0], Floats({5, -6}));
  EXPECT_EQ(step({.kind = RuleKind::kSgd, .learning_rate = 0.5}, 0, Version({1, 2}), deltas).arrays[0],
            Floats({-1, 6}));

  const UpdateRule nesterov{.kind = RuleKind::kNesterov, .learning_rate = 0.5, .momentum = 0.25};
  // b = g; p = p - 0.5 (g + 0.25 b)
  Version start({1, 2});
  start.arrays[1] = {5, 5};  // the first step does not read it
  const Version first = step(nesterov, 0, start, deltas);
  EXPECT_EQ(first.arrays[0], Floats({1 - 0.5F * 5, 2 + 0.5F * 10}));
  EXPECT_EQ(first.arrays[1], delta);
  // b = 0.25 * 4 + 4 = 5; g + 0.25 b = 5.25
  const Version second = step(nesterov, 1, first, deltas);
  EXPECT_EQ(second.arrays[1], Floats({5, -10}));
  EXPECT_EQ(second.arrays[0], Floats({-1.5F - 0.5F * 5.25F, 7 + 0.5F * 10.5F}));

  // In the first step of AdamW m = 0.5 g and v = 0.25 g^2; corrected they are g and g^2.
  const UpdateRule adamw{.kind = RuleKind::kAdamW,
                         .learning_rate = 0.5,
                         .beta1 = 0.5,
                         .beta2 = 0.75,
                         .epsilon = 0,
                         .weight_decay = 1};
  const Version adam = step(adamw, 0, Version({1, 2}), deltas);
  EXPECT_EQ(adam.arrays[1], Floats({2, -4}));
  EXPECT_EQ(adam.arrays[2], Floats({4, 16}));
  EXPECT_EQ(adam.arrays[0], Floats({0.5F - 0.5F, 1 + 0.5F}));
}

// ---- Mean ----

TEST(UpdateStep, TakesTheMeanInRankOrder) {
  // 1 + 2^24 rounds to 2^24, so the order shows.
  const Floats big = {0x1p24F}, one = {1}, negative = {-0x1p24F};
  const UpdateRule add{.kind = RuleKind::kAdd};
  const auto mean = [&](const std::vector<StagedDelta>& deltas) {
    return step(add, 0, Version({0}), deltas).arrays[0][0];
  };
  EXPECT_EQ(mean({{big.data()}, {one.data()}, {negative.data()}}), 0);
  EXPECT_EQ(mean({{big.data()}, {negative.data()}, {one.data()}}), 1 / 3.0F);
  EXPECT_EQ(mean({{one.data()}, {one.data()}, {one.data()}, {one.data()}}), 1);
}

TEST(UpdateStep, WeighsAndScales) {
  const Floats four = {4}, eight = {8};
  const UpdateRule add{.kind = RuleKind::kAdd};
  const auto mean = [&](const std::vector<StagedDelta>& deltas) {
    return step(add, 0, Version({0}), deltas).arrays[0][0];
  };
  EXPECT_EQ(mean({{four.data(), 1}, {eight.data(), 3}}), 7);
  EXPECT_EQ(mean({{four.data(), 1, 0.5F}, {eight.data(), 3}}), 6.5F);
  EXPECT_EQ(mean({{four.data(), 1, 0.25F}}), 1) << "the scale is not a weight";
  // With equal weights the bits are those of weight 1: 0.1f * 3 rounds.
  const Floats third = {1 / 3.0F};
  EXPECT_EQ(mean({{third.data(), 0.1F}}), third[0]);
  EXPECT_EQ(mean({{third.data(), 0.1F}, {four.data(), 0.1F}}), mean({{third.data()}, {four.data()}}));
}

// ---- Determinism ----

// Values of many magnitudes; every 97th is not finite or subnormal.
Floats varied(size_t n, uint32_t seed) {
  Floats values(n);
  uint32_t state = seed * 2654435761U + 1;
  for (size_t i = 0; i < n; ++i) {
    state = state * 1664525U + 1013904223U;
    const uint32_t exponent = 107 + (state >> 25) % 40;
    values[i] = float_of((state & 0x807fffff) | (exponent << 23));
    if (i % 97 == 96) values[i] = float_of(state);
  }
  return values;
}

TEST(UpdateStep, GivesTheSameBitsInAllRanges) {
  constexpr size_t kElements = 5000;
  std::vector<Floats> values;
  for (uint32_t k = 0; k < 5; ++k) values.push_back(varied(kElements, k));
  std::vector<StagedDelta> deltas;
  for (size_t k = 0; k < 5; ++k)
    deltas.push_back({.values = values[k].data(), .weight = 1 + 0.3F * static_cast<float>(k)});
  const UpdateRule rules[] = {
      {.kind = RuleKind::kAdd},
      {.kind = RuleKind::kSgd, .learning_rate = 0.3},
      {.kind = RuleKind::kNesterov, .learning_rate = 0.7, .momentum = 0.9},
      {.kind = RuleKind::kAdamW, .learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8},
  };
  for (const UpdateRule& rule : rules) {
    SCOPED_TRACE(to_string(rule.kind));
    Version from(varied(kElements, 9));
    from.arrays[1] = varied(kElements, 10);
    from.arrays[2] = varied(kElements, 11);
    const Version whole = step(rule, 3, from, deltas);
    for (const size_t range : {1, 63, 64, 2049}) {
      const Version parts = step(rule, 3, from, deltas, range);
      for (size_t a = 0; a < array_count(rule.kind); ++a)
        EXPECT_EQ(words_of(parts.arrays[a]), words_of(whole.arrays[a])) << range << " array " << a;
    }
    size_t nans = 0;
    for (const uint32_t word : words_of(whole.arrays[0])) {
      if ((word & 0x7fffffff) <= 0x7f800000) continue;
      ++nans;
      ASSERT_EQ(word, 0x7fc00000u);
    }
    EXPECT_GT(nans, 0u);
  }
}

// Each operation in a function that is not inlined, so no compiler can fuse or reorder it.
__attribute__((noinline)) float mul(float a, float b) {
  return a * b;
}
__attribute__((noinline)) float plus(float a, float b) {
  return a + b;
}

TEST(UpdateStep, RoundsAfterEachOperation) {
  constexpr size_t kElements = 4096;
  const Floats p = varied(kElements, 1), d = varied(kElements, 2), e = varied(kElements, 3);
  const std::vector<StagedDelta> deltas = {{d.data(), 3}, {e.data(), 5}};
  const Version got = step({.kind = RuleKind::kSgd, .learning_rate = 0.3}, 0, Version(p), deltas);
  for (size_t i = 0; i < kElements; ++i) {
    const float mean = plus(mul(3, d[i]), mul(5, e[i])) / 8;
    const float expected = plus(p[i], mul(-0.3F, mean));
    if (std::isnan(expected)) continue;
    ASSERT_EQ(bits_of(got.arrays[0][i]), bits_of(expected)) << i;
  }
}

TEST(UpdateRule, NamesItsArraysAndKinds) {
  EXPECT_EQ(array_name(RuleKind::kAdamW, 0), "parameters");
  EXPECT_EQ(array_name(RuleKind::kNesterov, 1), "momentum");
  EXPECT_EQ(array_name(RuleKind::kAdamW, 1), "exp_avg");
  EXPECT_EQ(array_name(RuleKind::kAdamW, 2), "exp_avg_sq");
  for (const RuleKind kind : {RuleKind::kAdd, RuleKind::kSgd, RuleKind::kNesterov, RuleKind::kAdamW})
    EXPECT_EQ(parse_rule_kind(to_string(kind)), kind);
  EXPECT_EQ(parse_rule_kind("adam"), std::nullopt);
}

}  // namespace
}  // namespace sluice::store
