// Reduce-scatter, all-gather, reduce and broadcast in the order of streams: bits and bytes.
#include "tests/functional/stream_collective_operation.h"

namespace sluice::test {
namespace {

std::vector<Operation> every_operation() {
  // 90,000 f32 and more are several segments of 64 KiB.
  const std::vector<std::vector<size_t>> parts{
      {1, 1, 1}, {1000, 1000, 1000},      {0, 0, 5}, {7, 0, 40'001}, {90'000, 3, 20'000},
      {0, 0, 0}, {30'000, 30'000, 30'000}};
  std::vector<Operation> all;
  for (const auto& counts : parts) {
    for (const Kind kind : kKinds) {
      for (const auto& [dtype, op] :
           {std::pair(SLUICE_F32, SLUICE_SUM), std::pair(SLUICE_I8, SLUICE_MAX),
            std::pair(SLUICE_BF16, SLUICE_AVG), std::pair(SLUICE_F64, SLUICE_PROD)}) {
        for (const bool in_place : {false, true}) {
          const auto seed = static_cast<uint32_t>(all.size());
          all.push_back({kind, dtype, op, counts, seed % 3, in_place, seed});
        }
      }
    }
  }
  return all;
}

TEST_P(StreamCollectives, HaveTheBitsAndTheNetworkBytesOfSessionOperations) {
  start_pool(2);
  constexpr uint32_t kRanks = 3;
  const std::vector<Operation> operations = every_operation();
  std::array<std::vector<Bytes>, kRanks> expected;
  std::array<sluice_stats, kRanks> network{};
  run_session(kRanks, nullptr, [&](uint32_t rank, sluice_session* s) {
    HostRankMemory memory;
    for (const Operation& o : operations) {
      sluice_request request = 0;
      const Issued i = issue(s, memory, rank, o, false, &request);
      ASSERT_EQ(i.status, SLUICE_OK);
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      expected[rank].push_back(result(memory, rank, o, i));
    }
    network[rank] = network_stats(s);
  });
  ++session_;
  run_on_streams(kRanks, nullptr, [&](uint32_t rank, sluice_session* s, RankMemory& memory) {
    std::vector<Issued> issued;
    uint64_t out = 0, in = 0;
    for (const Operation& o : operations) {
      issued.push_back(issue(s, memory, rank, o, true));
      ASSERT_EQ(issued.back().status, SLUICE_OK) << sluice_refusal();
      out += bytes_out(o, rank);
      in += bytes_in(o, rank);
    }
    for (size_t i = 0; i < operations.size(); ++i)
      ASSERT_EQ(result(memory, rank, operations[i], issued[i]), expected[rank][i]) << "operation " << i;
    const sluice_stream_stats stats = stats_of(s);
    EXPECT_EQ(stats.bytes_staged_out, is_staged() ? out : 0);
    EXPECT_EQ(stats.bytes_staged_in, is_staged() ? in : 0);
    // Without a result here, the last operations may still be on the network.
    EXPECT_TRUE(eventually([&] { return stats_of(s).operations == operations.size(); }));
    EXPECT_EQ(network_stats(s).payload_bytes_out, network[rank].payload_bytes_out);
    EXPECT_EQ(network_stats(s).payload_bytes_in, network[rank].payload_bytes_in);
  });
}

// As sums of bf16 have the same bits in any division into segments, and blocks begin with each part, a
// reduce-scatter has the bits of an allreduce of each part.
TEST_P(StreamCollectives, ReductionsTravelInTheWireTypeAndKeepTheirErrors) {
  start_pool(2);
  constexpr uint32_t kRanks = 3;
  for (const sluice_dtype wire : {SLUICE_BF16, SLUICE_F16, SLUICE_MXFP8, SLUICE_INT8_BLOCK}) {
    // On one host nothing is sent, so nothing is converted.
    const bool is_block = !is_on_one_host() && (wire == SLUICE_MXFP8 || wire == SLUICE_INT8_BLOCK);
    for (const std::vector<size_t>& counts :
         {std::vector<size_t>{1000, 0, 70'001}, {256, 512, 768}, {100'000, 100'000, 100'000}}) {
      const size_t count = std::accumulate(counts.begin(), counts.end(), size_t{0});
      std::vector<std::vector<float>> in;
      for (uint32_t r = 0; r < kRanks; ++r) {
        in.push_back(gaussian(r + 1, count, 1.F));
      }
      const auto adjust = [&](sluice_stream_options& o) { o.wire_dtype = wire; };
      run_on_streams(kRanks, adjust, [&](uint32_t rank, sluice_session* s, RankMemory& memory) {
        const auto upload = [&](const std::vector<float>& v) {
          return reinterpret_cast<float*>(memory.upload(bytes_of(v)));
        };
        const auto download = [&](const float* at, size_t elements) {
          return floats_of(memory.download(reinterpret_cast<const std::byte*>(at), elements * sizeof(float)));
        };
        float* const x = upload(in[rank]);
        const std::vector<float> zeros(count);
        float* const scattered = upload(std::vector<float>(counts[rank]));
        float* const residual = upload(zeros);
        const sluice_stats before = network_stats(s);
        sluice_request request = 0;
        ASSERT_EQ(sluice_reduce_scatter_on_stream(s, x, scattered, 0, counts.data(), SLUICE_F32, SLUICE_SUM,
                                                  residual, memory.stream(), &request),
                  SLUICE_OK)
            << sluice_refusal();
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
        const auto wire_bytes = [&](size_t elements) {
          if (is_on_one_host()) return elements * sizeof(float);
          return is_block ? (elements + 255) / 256 * 264 : elements * 2;
        };
        size_t sent = 0;
        for (const size_t c : counts) sent += wire_bytes(c);
        EXPECT_EQ(stats_of(s).bytes_staged_out, sent);
        EXPECT_EQ(stats_of(s).bytes_staged_in, wire_bytes(counts[rank]));
        EXPECT_EQ(stats_of(s).elements_cast, is_on_one_host() ? 0 : count);
        const size_t exponents = wire == SLUICE_F16 ? (count + 16383) / 16384 : 0;
        // Shared memory has no payload.
        const uint64_t network = is_on_one_host() ? 0 : 1;
        EXPECT_EQ(network_stats(s).payload_bytes_out - before.payload_bytes_out,
                  network * (sent + exponents));
        EXPECT_EQ(network_stats(s).payload_bytes_in - before.payload_bytes_in,
                  network * (wire_bytes(counts[rank]) + exponents));
        // The same by allreduces.
        float* const feedback = upload(zeros);
        float* const reduced = upload(zeros);
        size_t first = 0;
        for (uint32_t part = 0; part < kRanks; first += counts[part++]) {
          ASSERT_EQ(
              sluice_allreduce_residual_on_stream(s, x + first, reduced + first, counts[part], SLUICE_F32,
                                                  SLUICE_SUM, feedback + first, memory.stream(), nullptr),
              SLUICE_OK);
        }
        first = std::accumulate(counts.begin(), counts.begin() + rank, size_t{0});
        const std::vector<float> mine = download(scattered, counts[rank]);
        const std::vector<float> all = download(reduced, count);
        const std::vector<float> kept = download(residual, count);
        if (wire != SLUICE_F16) {  // the scale blocks of f16 differ
          EXPECT_EQ(bits_of_all(mine),
                    bits_of_all({all.begin() + static_cast<ptrdiff_t>(first),
                                 all.begin() + static_cast<ptrdiff_t>(first + counts[rank])}));
        }
        EXPECT_EQ(kept, download(feedback, count));
        EXPECT_EQ(is_block, std::ranges::any_of(kept, [](float e) { return e != 0; }));
        // A reduce has the bits of an allreduce of the whole.
        float* const at_root = upload(zeros);
        float* const whole = upload(zeros);
        ASSERT_EQ(
            sluice_allreduce_on_stream(s, x, whole, count, SLUICE_F32, SLUICE_AVG, memory.stream(), nullptr),
            SLUICE_OK);
        ASSERT_EQ(sluice_reduce_on_stream(s, x, rank == 1 ? at_root : nullptr, count, SLUICE_F32, SLUICE_AVG,
                                          1, nullptr, memory.stream(), nullptr),
                  SLUICE_OK)
            << sluice_refusal();
        if (rank == 1) {
          EXPECT_EQ(bits_of_all(download(at_root, count)), bits_of_all(download(whole, count)));
        }
        memory.synchronize();
      });
    }
  }
}

// f16 with values of one magnitude: within the rounding of four conversions.
TEST_P(StreamCollectives, AReduceScatterAsF16NeitherOverflowsNorVanishes) {
  start_pool(2);
  constexpr uint32_t kRanks = 3;
  const std::vector<size_t> counts{50'000, 0, 120'001};
  const size_t count = 170'001;
  const auto adjust = [](sluice_stream_options& o) { o.wire_dtype = SLUICE_F16; };
  for (const float magnitude : {1e30F, 1.F, 1e-25F}) {
    std::vector<std::vector<float>> in;
    for (uint32_t r = 0; r < kRanks; ++r) in.push_back(gaussian(r + 9, count, magnitude));
    run_on_streams(kRanks, adjust, [&](uint32_t rank, sluice_session* s, RankMemory& memory) {
      auto* const x = reinterpret_cast<float*>(memory.upload(bytes_of(in[rank])));
      float* const out = x + (rank == 2 ? counts[0] : 0);  // in place
      ASSERT_EQ(sluice_reduce_scatter_on_stream(s, x, out, 0, counts.data(), SLUICE_F32, SLUICE_SUM, nullptr,
                                                memory.stream(), nullptr),
                SLUICE_OK)
          << sluice_refusal();
      const std::vector<float> sums =
          floats_of(memory.download(reinterpret_cast<const std::byte*>(out), counts[rank] * sizeof(float)));
      double error = 0, value = 0;
      for (size_t i = 0; i < sums.size(); ++i) {
        const size_t at = i + (rank == 2 ? counts[0] : 0);
        const double sum = (double{in[0][at]} + in[1][at] + in[2][at]) / magnitude;
        error += (sums[i] / magnitude - sum) * (sums[i] / magnitude - sum);
        value += sum * sum;
      }
      EXPECT_LE(std::sqrt(error), std::sqrt(value) * 1e-3) << "rank " << rank << ", magnitude " << magnitude;
    });
  }
}

TEST_P(StreamCollectives, AGroupMergesNeighborsOfOneKind) {
  start_pool(2);
  constexpr uint32_t kRanks = 3;
  std::vector<Operation> operations;
  const auto add = [&](Kind kind, std::vector<size_t> counts, uint32_t root, size_t times) {
    for (size_t i = 0; i < times; ++i) {
      operations.push_back(
          {kind, SLUICE_F32, SLUICE_SUM, counts, root, i % 2 == 1, static_cast<uint32_t>(operations.size())});
      counts[i % kRanks] += 11;
    }
  };
  add(Kind::kReduceScatter, {0, 50, 6000}, 0, 20);
  add(Kind::kAllGather, {10, 0, 300}, 0, 20);
  add(Kind::kBroadcast, {10, 20, 30}, 0, 3);
  add(Kind::kBroadcast, {10, 20, 30}, 1, 3);
  add(Kind::kReduce, {1, 1, 1}, 2, 3);
  std::array<std::vector<Bytes>, kRanks> expected;
  run_session(kRanks, nullptr, [&](uint32_t rank, sluice_session* s) {
    HostRankMemory memory;
    for (const Operation& o : operations) {
      sluice_request request = 0;
      const Issued i = issue(s, memory, rank, o, false, &request);
      ASSERT_EQ(i.status, SLUICE_OK);
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      expected[rank].push_back(result(memory, rank, o, i));
    }
  });
  ++session_;
  run_on_streams(kRanks, nullptr, [&](uint32_t rank, sluice_session* s, RankMemory& memory) {
    std::vector<Issued> issued;
    ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
    for (const Operation& o : operations) {
      issued.push_back(issue(s, memory, rank, o, true));
      ASSERT_EQ(issued.back().status, SLUICE_OK) << sluice_refusal();
    }
    std::byte* const x = memory.upload(bytes_of(ramp(rank, 10)));
    ASSERT_EQ(enqueue(s, reinterpret_cast<float*>(x), 10, memory.stream()), SLUICE_OK);
    sluice_request request = 0;
    ASSERT_EQ(sluice_group_end(s, &request), SLUICE_OK) << sluice_refusal();
    ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
    for (size_t i = 0; i < operations.size(); ++i)
      EXPECT_EQ(result(memory, rank, operations[i], issued[i]), expected[rank][i]) << "operation " << i;
    EXPECT_EQ(floats_of(memory.download(x, 40)), sum_of_ramps(kRanks, 10));
    EXPECT_EQ(stats_of(s).rounds, 6U);
    EXPECT_EQ(stats_of(s).operations, operations.size() + 1);
  });
}

INSTANTIATE_TEST_SUITE_P(In, StreamCollectives, ::testing::ValuesIn(memory_names()), name_of);

}  // namespace
}  // namespace sluice::test
