// Compares copies, with and without a cast, with scalar arithmetic.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/conformance/device/layout.h"

namespace sluice::pipeline::test {
namespace {

// The scalar reference of a cast.
struct ReferenceCast {
  Cast cast;
  float power(uint64_t i, bool back) const {
    const int32_t shift = scale_shift(cast.exponents[(cast.first + i) / kScaleBlock], cast.exponent_limit);
    return std::ldexp(1.0F, back ? -shift : shift);
  }
  uint16_t out(float x, uint64_t i) const {
    return cast.wire == WireCast::kBf16 ? to_bf16(x) : to_f16(x * power(i, false));
  }
  float in(uint16_t x, uint64_t i) const {
    return cast.wire == WireCast::kBf16 ? from_bf16(x) : from_f16(x) * power(i, true);
  }
};

class DeviceCopy : public DeviceFixture {
 protected:
  // Returns the staging buffer after a gather, and checks that the bytes around it are unchanged.
  std::vector<std::byte> gather(const Layout& layout, const Cast& cast) {
    const size_t bytes = cast.unit().count(layout.elements()) * cast.unit().bytes;
    const auto staging = pinned(bytes + 2 * kMargin);
    std::memset(staging->bytes().data(), static_cast<int>(kFill), staging->bytes().size());
    std::byte* const at = staging->bytes().data() + kMargin;
    EXPECT_TRUE(device().gather(device().copy_out_stream(), layout.ranges(), at, cast).ok())
        << device().last_error();
    synchronize(device().copy_out_stream());
    for (size_t i = 0; i < kMargin; ++i) {
      EXPECT_EQ(staging->bytes()[i], kFill) << i;
      EXPECT_EQ(at[bytes + i], kFill) << i;
    }
    return {at, at + bytes};
  }

  void scatter(const std::vector<std::byte>& bytes, const Layout& layout, const Cast& cast) {
    const auto staging = pinned(bytes.size() + 2 * kMargin);
    std::byte* const at = staging->bytes().data() + kMargin;
    std::ranges::copy(bytes, at);
    EXPECT_TRUE(device().scatter(device().copy_in_stream(), at, layout.ranges(), cast).ok())
        << device().last_error();
    synchronize(device().copy_in_stream());
  }

  void check_gather(const LayoutShape& shape, const Cast& cast, const std::vector<float>& values) {
    SCOPED_TRACE(shape.name);
    Layout layout(test_bed(), shape, sizeof(float), kFill);
    ASSERT_GE(values.size(), layout.elements());
    layout.write(values.data());
    const auto bytes = gather(layout, cast);
    std::vector<uint16_t> got(layout.elements());
    std::memcpy(got.data(), bytes.data(), bytes.size());
    const ReferenceCast plain{cast};
    for (uint64_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], plain.out(values[i], i)) << "element " << i << ", " << values[i];
    EXPECT_TRUE(layout.gaps_are_untouched());
  }

