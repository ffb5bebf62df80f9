// f32 that travels in blocks of mxfp8 or int8, and operations on blocks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tests/functional/streams_test_bed.h"
#include "wire/messages.h"
#include "wire/payload/block_codec.h"

namespace sluice::test {
namespace {

using Blocks = StreamsTestBed;

struct Format {
  sluice_dtype dtype;
  const char* name;
};
constexpr Format kFormats[] = {{SLUICE_MXFP8, "mxfp8"}, {SLUICE_INT8_BLOCK, "int8-block"}};

std::vector<std::byte> encode(sluice_dtype dtype, const std::vector<float>& values) {
  std::vector<std::byte> blocks(sluice_block_count(values.size()) * wire::kBlockBytes);
  EXPECT_EQ(sluice_encode_blocks(dtype, values.data(), values.size(), blocks.data()), SLUICE_OK);
  return blocks;
}

std::vector<float> decode(sluice_dtype dtype, const std::vector<std::byte>& blocks, size_t count) {
  std::vector<float> values(count);
  EXPECT_EQ(sluice_decode_blocks(dtype, blocks.data(), count, values.data()), SLUICE_OK);
  return values;
}

// The balanced binary tree over the ranks: the largest power of two below their number on the left.
std::vector<float> tree(const std::vector<std::vector<float>>& by_rank, size_t first, size_t n) {
  if (n == 1) return by_rank[first];
  const size_t left = std::bit_floor(n - 1);
  std::vector<float> sum = tree(by_rank, first, left);
  const std::vector<float> right = tree(by_rank, first + left, n - left);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

// Rounds each contribution, adds in f32 as a tree, and rounds once.
std::vector<std::byte> reduced(sluice_dtype dtype, const std::vector<std::vector<float>>& in, sluice_op op) {
  const size_t count = in.front().size();
  std::vector<std::vector<float>> sent;
  for (const auto& x : in) sent.push_back(decode(dtype, encode(dtype, x), count));
  std::vector<float> sum = tree(sent, 0, sent.size());
  if (op == SLUICE_AVG) {
    for (float& x : sum) x /= static_cast<float>(in.size());
  }
  return encode(dtype, sum);
}

// 17 ranks are three groups, so partial sums in f32 are tested too.
TEST_F(Blocks, F32TravelsInBlocksRoundedOnceInEachDirection) {
  start_reducers(2);
  constexpr size_t kCount = 100'003;
  for (const uint32_t ranks : {3U, 17U}) {
    std::vector<std::vector<float>> in;
    for (uint32_t r = 0; r < ranks; ++r) in.push_back(gaussian(r + 1, kCount, 1e-3f));
    in[1][7] = std::numeric_limits<float>::quiet_NaN();
    in[2][50'000] = std::numeric_limits<float>::infinity();
    for (const Format& format : kFormats) {
      for (const sluice_op op : {SLUICE_SUM, SLUICE_AVG}) {
        SCOPED_TRACE(format.name);
        const auto expected = bits_of_all(decode(format.dtype, reduced(format.dtype, in, op), kCount));
        sluice_stream_options options = small_options();
        options.wire_dtype = format.dtype;
        run_streams(ranks, options, [&](uint32_t rank, sluice_session* s) {
          ScopedHostStream stream;
          std::vector<float> out(kCount);
          ASSERT_EQ(sluice_allreduce_on_stream(s, in[rank].data(), out.data(), kCount, SLUICE_F32, op,
                                               stream.get(), nullptr),
                    SLUICE_OK);
          stream.synchronize();
          EXPECT_EQ(bits_of_all(out), expected);
          const sluice_stream_stats stats = stats_of(s);
          EXPECT_EQ(stats.elements_cast, kCount);
          EXPECT_GE(stats.bytes_staged_out, sluice_block_count(kCount) * wire::kBlockBytes);
          EXPECT_LE(stats.bytes_staged_out, kCount * 1.04);
        });
      }
    }
  }
}

// Operations on blocks give the bits of the cast, without streams.
TEST_F(Blocks, OperationsReduceBlocksOfTheCaller) {
  start_reducers(2);
  constexpr size_t kCount = 40'000;
  std::vector<std::vector<float>> in;
  for (uint32_t r = 0; r < 3; ++r) in.push_back(gaussian(r + 1, kCount, 5.f));
  run_session(3, nullptr, [&](uint32_t rank, sluice_session* s) {
    for (const Format& format : kFormats) {
      auto blocks = encode(format.dtype, in[rank]);
      ASSERT_EQ(sluice_allreduce(s, blocks.data(), blocks.data(), sluice_block_count(kCount), format.dtype,
                                 SLUICE_SUM),
                SLUICE_OK);
      EXPECT_EQ(blocks, reduced(format.dtype, in, SLUICE_SUM));
      for (const sluice_op op : {SLUICE_PROD, SLUICE_MIN, SLUICE_MAX}) {
        sluice_request request = 0;
        EXPECT_EQ(sluice_allreduce_async(s, blocks.data(), blocks.data(), 1, format.dtype, op, &request),
                  SLUICE_INVALID_ARGUMENT);
      }
    }
  });
}

TEST_F(Blocks, OtherOperatorsAndTypesTravelAsGiven) {
  start_reducers(1);
  sluice_stream_options options = small_options();
  options.wire_dtype = SLUICE_INT8_BLOCK;
  options.wire_min_count = 1000;
  run_streams(2, options, [&](uint32_t rank, sluice_session* s) {
    ScopedHostStream stream;
    std::vector<float> max(2000, 1.0F + static_cast<float>(rank) / 3), few(999, 1.0F / 3);
    std::vector<int32_t> integers(2000, 1'000'001);
    ASSERT_EQ(enqueue(s, max, stream.get(), nullptr, SLUICE_MAX), SLUICE_OK);
    ASSERT_EQ(enqueue(s, few, stream.get()), SLUICE_OK);
    ASSERT_EQ(sluice_allreduce_on_stream(s, integers.data(), integers.data(), integers.size(), SLUICE_I32,
                                         SLUICE_SUM, stream.get(), nullptr),
              SLUICE_OK);
    stream.synchronize();
    EXPECT_EQ(max, std::vector<float>(2000, 1.0F + 1.0F / 3));
    EXPECT_EQ(few, std::vector<float>(999, 2 * (1.0F / 3))) << "fewer than wire_min_count";
    EXPECT_EQ(integers, std::vector<int32_t>(2000, 2'000'002));
    EXPECT_EQ(stats_of(s).elements_cast, 0U);
    EXPECT_EQ(sluice_allreduce_on_stream(s, max.data(), max.data(), 1, SLUICE_MXFP8, SLUICE_MIN, stream.get(),
                                         nullptr),
              SLUICE_INVALID_ARGUMENT);
    EXPECT_STREQ(sluice_refusal(), "mxfp8 does not support min; expected sum or avg");
  });
}

// A small gradient beside a large one is rounded away in every step; its residual sends it every few steps.
TEST_F(Blocks, ErrorFeedbackSendsWhatRoundingLoses) {
  start_reducers(1);
  constexpr size_t kCount = 4096;
  constexpr int kSteps = 64;
  for (const Format& format : kFormats) {
    SCOPED_TRACE(format.name);
    sluice_stream_options options = small_options();
    options.wire_dtype = format.dtype;
    run_streams(2, options, [&](uint32_t rank, sluice_session* s) {
      const std::vector<float> gradient = gaussian(rank + 1, kCount, 1.F);
      std::vector<float> other = gaussian(2 - rank, kCount, 1.F);
      std::array<double, 2> error{};
      for (const bool feedback : {false, true}) {
        std::vector<float> residual(kCount, 0.F), out(kCount);
        std::vector<double> total(kCount, 0.0);
        for (int step = 0; step < kSteps; ++step) {
          sluice_request request = 0;
          ASSERT_EQ(sluice_allreduce_residual_on_stream(s, gradient.data(), out.data(), kCount, SLUICE_F32,
                                                        SLUICE_SUM, feedback ? residual.data() : nullptr,
                                                        nullptr, &request),
                    SLUICE_OK);
          ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
          for (size_t i = 0; i < kCount; ++i) total[i] += out[i];
        }
        for (size_t i = 0; i < kCount; ++i) {
          const double exact = kSteps * (double{gradient[i]} + other[i]);
          error[feedback ? 1 : 0] += (total[i] - exact) * (total[i] - exact);
        }
      }
      // What remains with feedback is the rounding of the results, which no rank can feed back.
      EXPECT_LT(std::sqrt(error[1]), 0.8 * std::sqrt(error[0]));
    });
  }
}

TEST_F(Blocks, StochasticRoundingHasNoBias) {
  start_reducers(1);
  constexpr size_t kCount = 256 * 64;
  for (const Format& format : kFormats) {
    SCOPED_TRACE(format.name);
    std::vector<float> in(kCount, 0.3F);
    for (size_t i = 0; i < kCount; i += 32) in[i] = 100.F;
    sluice_stream_options options = small_options();
    options.wire_dtype = format.dtype;
    for (const uint32_t stochastic : {0U, 1U}) {
      options.stochastic_rounding = stochastic;
      run_streams(1, options, [&](uint32_t, sluice_session* s) {
        std::vector<float> out(kCount);
        sluice_request request = 0;
        ASSERT_EQ(sluice_allreduce_on_stream(s, in.data(), out.data(), kCount, SLUICE_F32, SLUICE_SUM,
                                             nullptr, &request),
                  SLUICE_OK);
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
        double mean = 0;
        for (size_t i = 0; i < kCount; ++i) mean += i % 32 == 0 ? 0 : out[i];
        constexpr size_t kAdded = kCount / 32 * 31;
        mean /= static_cast<double>(kAdded);
        if (stochastic == 1) {
          EXPECT_NEAR(mean, 0.3, 0.01);
        } else {
          EXPECT_GT(std::fabs(mean - 0.3), 1e-3) << "to nearest, all values have the same error";
        }
      });
    }
  }
}

// A reducer of an earlier release does not set the feature bit.
TEST_F(Blocks, EarlierReducersGetBf16OrRefuse) {
  if (is_colocated()) GTEST_SKIP() << "left out: the co-located reducers are of this release";
  start_reducers(1);
  reducer::ReducerOptions earlier = reducer_options();
  earlier.withheld_features = wire::kFeatureBlocks;
  start_reducers(1, earlier);
  for (const Format& format : kFormats) {
    run_session(2, nullptr, [&](uint32_t, sluice_session* s) {
      std::vector<std::byte> block(wire::kBlockBytes);
      EXPECT_EQ(sluice_allreduce(s, block.data(), block.data(), 1, format.dtype, SLUICE_SUM),
                SLUICE_UNSUPPORTED);
    });
    ++session_;
    run_session(2, nullptr, [&](uint32_t rank, sluice_session* s) {
      std::vector<float> x(300, 1.F / 3);
      sluice_stream_options options = small_options();
      options.wire_dtype = format.dtype;
      options.wire_strict = 1;
      std::array<char, 512> error{};
      EXPECT_EQ(sluice_session_open_streams(s, &options, error.data(), error.size()), SLUICE_UNSUPPORTED);
      EXPECT_STREQ(error.data(), "a reducer is of a release without 8-bit block types");
      options.wire_strict = 0;
      ASSERT_EQ(sluice_session_open_streams(s, &options, error.data(), error.size()), SLUICE_OK);
      sluice_request request = 0;
      EXPECT_EQ(
          sluice_allreduce_on_stream(s, x.data(), x.data(), 1, format.dtype, SLUICE_SUM, nullptr, &request),
          SLUICE_UNSUPPORTED);
      ASSERT_EQ(enqueue(s, x, nullptr, &request), SLUICE_OK) << rank;
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      EXPECT_EQ(x[0], 0.66796875F) << "1/3 has 8 significant bits in bf16";
      EXPECT_EQ(stats_of(s).bytes_staged_out, 600U);
    });
    ++session_;
  }
}

// The reducer closes the connection, so without fault tolerance the session ends.
TEST_F(Blocks, ReducersRefuseMalformedBlocks) {
  start_reducers(1);
  const auto set_scale = [](std::vector<std::byte>& blocks, uint32_t bits) {
    std::memcpy(blocks.data(), &bits, sizeof bits);
  };
  for (int damage = 0; damage < 4; ++damage) {
    SCOPED_TRACE(damage);
    each_rank(2, [&](uint32_t rank) {
      sluice_options options = options_for(rank, 2);
      options.keep_results = 0;
      const Created c = create(options);
      ASSERT_EQ(c.status, SLUICE_OK) << c.error;
      auto blocks = encode(SLUICE_INT8_BLOCK, std::vector<float>(2560, 1.F));
      if (rank == 1 && damage == 0) blocks[8 + 200] = std::byte{0x80};
      if (rank == 1 && damage == 1) set_scale(blocks, 0xbf800000);  // negative
      if (rank == 1 && damage == 2) set_scale(blocks, 0x3f800001);  // more than 16 significant bits
      if (rank == 1 && damage == 3) set_scale(blocks, 0x7f800000);  // infinite
      EXPECT_NE(sluice_allreduce(c.session, blocks.data(), blocks.data(), 10, SLUICE_INT8_BLOCK, SLUICE_SUM),
                SLUICE_OK);
      // Rank 1 may see that its lane is closed before it gets the reason.
      const auto is_named = testing::HasSubstr("bad_field");
      EXPECT_THAT(reason_of(c.session), rank == 0 ? testing::Matcher<std::string>(is_named)
                                                  : testing::Matcher<std::string>(testing::AnyOf(
                                                        is_named, testing::HasSubstr("lane"))));
      static_cast<void>(sluice_session_close(c.session));
    });
    ++session_;
  }
}

}  // namespace
}  // namespace sluice::test
