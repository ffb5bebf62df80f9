// Operations in the order of host streams.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gpu_client/pipeline/cast.h"
#include "tests/functional/streams_test_bed.h"
#include "wire/dtype.h"

namespace sluice::test {
namespace {

using Streams = StreamsTestBed;

std::vector<std::byte> noise(uint32_t seed, size_t bytes) {
  std::minstd_rand random(seed);
  std::vector<std::byte> v(bytes);
  for (std::byte& b : v) b = static_cast<std::byte>(random() >> 8);
  return v;
}

// Uses random bytes as elements of every type and compares the bits of the results.
TEST_F(Streams, ResultsHaveTheBitsOfSessionOperationsForEveryTypeAndOperator) {
  start_reducers(2);
  constexpr uint32_t kRanks = 3;
  constexpr size_t kCount = 40'001;
  using Results = std::vector<std::vector<std::byte>>;
  const auto each_pair = [](auto&& body) {
    for (size_t t = 0; t < wire::kPlainDTypeCount; ++t) {
      for (size_t o = 0; o < wire::kOpCount; ++o)
        body(static_cast<sluice_dtype>(t), static_cast<sluice_op>(o));
    }
  };
  const auto reduce_all = [&](uint32_t rank, Results& inputs, auto&& allreduce) {
    Results results;
    each_pair([&](sluice_dtype t, sluice_op o) {
      const size_t bytes = kCount * wire::size_of(static_cast<wire::DType>(t));
      // The data of a vector keeps its address when the vector moves.
      const std::vector<std::byte>& in = inputs.emplace_back(
          noise(rank * 1000 + static_cast<uint32_t>(t) * 10 + static_cast<uint32_t>(o), bytes));
      std::vector<std::byte> out(bytes);
      EXPECT_EQ(allreduce(in.data(), out.data(), t, o), SLUICE_OK) << sluice_refusal();
      results.push_back(std::move(out));
    });
    return results;
  };
  std::array<Results, kRanks> expected;
  run_session(kRanks, nullptr, [&](uint32_t rank, sluice_session* s) {
    Results inputs;
    expected[rank] = reduce_all(rank, inputs, [s](const void* in, void* out, sluice_dtype t, sluice_op o) {
      return sluice_allreduce(s, in, out, kCount, t, o);
    });
  });
  ++session_;
  for (const uint32_t staged : {0u, 1u}) {
    run_streams(kRanks, small_options(staged), [&](uint32_t rank, sluice_session* s) {
      ScopedHostStream stream;
      Results inputs;
      const Results results =
          reduce_all(rank, inputs, [&](const void* in, void* out, sluice_dtype t, sluice_op o) {
            return sluice_allreduce_on_stream(s, in, out, kCount, t, o, stream.get(), nullptr);
          });
      // The library writes to the vectors until here.
      stream.synchronize();
      EXPECT_EQ(results, expected[rank]) << "staged " << staged;
      EXPECT_EQ(stats_of(s).bytes_staged_out > 0, staged == 1);
    });
  }
}

TEST_F(Streams, OperationsRunAfterEarlierAndBeforeLaterWorkOfTheStream) {
  start_reducers(1);
  for (const uint32_t staged : {0u, 1u}) {
    run_streams(2, small_options(staged), [&](uint32_t rank, sluice_session* s) {
      constexpr size_t kCount = 100'000;
      ScopedHostStream stream;
      std::vector<float> gradients(kCount, -1.f), used(kCount);
      std::promise<void> start;
      stream.submit([&, ready = std::make_shared<std::shared_future<void>>(start.get_future())] {
        ready->wait();
        std::ranges::copy(ramp(rank, kCount), gradients.begin());
      });
      sluice_request request = 0;
      ASSERT_EQ(enqueue(s, gradients, stream.get(), &request), SLUICE_OK);
      stream.submit([&] { used = gradients; });
      // The call returned before the stream has produced the gradients.
      int done = 1;
      ASSERT_EQ(sluice_test(s, request, &done), SLUICE_OK);
      EXPECT_EQ(done, 0);
      EXPECT_EQ(sluice_wait(s, request, 1), SLUICE_TIMEOUT);
      start.set_value();
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      EXPECT_EQ(sluice_wait(s, request, -1), SLUICE_INVALID_ARGUMENT) << "the request has ended";
      stream.synchronize();
      EXPECT_EQ(used, sum_of_ramps(2, kCount));
    });
  }
}

TEST_F(Streams, HostOperationsWithARequestNeedNoStream) {
  start_reducers(2);
  for (const uint32_t staged : {0u, 1u}) {
    run_streams(2, small_options(staged), [&](uint32_t rank, sluice_session* s) {
      ScopedHostStream stream;
      for (const size_t count : {1, 1000, 200'000}) {
        // Alternates with operations on a stream; the order is kept.
        std::vector<float> data = ramp(rank, count), other = ramp(rank, 10);
        sluice_request request = 0;
        ASSERT_EQ(enqueue(s, other, stream.get()), SLUICE_OK);
        ASSERT_EQ(enqueue(s, data, nullptr, &request), SLUICE_OK);
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
        EXPECT_EQ(data, sum_of_ramps(2, count));
        stream.synchronize();
        EXPECT_EQ(other, sum_of_ramps(2, 10));
      }
    });
  }
}

TEST_F(Streams, StagingBuffersAreReusedWithoutWaiting) {
  start_reducers(2);
  run_streams(2, small_options(1), [&](uint32_t rank, sluice_session* s) {
    constexpr size_t kCount = 1'000'000;  // 62 segments in 4 staging buffers
    ScopedHostStream stream;
    std::vector<std::vector<float>> data(4);
    for (auto& d : data) {
      d = ramp(rank, kCount);
      ASSERT_EQ(enqueue(s, d, stream.get(), nullptr, SLUICE_AVG), SLUICE_OK);
    }
    stream.synchronize();
    std::vector<float> mean = sum_of_ramps(2, kCount);
    for (float& x : mean) x /= 2;
    for (const auto& d : data) EXPECT_EQ(d, mean);
    const sluice_stream_stats stats = stats_of(s);
    EXPECT_EQ(stats.operations, 4u);
    EXPECT_EQ(stats.rounds, 4u);
    EXPECT_EQ(stats.pieces, 4u * 62);
    EXPECT_EQ(stats.bytes_staged_out, 4 * kCount * sizeof(float));
    EXPECT_EQ(stats.bytes_staged_in, 4 * kCount * sizeof(float));
    EXPECT_EQ(stats.elements_cast, 0u);
    EXPECT_EQ(stats.pinned_bytes, (512u << 10) + 4096);
  });
}

// Returns the sum of f32 values that travel as `dtype`: each contribution is rounded, added in f32, and the
// sum is rounded once.
float rounded_sum(const std::vector<std::vector<float>>& contributions, size_t i, sluice_dtype dtype) {
  float sum = 0;
  for (size_t r = 0; r < contributions.size(); ++r) {
    const float x = contributions[r][i];
    const float sent = dtype == SLUICE_BF16 ? pipeline::from_bf16(pipeline::to_bf16(x))
                                            : pipeline::from_f16(pipeline::to_f16(x));
    sum = r == 0 ? sent : sum + sent;
  }
  return dtype == SLUICE_BF16 ? pipeline::from_bf16(pipeline::to_bf16(sum))
                              : pipeline::from_f16(pipeline::to_f16(sum));
}

TEST_F(Streams, F32TravelsAsBf16RoundedOnceInEachDirection) {
  start_reducers(2);
  constexpr size_t kCount = 100'003;
  const std::vector<std::vector<float>> in{gaussian(1, kCount, 1e-3f), gaussian(2, kCount, 1e-3f),
                                           gaussian(3, kCount, 1e-3f)};
  sluice_stream_options options = small_options();
  options.wire_dtype = SLUICE_BF16;
  options.measure_error = 1;
  run_streams(3, options, [&](uint32_t rank, sluice_session* s) {
    ScopedHostStream stream;
    std::vector<float> out(kCount), max(kCount);
    for (const auto& [to, op] : {std::pair(&out, SLUICE_SUM), std::pair(&max, SLUICE_MAX)}) {
      ASSERT_EQ(sluice_allreduce_on_stream(s, in[rank].data(), to->data(), kCount, SLUICE_F32, op,
                                           stream.get(), nullptr),
                SLUICE_OK);
    }
    stream.synchronize();
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(out[i], rounded_sum(in, i, SLUICE_BF16)) << i;
      ASSERT_EQ(max[i], std::max({in[0][i], in[1][i], in[2][i]})) << "a maximum travels as f32";
    }
    const sluice_stream_stats stats = stats_of(s);
    EXPECT_EQ(stats.elements_cast, kCount);
    EXPECT_EQ(stats.bytes_staged_out, kCount * 2);
    // Rounding to 8 bits of significand: at most 2^-9 relative, and 2^-9 / sqrt(3) for evenly spread values.
    const double error = std::sqrt(stats.cast_error_squares / stats.cast_value_squares);
    EXPECT_GT(error, 0.0005);
    EXPECT_LT(error, 1.0 / 512);
  });
}

// Uses gradients beyond the range of f16, both too large and too small, in separate blocks.
TEST_F(Streams, F32TravelsAsF16WithScalesThatPreventOverflow) {
  start_reducers(2);
  constexpr size_t kBlock = pipeline::kScaleBlock;
  constexpr size_t kCount = 5 * kBlock + 77;
  constexpr uint32_t kRanks = 3;
  std::vector<std::vector<float>> in;
  for (uint32_t r = 0; r < kRanks; ++r) {
    auto v = gaussian(r + 1, kCount, 1.f);
    const std::array<float, 6> magnitude{1.f, 1e30f, 1e-30f, 6e4f, 3e-41f, 1e-3f};
    for (size_t i = 0; i < kCount; ++i) v[i] *= magnitude[i / kBlock] * (r == 1 ? 0.01f : 1.f);
    in.push_back(std::move(v));
  }
  // The largest of their block on every rank, so that the sum would overflow first.
  for (auto& v : in) std::fill_n(v.begin() + 3 * kBlock, 4, 500'000.f);
  in[0][5] = std::numeric_limits<float>::infinity();
  in[1][6] = std::numeric_limits<float>::quiet_NaN();
  for (const sluice_op op : {SLUICE_SUM, SLUICE_AVG}) {
    sluice_stream_options options = small_options();
    options.wire_dtype = SLUICE_F16;
    options.measure_error = 1;
    std::array<std::vector<float>, kRanks> results;
    run_streams(kRanks, options, [&](uint32_t rank, sluice_session* s) {
      ScopedHostStream stream;
      // Twice as many operations as exponent buffers, so that the buffers are reused.
      for (size_t i = 0; i < 8; ++i) {
        std::vector<float> out(kCount);
        ASSERT_EQ(sluice_allreduce_on_stream(s, in[rank].data(), out.data(), kCount, SLUICE_F32, op,
                                             stream.get(), nullptr),
                  SLUICE_OK);
        stream.synchronize();
        if (i > 0) {
          EXPECT_EQ(bits_of_all(out), bits_of_all(results[rank]));
        }
        results[rank] = std::move(out);
      }
      const sluice_stream_stats stats = stats_of(s);
      const double error = std::sqrt(stats.cast_error_squares / stats.cast_value_squares);
      EXPECT_GT(error, 0.0);
      EXPECT_LT(error, 1.0 / 2048);
    });
    for (uint32_t r = 1; r < kRanks; ++r)
      EXPECT_EQ(bits_of_all(results[r]), bits_of_all(results[0])) << "rank " << r;
    const std::vector<float>& out = results[0];
    EXPECT_EQ(out[5], std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(out[6]));
    const double divisor = op == SLUICE_AVG ? kRanks : 1;
    std::array<double, 6> error{}, value{};
    for (size_t i = 0; i < kCount; ++i) {
      if (i == 5 || i == 6) continue;
      const double sum = (double{in[0][i]} + in[1][i] + in[2][i]) / divisor;
      ASSERT_TRUE(std::isfinite(out[i])) << i;
      error[i / kBlock] += (out[i] - sum) * (out[i] - sum);
      value[i / kBlock] += sum * sum;
    }
    // Four roundings to 11 bits. The fifth block contains subnormal f32 with about 15 significant bits.
    for (size_t block = 0; block < error.size(); ++block)
      EXPECT_LT(std::sqrt(error[block] / value[block]), 1e-3) << "block " << block << " op " << op;
  }
}

TEST_F(Streams, OperationsOfAGroupAreMerged) {
  start_reducers(2);
  sluice_stream_options options = small_options();
  options.fusion_bytes = 256 << 10;
  run_streams(2, options, [&](uint32_t rank, sluice_session* s) {
    ScopedHostStream stream, second_stream;
    std::vector<std::vector<float>> data;
    for (size_t i = 0; i < 300; ++i) data.push_back(ramp(rank, i * 3));  // 134550 elements, 526 KiB
    std::vector<double> doubles(1000, rank + 1.0);
    std::vector<double> other_stream(10, 2.0);
    ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
    for (auto& d : data) ASSERT_EQ(enqueue(s, d, stream.get()), SLUICE_OK);
    ASSERT_EQ(enqueue(s, doubles, stream.get()), SLUICE_OK);
    ASSERT_EQ(enqueue(s, other_stream, second_stream.get()), SLUICE_OK);
    std::vector<double> max(10, rank);
    ASSERT_EQ(enqueue(s, max, second_stream.get(), nullptr, SLUICE_MAX), SLUICE_OK);
    EXPECT_EQ(stats_of(s).rounds, 0u) << "an operation started before the end of the group";
    sluice_request request = 0;
    ASSERT_EQ(sluice_group_end(s, &request), SLUICE_OK);
    ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
    for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], sum_of_ramps(2, i * 3)) << i;
    EXPECT_EQ(doubles, std::vector<double>(1000, 3.0));
    EXPECT_EQ(other_stream, std::vector<double>(10, 4.0));
    EXPECT_EQ(max, std::vector<double>(10, 1.0));
    EXPECT_EQ(stats_of(s).operations, 303u);
    EXPECT_EQ(stats_of(s).rounds, 3u + 1 + 1 + 1) << "256 KiB, 256 KiB, the rest, f64, another stream, max";
  });
}

}  // namespace
}  // namespace sluice::test
