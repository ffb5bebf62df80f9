// Compares the conversions between f32 and the small floats, on the scalar reference and on every target,
// with an independent model: a list of all values of a format and a search for the nearest one.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/conformance/kernels/fold_pattern.h"

namespace sluice::kernels::test {
namespace {

using wire::DType;
using wire::Op;

// The parameters of a float format, from its specification.
struct FloatParameters {
  DType type;
  uint32_t sign;  // pattern of -0
  int mantissa_bits;
  int lowest_exponent;  // of a normal number
  uint32_t largest_finite;
  uint32_t too_large;  // the result of an overflow
  uint32_t nan;
};

class FloatModel : public FloatParameters {
 public:
  explicit FloatModel(const FloatParameters& shape) : FloatParameters(shape) {
    for (uint32_t p = 0; p <= largest_finite; ++p) values_.push_back(formula(p));
  }

  [[nodiscard]] double value(uint32_t magnitude) const { return values_[magnitude]; }

  [[nodiscard]] uint32_t nearest(float x) const {
    if (std::isnan(x)) return nan;
    const uint32_t sign_bits = std::signbit(x) ? sign : 0;
    const double a = std::fabs(double{x});
    const auto above = std::upper_bound(values_.begin(), values_.end(), a);
    const auto low = static_cast<uint32_t>(above - values_.begin()) - 1;
    if (low == largest_finite) {
      // Overflow starts half a unit above the largest value. The half-way point itself rounds up, to the even
      // neighbor. For a saturating format this makes no difference.
      const double limit = value(low) + (value(low) - value(low - 1)) / 2;
      return sign_bits | (a < limit ? low : too_large);
    }
    const double to_low = a - value(low);
    const double to_high = value(low + 1) - a;
    if (to_low != to_high) return sign_bits | (to_low < to_high ? low : low + 1);
    return sign_bits | (low % 2 == 0 ? low : low + 1);
  }

 private:
  [[nodiscard]] double formula(uint32_t p) const {
    const uint32_t steps = 1U << mantissa_bits;
    const double fraction = static_cast<double>(p % steps) / steps;
    const auto stored = static_cast<int>(p / steps);
    return stored == 0 ? fraction * std::exp2(lowest_exponent)
                       : (1 + fraction) * std::exp2(lowest_exponent + stored - 1);
  }

  std::vector<double> values_;
};

const std::vector<FloatModel>& models() {
  static const std::vector<FloatModel> all = {
      FloatModel({DType::kF16, 0x8000, 10, -14, 0x7bff, 0x7c00, 0x7e00}),
      FloatModel({DType::kBf16, 0x8000, 7, -126, 0x7f7f, 0x7f80, 0x7fc0}),
      FloatModel({DType::kF8e4m3, 0x80, 3, -6, 0x7e, 0x7e, 0x7f}),
      FloatModel({DType::kF8e5m2, 0x80, 2, -14, 0x7b, 0x7b, 0x7e}),
  };
  return all;
}

// Rounds `inputs` on the reference and on every target (as a sum of one partial) and compares with the model.
void expect_nearest(const FloatModel& model, const std::vector<float>& inputs) {
  std::vector<uint64_t> patterns;
  for (const float x : inputs) patterns.push_back(std::bit_cast<uint32_t>(x));
  const std::vector<std::vector<std::byte>> sources = {elements(DType::kF32, patterns)};
  std::vector<std::vector<std::byte>> results = {
      run_fold(nullptr, model.type, Op::kSum, Stage::kFinish, sources, 1)};
  for (const FoldTarget& target : fold_targets()) {
    results.push_back(run_fold(&target, model.type, Op::kSum, Stage::kFinish, sources, 1));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const uint32_t expected = model.nearest(inputs[i]);
    for (size_t r = 0; r < results.size(); ++r) {
      ASSERT_EQ(pattern_at(results[r], model.type, i), expected)
          << wire::to_string(model.type) << " on " << (r == 0 ? "reference" : fold_targets()[r - 1].name)
          << " of " << std::hexfloat << inputs[i] << std::hex << " 0x" << patterns[i];
    }
  }
}

TEST(Rounding, HalfWayPointsRoundToEven) {
  for (const FloatModel& model : models()) {
    std::vector<float> inputs;
    for (uint32_t p = 0; p < model.largest_finite; ++p) {
      const auto middle = static_cast<float>((model.value(p) + model.value(p + 1)) / 2);
      ASSERT_EQ(double{middle} * 2, model.value(p) + model.value(p + 1));
      for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, HUGE_VALF)}) {
        inputs.push_back(x);
        inputs.push_back(-x);
      }
    }
    expect_nearest(model, inputs);
  }
}

