// The collectives of ranks that share a host: all kinds, types and operators, against the scalar reference.
#include <sluice/streams.h>

#include <condition_variable>
#include <mutex>
#include <numeric>

#include "reducer/kernels/scalar_reference.h"
#include "tests/functional/local_test_bed.h"
#include "wire/dtype.h"

namespace sluice::test {
namespace {

using LocalCollectives = LocalTestBed;
using Bytes = std::vector<std::byte>;

// Any bits: also NaNs, infinities and subnormals.
Bytes random_bytes(uint32_t seed, size_t size) {
  std::minstd_rand random(seed);
  Bytes out(size);
  for (std::byte& b : out) b = static_cast<std::byte>(random() >> 8);
  return out;
}

// What a reducer makes of the contributions.
Bytes reduced(sluice_dtype dtype, sluice_op op, const std::vector<Bytes>& in) {
  const auto type = static_cast<wire::DType>(dtype);
  const auto operation = static_cast<wire::Op>(op);
  const size_t count = in.front().size() / wire::size_of(type);
  const auto ranks = static_cast<uint32_t>(in.size());
  Bytes out(in.front().size());
  std::vector<const std::byte*> sources;
  for (const Bytes& b : in) sources.push_back(b.data());
  if (ranks <= kernels::kGroup) {
    kernels::reference_fold(type, operation, kernels::Stage::kWhole, wire::SumOrder::kTree, sources, count,
                            ranks, out.data());
    return out;
  }
  std::vector<Bytes> sums;
  for (size_t first = 0; first < ranks; first += kernels::kGroup) {
    const size_t members = std::min<size_t>(kernels::kGroup, ranks - first);
    Bytes& sum = sums.emplace_back(count * wire::accumulated_size_of(type));
    kernels::reference_fold(type, operation, kernels::Stage::kPartial, wire::SumOrder::kTree,
                            std::span(sources).subspan(first, members), count, ranks, sum.data());
  }
  std::vector<const std::byte*> partial;
  for (const Bytes& b : sums) partial.push_back(b.data());
  kernels::reference_fold(type, operation, kernels::Stage::kFinish, wire::SumOrder::kTree, partial, count,
                          ranks, out.data());
  return out;
}

TEST_F(LocalCollectives, AllreduceOfAllTypesAndOperatorsEqualsTheReference) {
  for (const uint32_t ranks : {1U, 2U, 3U, 8U, 11U}) {
    // Less than a vector, several vectors with a rest, and for all types but bytes two pieces.
    for (const size_t count : {size_t{1}, size_t{1003}, size_t{70'003}}) {
      std::vector<Bytes> in;
      for (uint32_t r = 0; r < ranks; ++r) in.push_back(random_bytes(100 * r + 7, count * sizeof(double)));
      run(ranks, [&](uint32_t rank, sluice_session* s) {
        for (int dtype = SLUICE_I8; dtype <= SLUICE_F8E5M2; ++dtype) {
          const size_t bytes = count * wire::size_of(static_cast<wire::DType>(dtype));
          std::vector<Bytes> used;
          for (const Bytes& b : in) used.emplace_back(b.begin(), b.begin() + static_cast<ptrdiff_t>(bytes));
          for (int op = SLUICE_SUM; op <= SLUICE_AVG; ++op) {
            Bytes out(bytes);
            ASSERT_EQ(sluice_allreduce(s, used[rank].data(), out.data(), count,
                                       static_cast<sluice_dtype>(dtype), static_cast<sluice_op>(op)),
                      SLUICE_OK);
            // The reference is slow: one rank compares, another one each time.
            if (rank != static_cast<uint32_t>(dtype + op) % ranks) continue;
            ASSERT_EQ(out, reduced(static_cast<sluice_dtype>(dtype), static_cast<sluice_op>(op), used))
                << ranks << " ranks, dtype " << dtype << ", op " << op << ", count " << count;
          }
        }
      });
    }
  }
}

// Sizes on both sides of each limit: one piece, who sums, and more pieces than slots.
TEST_F(LocalCollectives, AllreduceOfAnySizeInPlace) {
  for (const uint32_t ranks : {2U, 4U, 9U}) {
    run(ranks, [&](uint32_t rank, sluice_session* s) {
      for (const size_t bytes : {4UL, 131'072UL, 131'076UL, 262'144UL, 262'148UL, 1'048'580UL, 5'000'004UL}) {
        std::vector<int32_t> x(bytes / 4);
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int32_t>(i * 31 + rank);
        ASSERT_EQ(sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_I32, SLUICE_SUM), SLUICE_OK);
        const auto n = static_cast<int32_t>(ranks);
        for (size_t i = 0; i < x.size(); ++i)
          ASSERT_EQ(x[i], static_cast<int32_t>(i * 31) * n + n * (n - 1) / 2)
              << bytes << " bytes, element " << i;
      }
      EXPECT_EQ(stats_of(s).operations, 7U);
      EXPECT_EQ(stats_of(s).payload_bytes_out, 0U);  // nothing used a network
    });
  }
}

TEST_F(LocalCollectives, BlocksAreSummed) {
  constexpr size_t kValues = 300'000;
  run(3, [&](uint32_t rank, sluice_session* s) {
    for (const sluice_dtype dtype : {SLUICE_MXFP8, SLUICE_INT8_BLOCK}) {
      std::vector<Bytes> in;
      for (uint32_t r = 0; r < 3; ++r) {
        std::vector<float> values(kValues);
        for (size_t i = 0; i < kValues; ++i) values[i] = static_cast<float>((i * 37 + r * 11) % 1000) - 500.f;
        Bytes& blocks = in.emplace_back(sluice_block_count(kValues) * 264);
        ASSERT_EQ(sluice_encode_blocks(dtype, values.data(), kValues, blocks.data()), SLUICE_OK);
      }
      Bytes out(in[0].size());
      ASSERT_EQ(
          sluice_allreduce(s, in[rank].data(), out.data(), sluice_block_count(kValues), dtype, SLUICE_AVG),
          SLUICE_OK);
      EXPECT_EQ(out, reduced(dtype, SLUICE_AVG, in));
    }
  });
}

struct Parts {
  std::vector<size_t> counts;  // empty: equal parts
  size_t equal = 0;
  [[nodiscard]] size_t of(uint32_t rank) const { return counts.empty() ? equal : counts[rank]; }
  [[nodiscard]] size_t before(uint32_t rank) const {
    return counts.empty() ? equal * rank : std::accumulate(counts.begin(), counts.begin() + rank, size_t{0});
  }
};
const std::vector<Parts> kParts = {{{}, 1}, {{}, 100'000}, {{5, 0, 70'001, 1}}, {{0, 0, 0, 300'000}}};

TEST_F(LocalCollectives, ReduceScatterOfEqualAndUnequalParts) {
  constexpr uint32_t kRanks = 4;
  run(kRanks, [&](uint32_t rank, sluice_session* s) {
    for (const Parts& parts : kParts) {
      for (const bool in_place : {false, true}) {
        const size_t total = parts.before(kRanks - 1) + parts.of(kRanks - 1);
        std::vector<float> send(total), out(parts.of(rank), -1);
        for (size_t i = 0; i < total; ++i) send[i] = static_cast<float>(i % 1000 + rank);
        float* const recv = in_place ? send.data() + parts.before(rank) : out.data();
        sluice_request request = 0;
        ASSERT_EQ(sluice_reduce_scatter_async(s, send.data(), recv, parts.equal,
                                              parts.counts.empty() ? nullptr : parts.counts.data(),
                                              SLUICE_F32, SLUICE_SUM, &request),
                  SLUICE_OK);
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
        for (size_t i = 0; i < parts.of(rank); ++i)
          ASSERT_EQ(recv[i], static_cast<float>((parts.before(rank) + i) % 1000 * kRanks + 6)) << i;
      }
    }
  });
}

TEST_F(LocalCollectives, AllGatherOfEqualAndUnequalParts) {
  constexpr uint32_t kRanks = 4;
  run(kRanks, [&](uint32_t rank, sluice_session* s) {
    for (const Parts& parts : kParts) {
      for (const bool in_place : {false, true}) {
        const size_t total = parts.before(kRanks - 1) + parts.of(kRanks - 1);
        std::vector<uint16_t> all(total), own(parts.of(rank));
        uint16_t* const send = in_place ? all.data() + parts.before(rank) : own.data();
        for (size_t i = 0; i < parts.of(rank); ++i) send[i] = static_cast<uint16_t>(parts.before(rank) + i);
        sluice_request request = 0;
        ASSERT_EQ(sluice_all_gather_async(s, send, all.data(), parts.equal,
                                          parts.counts.empty() ? nullptr : parts.counts.data(), SLUICE_BF16,
                                          &request),
                  SLUICE_OK);
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
        for (size_t i = 0; i < total; ++i) ASSERT_EQ(all[i], static_cast<uint16_t>(i)) << i;
      }
    }
  });
}

TEST_F(LocalCollectives, ReduceAndBroadcastWithEveryRoot) {
  constexpr uint32_t kRanks = 3;
  run(kRanks, [&](uint32_t rank, sluice_session* s) {
    for (uint32_t root = 0; root < kRanks; ++root) {
      for (const size_t count : {size_t{3}, size_t{400'000}}) {
        std::vector<double> in(count, rank + 1.0), out(count, -1);
        sluice_request request = 0;
        ASSERT_EQ(sluice_reduce_async(s, in.data(), rank == root ? out.data() : nullptr, count, SLUICE_F64,
                                      SLUICE_PROD, root, &request),
                  SLUICE_OK);
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
        EXPECT_EQ(out, std::vector<double>(count, rank == root ? 6.0 : -1.0));
        ASSERT_EQ(sluice_broadcast_async(s, in.data(), count, SLUICE_F64, root, &request), SLUICE_OK);
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
        EXPECT_EQ(in, std::vector<double>(count, root + 1.0));
      }
    }
  });
}

TEST_F(LocalCollectives, SixtyFourRanksShareAHost) {
  run(64, [&](uint32_t rank, sluice_session* s) {
    std::vector<int32_t> x(1000, static_cast<int32_t>(rank));
    ASSERT_EQ(sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_I32, SLUICE_SUM), SLUICE_OK);
    EXPECT_EQ(x, std::vector<int32_t>(x.size(), 64 * 63 / 2));
  });
}

// Two threads start and wait at once: each must learn the end of its own operation.
TEST_F(LocalCollectives, NoEndIsMissedBesideAStart) {
  run(2, [&](uint32_t rank, sluice_session* s) {
    std::mutex order;
    std::condition_variable turn;
    int next = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        float x = 0;
        for (int i = 0; i < 2000; ++i) {
          sluice_request request = 0;
          {
            std::unique_lock lock(order);  // all ranks start in one order
            turn.wait(lock, [&] { return next == t; });
            x = static_cast<float>(rank);
            ASSERT_EQ(sluice_allreduce_async(s, &x, &x, 1, SLUICE_F32, SLUICE_SUM, &request), SLUICE_OK);
            next = 1 - t;
          }
          turn.notify_all();
          ASSERT_EQ(sluice_wait(s, request, 20'000), SLUICE_OK);
          ASSERT_EQ(x, 1.f);
        }
      });
    }
    for (std::thread& t : threads) t.join();
  });
}

TEST_F(LocalCollectives, EmptyOperationsEndAtOnce) {
  run(2, [&](uint32_t rank, sluice_session* s) {
    if (rank != 0) return;
    float x = 1;
    EXPECT_EQ(sluice_allreduce(s, &x, &x, 0, SLUICE_F32, SLUICE_SUM), SLUICE_OK);
    EXPECT_EQ(stats_of(s).operations, 1U);
  });
}

// Many operations of different kinds are open at once; some threads wait for them, in any order.
void run_many_open(LocalTestBed& /*bed*/, uint32_t rank, sluice_session* s) {
  constexpr uint32_t kRanks = 3;
  constexpr size_t kOperations = 60, kCount = 50'000;
  std::vector<std::vector<int64_t>> x(kOperations, std::vector<int64_t>(kCount));
  std::vector<sluice_request> requests(kOperations);
  for (size_t i = 0; i < kOperations; ++i) {
    std::iota(x[i].begin(), x[i].end(), static_cast<int64_t>(rank * i));
    if (i % 3 == 2) {
      ASSERT_EQ(sluice_broadcast_async(s, x[i].data(), kCount, SLUICE_I64, static_cast<uint32_t>(i) % kRanks,
                                       &requests[i]),
                SLUICE_OK);
    } else {
      ASSERT_EQ(sluice_allreduce_async(s, x[i].data(), x[i].data(), i % 2 == 0 ? kCount : 7, SLUICE_I64,
                                       SLUICE_MAX, &requests[i]),
                SLUICE_OK);
    }
  }
  std::vector<std::thread> waiters;
  for (size_t t = 0; t < 3; ++t) {
    waiters.emplace_back([&, t] {
      for (size_t i = t; i < kOperations; i += 3) {
        if (t == 1) {
          int done = 0;
          while (done == 0) ASSERT_EQ(sluice_test(s, requests[i], &done), SLUICE_OK);
        } else {
          ASSERT_EQ(sluice_wait(s, requests[kOperations - 3 - i + 2 * t], -1), SLUICE_OK);
        }
      }
    });
  }
  for (std::thread& t : waiters) t.join();
  for (size_t i = 0; i < kOperations; ++i) {
    const auto from = static_cast<int64_t>(i % 3 == 2 ? i % kRanks * i : (kRanks - 1) * i);
    ASSERT_EQ(x[i][3], from + 3) << i;
    const bool is_whole = i % 3 == 2 || i % 2 == 0;
    ASSERT_EQ(x[i].back(),
              (is_whole ? from : static_cast<int64_t>(rank * i)) + static_cast<int64_t>(kCount) - 1)
        << i;
  }
}

TEST_F(LocalCollectives, ManyOpenOperationsWithProgressOfTheSession) {
  run(3, [&](uint32_t rank, sluice_session* s) { run_many_open(*this, rank, s); });
}

TEST_F(LocalCollectives, ManyOpenOperationsWithProgressOfTheCallers) {
  run(
      3, [&](uint32_t rank, sluice_session* s) { run_many_open(*this, rank, s); },
      [](sluice_options& o) { o.progress_threads = 0; });
}

// Nobody waits: the session's own threads make progress.
TEST_F(LocalCollectives, OperationsEndWithoutAWaitingCaller) {
  run(4, [&](uint32_t rank, sluice_session* s) {
    std::vector<float> x(500'000, static_cast<float>(rank));
    sluice_request request = 0;
    ASSERT_EQ(sluice_allreduce_async(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM, &request),
              SLUICE_OK);
    EXPECT_TRUE(eventually([&] { return stats_of(s).operations == 1; }));
    ASSERT_EQ(sluice_wait(s, request, 0), SLUICE_OK);
    EXPECT_EQ(x, std::vector<float>(x.size(), 6));
  });
}

// In the order of a stream. Nothing is sent, so a wire type has no effect.
TEST_F(LocalCollectives, StreamsWorkAndRoundNothing) {
  run(3, [&](uint32_t rank, sluice_session* s) {
    sluice_stream_options options;
    sluice_stream_options_init(&options);
    options.always_staged = 1;
    options.wire_dtype = SLUICE_BF16;
    ASSERT_EQ(sluice_session_open_streams(s, &options, nullptr, 0), SLUICE_OK);
    sluice_stream stream = nullptr;
    ASSERT_EQ(sluice_host_stream_create(&stream), SLUICE_OK);
    std::vector<float> x(700'000, static_cast<float>(rank) + 1.001F), y(5, static_cast<float>(rank));
    ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
    for (std::vector<float>* const v : {&x, &y})
      ASSERT_EQ(sluice_allreduce_on_stream(s, v->data(), v->data(), v->size(), SLUICE_F32, SLUICE_AVG, stream,
                                           nullptr),
                SLUICE_OK);
    ASSERT_EQ(sluice_group_end(s, nullptr), SLUICE_OK);
    ASSERT_EQ(sluice_host_stream_synchronize(stream), SLUICE_OK);
    EXPECT_EQ(x, std::vector<float>(x.size(), (1.001F + 2.001F + 3.001F) / 3));
    EXPECT_EQ(y, std::vector<float>(y.size(), 1));
    sluice_stream_stats stats{};
    stats.struct_size = sizeof stats;
    ASSERT_EQ(sluice_session_stream_stats(s, &stats), SLUICE_OK);
    EXPECT_EQ(stats.elements_cast, 0U);
    ASSERT_EQ(sluice_host_stream_destroy(stream), SLUICE_OK);
  });
}

}  // namespace
}  // namespace sluice::test
