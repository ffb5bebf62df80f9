// Compares copies that convert to block types with the scalar arithmetic of wire/payload/block_codec.h.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/conformance/device/layout.h"
#include "wire/payload/block_codec.h"

namespace sluice::pipeline::test {
namespace {

struct Format {
  WireCast cast;
  wire::DType type;
};
constexpr Format kFormats[] = {{WireCast::kMxfp8, wire::DType::kMxfp8},
                               {WireCast::kInt8Block, wire::DType::kInt8Block}};

uint64_t block_bytes(uint64_t elements) {
  return (elements + wire::kBlockValues - 1) / wire::kBlockValues * wire::kBlockBytes;
}

std::vector<std::byte> encoded(const Format& format, const std::vector<float>& values,
                               const wire::Rounding& rounding = {}) {
  std::vector<std::byte> blocks(block_bytes(values.size()));
  wire::encode_blocks(format.type, values.data(), values.size(), blocks.data(), rounding);
  return blocks;
}

std::vector<float> decoded(const Format& format, const std::vector<std::byte>& blocks, size_t count) {
  std::vector<float> values(count);
  wire::decode_blocks(format.type, blocks.data(), count, values.data());
  return values;
}

class DeviceBlockCopy : public DeviceFixture {
 protected:
  // The shapes that fit into one batch of a block type.
  static std::vector<LayoutShape> block_shapes() {
    std::vector<LayoutShape> all = shapes();
    std::erase_if(all, [](const LayoutShape& s) { return s.counts.size() > kMaxBlockRanges; });
    LayoutShape many{.name = "most", .counts = std::vector<uint64_t>(kMaxBlockRanges, 7)};
    many.counts.back() = 1000;
    all.push_back(std::move(many));
    return all;
  }