TEST(Rounding, OverflowStartsHalfAUnitAboveTheLargestValue) {
  for (const FloatModel& model : models()) {
    const double unit = model.value(model.largest_finite) - model.value(model.largest_finite - 1);
    const auto limit = static_cast<float>(model.value(model.largest_finite) + unit / 2);
    std::vector<float> inputs;
    for (const float x : {limit, std::nextafter(limit, 0.0F), std::nextafter(limit, HUGE_VALF), 2 * limit,
                          std::numeric_limits<float>::max(), HUGE_VALF}) {
      inputs.push_back(x);
      inputs.push_back(-x);
    }
    expect_nearest(model, inputs);
  }
}

TEST(Rounding, RandomBitsRoundToTheNearest) {
  std::mt19937_64 random(5);
  for (const FloatModel& model : models()) {
    std::vector<float> inputs(kSlowBuild ? 200'000 : 2'000'000);
    const double log_largest = std::log2(model.value(model.largest_finite));
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
      if (i % 2 == 0) {  // within the range of the format, which random bits rarely hit for small formats
        const double exponent = std::uniform_real_distribution(-log_largest - 6, log_largest + 1)(random);
        inputs[i] = std::copysign(static_cast<float>(std::exp2(exponent)), inputs[i]);
      }
    }
    expect_nearest(model, inputs);
  }
}

TEST(Widening, ConvertsEveryPatternToItsValue) {
  for (const FloatModel& model : models()) {
    std::vector<uint64_t> patterns;
    for (uint32_t p = 0; p < 2 * model.sign; ++p) patterns.push_back(p);
    const std::vector<std::vector<std::byte>> sources = {elements(model.type, patterns)};
    const bool saturates = model.too_large == model.largest_finite;
    const uint32_t infinity = model.type == DType::kF8e4m3
                                  ? model.nan  // has no infinity; the next pattern is a NaN
                                  : model.largest_finite + 1;
    for (size_t r = 0; r <= fold_targets().size(); ++r) {
      const FoldTarget* target = r == 0 ? nullptr : &fold_targets()[r - 1];
      const auto wide = run_fold(target, model.type, Op::kSum, Stage::kPartial, sources, 1);
      const auto again = run_fold(target, model.type, Op::kSum, Stage::kWhole, sources, 1);
      const auto least = run_fold(target, model.type, Op::kMin, Stage::kWhole, sources, 1);
      for (uint32_t p = 0; p < 2 * model.sign; ++p) {
        const uint32_t magnitude = p % model.sign;
        const float sign_factor = p == magnitude ? 1.0F : -1.0F;
        float value = NAN;
        uint32_t back = model.nan;
        if (magnitude <= model.largest_finite) {
          value = static_cast<float>(sign_factor * model.value(magnitude));
          back = p;
        } else if (magnitude == infinity && infinity != model.nan) {
          value = sign_factor * HUGE_VALF;
          back = saturates ? p - 1 : p;
        }
        const uint64_t expected = std::isnan(value) ? 0x7fc00000U : std::bit_cast<uint32_t>(value);
        ASSERT_EQ(pattern_at(wide, DType::kF32, p), expected)
            << wire::to_string(model.type) << " 0x" << std::hex << p << " run " << r;
        ASSERT_EQ(pattern_at(again, model.type, p), back) << wire::to_string(model.type) << " run " << r;
        ASSERT_EQ(pattern_at(least, model.type, p), back) << wire::to_string(model.type) << " run " << r;
      }
    }
  }
}

// Compares the targets with the reference for all pairs of fp8 patterns and every operation.
TEST(Widening, EveryPairOfFp8PatternsFoldsAsInTheReference) {
  for (const DType t : {DType::kF8e4m3, DType::kF8e5m2}) {
    std::vector<uint64_t> left;
    std::vector<uint64_t> right;
    for (uint32_t p = 0; p < 65536; ++p) {
      left.push_back(p >> 8);
      right.push_back(p & 0xff);
    }
    const std::vector<std::vector<std::byte>> sources = {elements(t, left), elements(t, right)};
    for (const Op op : all_ops()) {
      const auto expected = run_fold(nullptr, t, op, Stage::kWhole, sources, 2);
      for (const FoldTarget& target : fold_targets()) {
        ASSERT_EQ(run_fold(&target, t, op, Stage::kWhole, sources, 2), expected)
            << describe(t, op, Stage::kWhole, target.name);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::test