  void check_scatter(const LayoutShape& shape, const Cast& cast, uint32_t step) {
    SCOPED_TRACE(shape.name);
    Layout layout(test_bed(), shape, sizeof(float), kFill);
    std::vector<uint16_t> wire(layout.elements());
    std::vector<uint32_t> expected;
    const ReferenceCast plain{cast};
    for (uint64_t i = 0; i < wire.size(); ++i) {
      wire[i] = static_cast<uint16_t>(i * step);
      expected.push_back(bits_of(plain.in(wire[i], i)));
    }
    std::vector<std::byte> bytes(wire.size() * 2);
    std::memcpy(bytes.data(), wire.data(), bytes.size());
    scatter(bytes, layout, cast);
    EXPECT_EQ(layout.read<uint32_t>(), expected);
    EXPECT_TRUE(layout.gaps_are_untouched());
  }
};

TEST_P(DeviceCopy, CopiesBytesWithoutACast) {
  for (const uint32_t element_bytes : {1U, 2U, 4U, 8U}) {
    for (const LayoutShape& shape : shapes()) {
      SCOPED_TRACE(shape.name + " of " + std::to_string(element_bytes));
      Layout from(test_bed(), shape, element_bytes, kFill);
      std::vector<uint8_t> given(from.elements() * element_bytes);
      for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<uint8_t>(i * 31 + i / 256);
      from.write(given.data());
      const Cast cast{.element_bytes = element_bytes};
      const auto bytes = gather(from, cast);
      ASSERT_EQ(bytes.size(), given.size());
      EXPECT_EQ(std::memcmp(bytes.data(), given.data(), given.size()), 0);
      Layout to(test_bed(), shape, element_bytes, kFill);
      scatter(bytes, to, cast);
      EXPECT_EQ(gather(to, cast), bytes);
      EXPECT_TRUE(to.gaps_are_untouched());
    }
  }
}

TEST_P(DeviceCopy, Bf16Out) {
  const Cast cast{.wire = WireCast::kBf16};
  const auto values = special_floats(50000, 1);
  for (const LayoutShape& shape : shapes()) check_gather(shape, cast, values);
}

TEST_P(DeviceCopy, Bf16In) {
  for (const LayoutShape& shape : shapes()) check_scatter(shape, {.wire = WireCast::kBf16}, 40503);
}

TEST_P(DeviceCopy, ScaledF16Out) {
  const auto exponents = pinned(4096);
  auto* const e = reinterpret_cast<uint8_t*>(exponents->bytes().data());
  const uint8_t all[] = {127, 254, 0, 1, 2, 130, 90, 15};
  std::ranges::copy(all, e);
  const auto values = special_floats(50000, 2), alike = floats_around(50000, 5, 3);
  for (const uint64_t first : {uint64_t{0}, uint64_t{100}, uint64_t{16383}, uint64_t{2 * 16384}}) {
    for (const uint32_t terms : {1U, 8U}) {
      const Cast cast{.wire = WireCast::kScaledF16,
                      .exponents = e,
                      .first = first,
                      .exponent_limit = scaled_exponent_limit(terms)};
      for (const LayoutShape& shape : shapes()) check_gather(shape, cast, values);
      check_gather(shapes()[0], cast, alike);
    }
  }
}

TEST_P(DeviceCopy, ScaledF16In) {
  const auto exponents = pinned(4096);
  auto* const e = reinterpret_cast<uint8_t*>(exponents->bytes().data());
  const uint8_t all[] = {254, 0, 127, 1, 3, 140, 60, 16};
  std::ranges::copy(all, e);
  for (const uint64_t first : {uint64_t{0}, uint64_t{16381}}) {
    const Cast cast{.wire = WireCast::kScaledF16,
                    .exponents = e,
                    .first = first,
                    .exponent_limit = scaled_exponent_limit(3)};
    for (const LayoutShape& shape : shapes()) check_scatter(shape, cast, 40503);
  }
}

TEST_P(DeviceCopy, FindsTheLargestExponentOfEachBlock) {
  for (const LayoutShape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    Layout layout(test_bed(), shape, sizeof(float), kFill);
    auto values = floats_around(layout.elements(), -3, 4);
    for (size_t i = 0; i < values.size(); i += 5000)
      values[i] = std::ldexp(1.0F, static_cast<int>(i / 5000) + 3);
    layout.write(values.data());
    const uint64_t blocks = (layout.elements() + kScaleBlock - 1) / kScaleBlock;
    std::vector<uint8_t> expected(blocks);
    for (size_t i = 0; i < values.size(); ++i)
      expected[i / kScaleBlock] = std::max(expected[i / kScaleBlock], exponent_of(values[i]));
    const auto memory = pinned(blocks + 1);
    auto* const found = reinterpret_cast<uint8_t*>(memory->bytes().data());
    std::memset(found, 0xe7, blocks + 1);  // stale values of an earlier round
    ASSERT_TRUE(device().find_exponents(device().copy_out_stream(), layout.ranges(), found).ok())
        << device().last_error();
    synchronize(device().copy_out_stream());
    EXPECT_EQ(std::vector<uint8_t>(found, found + blocks), expected);
    EXPECT_EQ(found[blocks], 0xe7);
  }
}

TEST_P(DeviceCopy, IgnoresNonFiniteValuesInExponents) {
  Layout layout(test_bed(), {.name = "one", .counts = {20000}}, sizeof(float), kFill);
  std::vector<float> values(20000, std::numeric_limits<float>::infinity());
  values[7] = std::numeric_limits<float>::quiet_NaN();
  values[17000] = 1.0F;
  layout.write(values.data());
  const auto found = pinned(2);
  ASSERT_TRUE(device()
                  .find_exponents(device().copy_out_stream(), layout.ranges(),
                                  reinterpret_cast<uint8_t*>(found->bytes().data()))
                  .ok());
  synchronize(device().copy_out_stream());
  EXPECT_EQ(found->bytes()[0], std::byte{0});
  EXPECT_EQ(found->bytes()[1], std::byte{127});
}

TEST_P(DeviceCopy, AccumulatesTheErrorsOfCasts) {
  const auto exponents = pinned(4096);
  auto* const e = reinterpret_cast<uint8_t*>(exponents->bytes().data());
  std::fill_n(e, 8, uint8_t{132});
  CastError expected;
  for (const WireCast wire : {WireCast::kBf16, WireCast::kScaledF16}) {
    for (const LayoutShape& shape : shapes()) {
      Layout layout(test_bed(), shape, sizeof(float), kFill);
      auto values = floats_around(layout.elements(), 5, 6);
      values[3] = std::numeric_limits<float>::max();  // infinite in bf16 and in f16 with this scale
      layout.write(values.data());
      const ReferenceCast plain{
          {.wire = wire, .exponents = e, .exponent_limit = scaled_exponent_limit(2), .measure = true}};
      (void)gather(layout, plain.cast);
      for (uint64_t i = 0; i < values.size(); ++i) {
        const float back = plain.in(plain.out(values[i], i), i);
        if (!std::isfinite(values[i]) || !std::isfinite(back)) continue;
        const double given = values[i], error = static_cast<double>(back) - given;
        expected.error_squares += error * error;
        expected.value_squares += given * given;
      }
      Cast unmeasured = plain.cast;
      unmeasured.measure = false;
      (void)gather(layout, unmeasured);
    }
  }
  const auto got = device().cast_error();
  ASSERT_TRUE(got.has_value()) << got.error().text;
  EXPECT_GT(got->error_squares, 0);
  EXPECT_NEAR(got->error_squares / expected.error_squares, 1, 1e-9);
  EXPECT_NEAR(got->value_squares / expected.value_squares, 1, 1e-9);
}

TEST_P(DeviceCopy, CopiesNothingForEmptySegments) {
  const auto staging = pinned(64);
  auto* const memory = test_bed().allocate(16);
  const BufferRange empty{.send = memory, .recv = memory, .count = 0};
  for (const WireCast wire : {WireCast::kNone, WireCast::kBf16}) {
    const Cast cast{.wire = wire};
    EXPECT_TRUE(device().gather(device().copy_out_stream(), {}, staging->bytes().data(), cast).ok());
    EXPECT_TRUE(device().gather(device().copy_out_stream(), {&empty, 1}, staging->bytes().data(), cast).ok());
    EXPECT_TRUE(device().scatter(device().copy_in_stream(), staging->bytes().data(), {&empty, 1}, cast).ok());
  }
  EXPECT_TRUE(device().find_exponents(device().copy_out_stream(), {&empty, 1}, nullptr).ok());
  synchronize(device().copy_out_stream());
  synchronize(device().copy_in_stream());
}

SLUICE_OVER_ALL_DEVICES(DeviceCopy);

}  // namespace
}  // namespace sluice::pipeline::test
