// Operations in the order of streams, over streams of the host.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gpu_client/pipeline/cast.h"
#include "tests/functional/streams_world.h"
#include "wire/dtype.h"

namespace sluice::test {
namespace {

using Streams = StreamsWorld;

std::vector<float> ramp(uint32_t rank, size_t count) {
  std::vector<float> v(count);
  for (size_t i = 0; i < count; ++i) v[i] = static_cast<float>((i * 7 + rank * 13) % 32);
  return v;
}

std::vector<std::byte> noise(uint32_t seed, size_t bytes) {
  std::minstd_rand random(seed);
  std::vector<std::byte> v(bytes);
  for (std::byte& b : v) b = static_cast<std::byte>(random() >> 8);
  return v;
}

// Any bytes are elements of any type, so bits that are equal everywhere are the strictest comparison there
// is.
TEST_F(Streams, HaveTheBitsOfTheSessionsOwnOperationsForEveryTypeAndOperator) {
  start_reducers(2);
  constexpr uint32_t kRanks = 3;
  constexpr size_t kCount = 40'001;
  using Results = std::vector<std::vector<std::byte>>;
  const auto each_pair = [](auto&& body) {
    for (size_t t = 0; t < wire::kDTypeCount; ++t) {
      for (size_t o = 0; o < wire::kOpCount; ++o)
        body(static_cast<sluice_dtype>(t), static_cast<sluice_op>(o));
    }
  };
  const auto reduce_all = [&](uint32_t rank, Results& inputs, auto&& allreduce) {
    Results results;
    each_pair([&](sluice_dtype t, sluice_op o) {
      const size_t bytes = kCount * wire::size_of(static_cast<wire::DType>(t));
      // Memory of a vector's stays where it is when the vector moves.
      const std::vector<std::byte>& in = inputs.emplace_back(
          noise(rank * 1000 + static_cast<uint32_t>(t) * 10 + static_cast<uint32_t>(o), bytes));
      std::vector<std::byte> out(bytes);
      EXPECT_EQ(allreduce(in.data(), out.data(), t, o), SLUICE_OK) << sluice_refusal();
      results.push_back(std::move(out));
    });
    return results;
  };
  std::array<Results, kRanks> wanted;
  run_session(kRanks, nullptr, [&](uint32_t rank, sluice_session* s) {
    Results inputs;
    wanted[rank] = reduce_all(rank, inputs, [s](const void* in, void* out, sluice_dtype t, sluice_op o) {
      return sluice_allreduce(s, in, out, kCount, t, o);
    });
  });
  ++session_;
  for (const uint32_t staged : {0u, 1u}) {
    sluice_stream_options options = small_options();
    options.always_staged = staged;
    run_streams(kRanks, options, [&](uint32_t rank, sluice_session* s) {
      HostStreamOwner stream;
      Results inputs;
      const Results got =
          reduce_all(rank, inputs, [&](const void* in, void* out, sluice_dtype t, sluice_op o) {
            return sluice_allreduce_on_stream(s, in, out, kCount, t, o, stream.get(), nullptr);
          });
      // Nothing has been waited for: the vectors' memory is written until here.
      stream.synchronize();
      EXPECT_EQ(got, wanted[rank]) << "staged " << staged;
      EXPECT_EQ(stats_of(s).bytes_staged_out > 0, staged == 1);
    });
  }
}

TEST_F(Streams, RunBehindWhatTheStreamWasGivenAndAheadOfWhatItIsGiven) {
  start_reducers(1);
  for (const uint32_t staged : {0u, 1u}) {
    sluice_stream_options options = small_options();
    options.always_staged = staged;
    run_streams(2, options, [&](uint32_t rank, sluice_session* s) {
      constexpr size_t kCount = 100'000;
      HostStreamOwner stream;
      std::vector<float> gradients(kCount, -1.f), used(kCount);
      std::promise<void> go;
      stream.submit([&, ready = std::make_shared<std::shared_future<void>>(go.get_future())] {
        ready->wait();
        std::ranges::copy(ramp(rank, kCount), gradients.begin());
      });
      sluice_request request = 0;
      ASSERT_EQ(sluice_allreduce_on_stream(s, gradients.data(), gradients.data(), kCount, SLUICE_F32,
                                           SLUICE_SUM, stream.get(), &request),
                SLUICE_OK);
      stream.submit([&] { used = gradients; });
      // The call came back although the stream has not even made the gradients.
      int done = 1;
      ASSERT_EQ(sluice_test(s, request, &done), SLUICE_OK);
      EXPECT_EQ(done, 0);
      EXPECT_EQ(sluice_wait(s, request, 1), SLUICE_TIMEOUT);
      go.set_value();
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      EXPECT_EQ(sluice_wait(s, request, -1), SLUICE_INVALID_ARGUMENT) << "the request was over";
      stream.synchronize();
      std::vector<float> sum = ramp(0, kCount);
      const std::vector<float> other = ramp(1, kCount);
      for (size_t i = 0; i < kCount; ++i) sum[i] += other[i];
      EXPECT_EQ(used, sum);
    });
  }
}

TEST_F(Streams, NeedNoStreamOnTheHostWhereARequestTellsOfTheEnd) {
  start_reducers(2);
  for (const uint32_t staged : {0u, 1u}) {
    sluice_stream_options options = small_options();
    options.always_staged = staged;
    run_streams(2, options, [&](uint32_t rank, sluice_session* s) {
      HostStreamOwner stream;
      for (const size_t count : {1, 1000, 200'000}) {
        // Between operations of a stream, whose order they keep.
        std::vector<float> data = ramp(rank, count), other = ramp(rank, 10);
        sluice_request request = 0;
        ASSERT_EQ(sluice_allreduce_on_stream(s, other.data(), other.data(), 10, SLUICE_F32, SLUICE_SUM,
                                             stream.get(), nullptr),
                  SLUICE_OK);
        ASSERT_EQ(sluice_allreduce_on_stream(s, data.data(), data.data(), count, SLUICE_F32, SLUICE_SUM,
                                             nullptr, &request),
                  SLUICE_OK);
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
        std::vector<float> sum = ramp(0, count);
        const std::vector<float> second = ramp(1, count);
        for (size_t i = 0; i < count; ++i) sum[i] += second[i];
        EXPECT_EQ(data, sum);
        stream.synchronize();
        EXPECT_EQ(other[9], sum.size() > 9 ? sum[9] : other[9]);
      }
    });
  }
}

TEST_F(Streams, GoRoundInTheStagingWithoutAnybodyWaiting) {
  start_reducers(2);
  sluice_stream_options options = small_options();
  options.always_staged = 1;
  run_streams(2, options, [&](uint32_t rank, sluice_session* s) {
    constexpr size_t kCount = 1'000'000;  // 62 pieces in 4 places
    HostStreamOwner stream;
    std::vector<std::vector<float>> data(4);
    for (auto& d : data) {
      d = ramp(rank, kCount);
      ASSERT_EQ(sluice_allreduce_on_stream(s, d.data(), d.data(), kCount, SLUICE_F32, SLUICE_AVG,
                                           stream.get(), nullptr),
                SLUICE_OK);
    }
    stream.synchronize();
    std::vector<float> mean = ramp(0, kCount);
    const std::vector<float> other = ramp(1, kCount);
    for (size_t i = 0; i < kCount; ++i) mean[i] = (mean[i] + other[i]) / 2;
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

// What a sum of f32 is when it travels as `dtype`: each contribution rounded, added in f32, rounded once.
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

std::vector<float> gaussian(uint32_t seed, size_t count, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.f, deviation);
  std::vector<float> v(count);
  for (float& x : v) x = normal(random);
  return v;
}

TEST_F(Streams, SendF32AsBf16RoundedOnceAtEachEnd) {
  start_reducers(2);
  constexpr size_t kCount = 100'003;
  const std::vector<std::vector<float>> in{gaussian(1, kCount, 1e-3f), gaussian(2, kCount, 1e-3f),
                                           gaussian(3, kCount, 1e-3f)};
  sluice_stream_options options = small_options();
  options.wire_dtype = SLUICE_BF16;
  options.measure_error = 1;
  run_streams(3, options, [&](uint32_t rank, sluice_session* s) {
    HostStreamOwner stream;
    std::vector<float> out(kCount), most(kCount);
    ASSERT_EQ(sluice_allreduce_on_stream(s, in[rank].data(), out.data(), kCount, SLUICE_F32, SLUICE_SUM,
                                         stream.get(), nullptr),
              SLUICE_OK);
    ASSERT_EQ(sluice_allreduce_on_stream(s, in[rank].data(), most.data(), kCount, SLUICE_F32, SLUICE_MAX,
                                         stream.get(), nullptr),
              SLUICE_OK);
    stream.synchronize();
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(out[i], rounded_sum(in, i, SLUICE_BF16)) << i;
      ASSERT_EQ(most[i], std::max({in[0][i], in[1][i], in[2][i]})) << "not a sum: travels as it is";
    }
    const sluice_stream_stats stats = stats_of(s);
    EXPECT_EQ(stats.elements_cast, kCount);
    EXPECT_EQ(stats.bytes_staged_out, kCount * 2);
    // Rounding to 8 bits of significand: at most 2^-9 relative, 2^-9 / sqrt(3) at an even spread.
    const double error = std::sqrt(stats.cast_error_squares / stats.cast_value_squares);
    EXPECT_GT(error, 0.0005);
    EXPECT_LT(error, 1.0 / 512);
  });
}

// NaN are not equal, their bits are.
std::vector<uint32_t> bits_of_all(const std::vector<float>& v) {
  std::vector<uint32_t> bits(v.size());
  std::ranges::transform(v, bits.begin(), pipeline::bits_of);
  return bits;
}

// Gradients that no f16 holds, too large and too small, each kind in blocks of its own.
TEST_F(Streams, SendF32AsF16WithScalesThatLetNoSumOverflow) {
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
  // The largest of their block on every rank: the sum is what must not overflow.
  for (auto& v : in) std::fill_n(v.begin() + 3 * kBlock, 4, 500'000.f);
  in[0][5] = std::numeric_limits<float>::infinity();
  in[1][6] = std::numeric_limits<float>::quiet_NaN();
  for (const sluice_op op : {SLUICE_SUM, SLUICE_AVG}) {
    sluice_stream_options options = small_options();
    options.wire_dtype = SLUICE_F16;
    options.measure_error = 1;
    std::array<std::vector<float>, kRanks> results;
    run_streams(kRanks, options, [&](uint32_t rank, sluice_session* s) {
      HostStreamOwner stream;
      // Twice as many as there are places for exponents, so that they are used again.
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
    // Four roundings to 11 bits. The fifth block is of f32's own subnormals, which have about 15 bits there.
    for (size_t block = 0; block < error.size(); ++block)
      EXPECT_LT(std::sqrt(error[block] / value[block]), 1e-3) << "block " << block << " op " << op;
  }
}

TEST_F(Streams, PutOperationsOfAGroupTogether) {
  start_reducers(2);
  sluice_stream_options options = small_options();
  options.fusion_bytes = 256 << 10;
  run_streams(2, options, [&](uint32_t rank, sluice_session* s) {
    HostStreamOwner stream, another;
    std::vector<std::vector<float>> data;
    for (size_t i = 0; i < 300; ++i) data.push_back(ramp(rank, i * 3));  // 134550 elements, 526 KiB
    std::vector<double> doubles(1000, rank + 1.0);
    std::vector<double> late(10, 2.0);
    ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
    for (auto& d : data) {
      ASSERT_EQ(sluice_allreduce_on_stream(s, d.data(), d.data(), d.size(), SLUICE_F32, SLUICE_SUM,
                                           stream.get(), nullptr),
                SLUICE_OK);
    }
    ASSERT_EQ(sluice_allreduce_on_stream(s, doubles.data(), doubles.data(), doubles.size(), SLUICE_F64,
                                         SLUICE_SUM, stream.get(), nullptr),
              SLUICE_OK);
    ASSERT_EQ(sluice_allreduce_on_stream(s, late.data(), late.data(), late.size(), SLUICE_F64, SLUICE_SUM,
                                         another.get(), nullptr),
              SLUICE_OK);
    std::vector<double> most(10, rank);
    ASSERT_EQ(sluice_allreduce_on_stream(s, most.data(), most.data(), most.size(), SLUICE_F64, SLUICE_MAX,
                                         another.get(), nullptr),
              SLUICE_OK);
    EXPECT_EQ(stats_of(s).rounds, 0u) << "nothing begins before the group is complete";
    sluice_request request = 0;
    ASSERT_EQ(sluice_group_end(s, &request), SLUICE_OK);
    ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
    for (size_t i = 0; i < data.size(); ++i) {
      std::vector<float> sum = ramp(0, i * 3);
      const std::vector<float> other = ramp(1, i * 3);
      for (size_t k = 0; k < sum.size(); ++k) sum[k] += other[k];
      ASSERT_EQ(data[i], sum) << i;
    }
    EXPECT_EQ(doubles, std::vector<double>(1000, 3.0));
    EXPECT_EQ(late, std::vector<double>(10, 4.0));
    EXPECT_EQ(most, std::vector<double>(10, 1.0));
    EXPECT_EQ(stats_of(s).operations, 303u);
    EXPECT_EQ(stats_of(s).rounds, 3u + 1 + 1 + 1) << "256 KiB, 256 KiB, the rest, f64, another stream, max";
  });
}

}  // namespace
}  // namespace sluice::test