  // Returns the staging buffer after a gather, and checks that the bytes around it are unchanged.
  std::vector<std::byte> gather(std::span<const BufferRange> ranges, uint64_t elements, const Cast& cast) {
    const size_t bytes = block_bytes(elements);
    const auto staging = pinned(bytes + 2 * kMargin);
    std::memset(staging->bytes().data(), static_cast<int>(kFill), staging->bytes().size());
    std::byte* const at = staging->bytes().data() + kMargin;
    EXPECT_TRUE(device().gather(device().copy_out_stream(), ranges, at, cast).ok()) << device().last_error();
    synchronize(device().copy_out_stream());
    for (size_t i = 0; i < kMargin; ++i) {
      EXPECT_EQ(staging->bytes()[i], kFill) << i;
      EXPECT_EQ(at[bytes + i], kFill) << i;
    }
    return {at, at + bytes};
  }
};

TEST_P(DeviceBlockCopy, GatherEncodesAllRangesAsOneTensor) {
  const auto special = special_floats(60000, 3);
  const auto alike = floats_around(60000, -4, 5);
  for (const Format& format : kFormats) {
    for (const LayoutShape& shape : block_shapes()) {
      SCOPED_TRACE(shape.name);
      for (const auto& source : {special, alike}) {
        Layout layout(test_bed(), shape, sizeof(float), kFill);
        const std::vector<float> values(source.begin(), source.begin() + layout.elements());
        layout.write(values.data());
        EXPECT_EQ(gather(layout.ranges(), values.size(), {.wire = format.cast}), encoded(format, values));
        EXPECT_TRUE(layout.gaps_are_untouched());
      }
    }
  }
}

TEST_P(DeviceBlockCopy, StochasticRoundingDependsOnSeedAndIndexAlone) {
  const auto values = floats_around(20000, 2, 9);
  for (const Format& format : kFormats) {
    const Cast cast{.wire = format.cast, .first = 512, .stochastic = true, .seed = 0x1234567890};
    const wire::Rounding rounding{.stochastic = true, .seed = cast.seed, .first = cast.first};
    for (const LayoutShape& shape : block_shapes()) {
      SCOPED_TRACE(shape.name);
      Layout layout(test_bed(), shape, sizeof(float), kFill);
      const std::vector<float> used(values.begin(),
                                    values.begin() + std::min<uint64_t>(values.size(), layout.elements()));
      if (used.size() < layout.elements()) continue;
      layout.write(used.data());
      const auto blocks = gather(layout.ranges(), used.size(), cast);
      EXPECT_EQ(blocks, encoded(format, used, rounding));
      EXPECT_NE(blocks, encoded(format, used)) << "nothing was rounded up against the nearest";
    }
  }
}

TEST_P(DeviceBlockCopy, ScatterDecodes) {
  for (const Format& format : kFormats) {
    for (const LayoutShape& shape : block_shapes()) {
      SCOPED_TRACE(shape.name);
      Layout layout(test_bed(), shape, sizeof(float), kFill);
      const auto values = special_floats(layout.elements(), 8);
      const auto blocks = encoded(format, values);
      const auto staging = pinned(blocks.size() + kMargin);
      std::ranges::copy(blocks, staging->bytes().begin());
      ASSERT_TRUE(device()
                      .scatter(device().copy_in_stream(), staging->bytes().data(), layout.ranges(),
                               {.wire = format.cast})
                      .ok())
          << device().last_error();
      synchronize(device().copy_in_stream());
      std::vector<uint32_t> expected;
      for (const float x : decoded(format, blocks, values.size())) expected.push_back(bits_of(x));
      EXPECT_EQ(layout.read<uint32_t>(), expected);
      EXPECT_TRUE(layout.gaps_are_untouched());
    }
  }
}

// Each gather adds the residuals of the one before, and a residual that is not finite is dropped.
TEST_P(DeviceBlockCopy, ResidualsCarryTheRoundingErrorsOver) {
  const LayoutShape shape{.name = "three", .counts = {300, 1, 1000}};
  for (const Format& format : kFormats) {
    Layout layout(test_bed(), shape, sizeof(float), kFill);
    Layout residuals(test_bed(), shape, sizeof(float), std::byte{0});
    auto values = floats_around(layout.elements(), 1, 4);
    values[5] = std::numeric_limits<float>::infinity();
    layout.write(values.data());
    std::vector<BufferRange> ranges = layout.ranges();
    for (size_t i = 0; i < ranges.size(); ++i)
      ranges[i].residual = reinterpret_cast<float*>(residuals.ranges()[i].recv);
    std::vector<float> rest(values.size(), 0.0F);
    for (int step = 0; step < 3; ++step) {
      std::vector<float> with_rest = values;
      for (size_t i = 0; i < values.size(); ++i) with_rest[i] += rest[i];
      const auto expected = encoded(format, with_rest);
      ASSERT_EQ(gather(ranges, values.size(), {.wire = format.cast}), expected) << "step " << step;
      const auto sent = decoded(format, expected, values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        rest[i] = with_rest[i] - sent[i];
        if (!std::isfinite(rest[i])) rest[i] = 0;
      }
      EXPECT_EQ(residuals.read<float>(), rest);
    }
    EXPECT_TRUE(std::ranges::any_of(rest, [](float x) { return x != 0; }));
  }
}

TEST_P(DeviceBlockCopy, AccumulatesTheErrors) {
  CastError expected;
  for (const Format& format : kFormats) {
    Layout layout(test_bed(), {.name = "one", .counts = {5000}}, sizeof(float), kFill);
    const auto values = floats_around(5000, 3, 6);
    layout.write(values.data());
    const auto sent =
        decoded(format, gather(layout.ranges(), 5000, {.wire = format.cast, .measure = true}), 5000);
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i]) || !std::isfinite(sent[i])) continue;
      const double x = values[i];
      expected.error_squares += (sent[i] - x) * (sent[i] - x);
      expected.value_squares += x * x;
    }
  }
  const auto got = device().cast_error();
  ASSERT_TRUE(got.has_value()) << got.error().text;
  EXPECT_GT(got->error_squares, 0);
  EXPECT_NEAR(got->error_squares / expected.error_squares, 1, 1e-9);
  EXPECT_NEAR(got->value_squares / expected.value_squares, 1, 1e-9);
}

SLUICE_OVER_ALL_DEVICES(DeviceBlockCopy);

}  // namespace
}  // namespace sluice::pipeline::test
