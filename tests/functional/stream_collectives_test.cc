// Reduce-scatter, all-gather, reduce and broadcast in the order of streams: bits, bytes and order.
#include "tests/functional/stream_collectives_test_bed.h"

namespace sluice::test {
namespace {

// With a buffer that is free before the network has ended, and a queue that does not wait for the network.
class StagedCollectives : public StreamCollectives {};
// NULL is no stream.
class HostCollectives : public StreamCollectives {};

std::string name_of(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

enum class Kind : uint8_t { kReduceScatter, kAllGather, kReduce, kBroadcast };
constexpr Kind kKinds[] = {Kind::kReduceScatter, Kind::kAllGather, Kind::kReduce, Kind::kBroadcast};

// One operation. Without `in_place` it has separate buffers.
struct Operation {
  Kind kind{};
  sluice_dtype dtype{};
  sluice_op op{};
  std::vector<size_t> counts;  // elements of each rank's part
  uint32_t root = 0;
  bool in_place = false;
  uint32_t seed = 0;

  [[nodiscard]] size_t size() const { return wire::size_of(static_cast<wire::DType>(dtype)); }
  [[nodiscard]] size_t count() const { return std::accumulate(counts.begin(), counts.end(), size_t{0}); }
  [[nodiscard]] size_t before(uint32_t rank) const {
    return std::accumulate(counts.begin(), counts.begin() + rank, size_t{0}) * size();
  }
  [[nodiscard]] size_t whole() const { return count() * size(); }
  [[nodiscard]] size_t part(uint32_t rank) const { return counts[rank] * size(); }
};

// An operation that a rank has issued.
struct Issued {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
  sluice_status status = SLUICE_INTERNAL;
};

// Issues the operation with random contributions: on the memory's stream, or with a request as one of
// sluice.h.
Issued issue(sluice_session* s, RankMemory& memory, uint32_t rank, const Operation& o, bool on_stream,
             sluice_request* request = nullptr) {
  const bool is_gather = o.kind == Kind::kAllGather;
  const size_t contributed = is_gather ? o.part(rank) : o.whole();
  const Bytes input = noise(o.seed * 10 + rank, contributed);
  Issued i;
  if (is_gather && o.in_place) {
    Bytes whole(o.whole());
    std::ranges::copy(input, whole.begin() + static_cast<ptrdiff_t>(o.before(rank)));
    i.recv = memory.upload(whole);
    i.send = i.recv + o.before(rank);
  } else {
    i.send = memory.upload(input);
    const bool parts = o.kind == Kind::kReduceScatter;
    if (o.in_place || o.kind == Kind::kBroadcast) {
      i.recv = i.send + (parts ? o.before(rank) : 0);
    } else {
      i.recv = memory.upload(Bytes(parts ? o.part(rank) : o.whole()));
    }
  }
  const size_t* const counts = o.counts.data();
  sluice_stream const stream = memory.stream();
  switch (o.kind) {
    case Kind::kReduceScatter:
      i.status = on_stream
                     ? sluice_reduce_scatter_on_stream(s, i.send, i.recv, 0, counts, o.dtype, o.op, nullptr,
                                                       stream, request)
                     : sluice_reduce_scatter_async(s, i.send, i.recv, 0, counts, o.dtype, o.op, request);
      break;
    case Kind::kAllGather:
      i.status = on_stream
                     ? sluice_all_gather_on_stream(s, i.send, i.recv, 0, counts, o.dtype, stream, request)
                     : sluice_all_gather_async(s, i.send, i.recv, 0, counts, o.dtype, request);
      break;
    case Kind::kReduce: {
      std::byte* const recv = rank == o.root ? i.recv : nullptr;
      i.status = on_stream ? sluice_reduce_on_stream(s, i.send, recv, o.count(), o.dtype, o.op, o.root,
                                                     nullptr, stream, request)
                           : sluice_reduce_async(s, i.send, recv, o.count(), o.dtype, o.op, o.root, request);
      break;
    }
    case Kind::kBroadcast:
      i.status = on_stream
                     ? sluice_broadcast_on_stream(s, i.send, o.count(), o.dtype, o.root, stream, request)
                     : sluice_broadcast_async(s, i.send, o.count(), o.dtype, o.root, request);
      break;
  }
  return i;
}

// What the rank has received, or nothing.
Bytes result(RankMemory& memory, uint32_t rank, const Operation& o, const Issued& i) {
  const bool receives = o.kind != Kind::kReduce || rank == o.root;
  return memory.download(i.recv, receives ? (o.kind == Kind::kReduceScatter ? o.part(rank) : o.whole()) : 0);
}

// Bytes that a rank must copy from a GPU, and to it.
uint64_t bytes_out(const Operation& o, uint32_t rank) {
  if (o.kind == Kind::kAllGather) return o.part(rank);
  return o.kind == Kind::kBroadcast && rank != o.root ? 0 : o.whole();
}
uint64_t bytes_in(const Operation& o, uint32_t rank) {
  switch (o.kind) {
    case Kind::kReduceScatter: return o.part(rank);
    case Kind::kAllGather: return o.whole() - (o.in_place ? o.part(rank) : 0);
    case Kind::kReduce: return rank == o.root ? o.whole() : 0;
    case Kind::kBroadcast: return rank == o.root ? 0 : o.whole();
  }
  return 0;
}

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
  start_reducers(2);
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
  start_reducers(2);
  constexpr uint32_t kRanks = 3;
  for (const sluice_dtype wire : {SLUICE_BF16, SLUICE_F16, SLUICE_MXFP8, SLUICE_INT8_BLOCK}) {
    const bool is_block = wire == SLUICE_MXFP8 || wire == SLUICE_INT8_BLOCK;
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
          return is_block ? (elements + 255) / 256 * 264 : elements * 2;
        };
        size_t sent = 0;
        for (const size_t c : counts) sent += wire_bytes(c);
        EXPECT_EQ(stats_of(s).bytes_staged_out, sent);
        EXPECT_EQ(stats_of(s).bytes_staged_in, wire_bytes(counts[rank]));
        EXPECT_EQ(stats_of(s).elements_cast, count);
        const size_t exponents = wire == SLUICE_F16 ? (count + 16383) / 16384 : 0;
        EXPECT_EQ(network_stats(s).payload_bytes_out - before.payload_bytes_out, sent + exponents);
        EXPECT_EQ(network_stats(s).payload_bytes_in - before.payload_bytes_in,
                  wire_bytes(counts[rank]) + exponents);
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
  start_reducers(2);
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
  start_reducers(2);
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

// A rank that receives nothing need not wait for the others.
TEST_P(StagedCollectives, AStreamWithoutAResultContinuesBeforeTheOtherRanks) {
  start_reducers(1);
  std::latch passed(1);
  run_on_streams(2, nullptr, [&](uint32_t rank, sluice_session* s, RankMemory& memory) {
    const std::vector<Operation> operations{
        {Kind::kBroadcast, SLUICE_F32, SLUICE_SUM, {3000, 0}, 0, false, 1},
        {Kind::kReduce, SLUICE_F32, SLUICE_MAX, {0, 3000}, 1, false, 2},
        {Kind::kReduceScatter, SLUICE_F32, SLUICE_MAX, {0, 3000}, 0, false, 3}};
    if (rank == 1) passed.wait();
    for (const Operation& o : operations) ASSERT_EQ(issue(s, memory, rank, o, true).status, SLUICE_OK);
    memory.synchronize();
    if (rank == 0) {
      EXPECT_EQ(stats_of(s).operations, 0U);
      passed.count_down();
    }
  });
}

TEST_P(StreamCollectives, AStreamContinuesWhenAnotherRankEndsTheSession) {
  start_reducers(1);
  for (const Kind kind : kKinds) {
    std::latch issued(1);
    each_rank(2, [&](uint32_t rank) {
      const Created c = create(options_for(rank, 2));
      ASSERT_EQ(c.status, SLUICE_OK) << c.error;
      if (rank == 1) {
        issued.wait();
        EXPECT_EQ(sluice_session_abort(c.session, "rank 1 stops"), SLUICE_OK);
        EXPECT_EQ(sluice_session_close(c.session), SLUICE_CLOSED);
        return;
      }
      {
        const std::unique_ptr<RankMemory> memory = memory_of(rank);
        const sluice_stream_options o = options_of(rank);
        ASSERT_EQ(sluice_session_open_streams(c.session, &o, nullptr, 0), SLUICE_OK) << sluice_refusal();
        sluice_request request = 0;
        const Operation operation{kind, SLUICE_F32, SLUICE_SUM, {100'000, 90'000}, 0, false, 1};
        ASSERT_EQ(issue(c.session, *memory, rank, operation, true, &request).status, SLUICE_OK);
        issued.count_down();
        EXPECT_EQ(sluice_wait(c.session, request, -1), SLUICE_LOST);
        EXPECT_THAT(reason_of(c.session), ::testing::HasSubstr("rank 1 stops"));
        memory->synchronize();
        EXPECT_EQ(issue(c.session, *memory, rank, operation, true).status, SLUICE_LOST);
        EXPECT_EQ(sluice_session_close(c.session), SLUICE_LOST);
      }
    });
    ++session_;
  }
}

TEST_P(StreamCollectives, InvalidCallsAreRefused) {
  start_reducers(1);
  run_on_streams(1, nullptr, [&](uint32_t, sluice_session* s, RankMemory& memory) {
    auto* const x = reinterpret_cast<float*>(memory.upload(Bytes(80)));
    sluice_stream const on = memory.stream();
    const auto refused = [&](sluice_status status, const char* text) {
      EXPECT_EQ(status, SLUICE_INVALID_ARGUMENT) << text;
      EXPECT_THAT(sluice_refusal(), ::testing::HasSubstr(text));
    };
    refused(sluice_broadcast_on_stream(s, x, 10, SLUICE_F32, 1, on, nullptr), "root is no rank");
    refused(sluice_reduce_on_stream(s, x, x, 10, SLUICE_F32, SLUICE_SUM, 7, nullptr, on, nullptr),
            "root is no rank");
    refused(sluice_reduce_on_stream(s, x, nullptr, 10, SLUICE_F32, SLUICE_SUM, 0, nullptr, on, nullptr),
            "recv is NULL");
    refused(sluice_all_gather_on_stream(s, x, x + 1, 10, nullptr, SLUICE_F32, on, nullptr), "overlap");
    refused(sluice_reduce_scatter_on_stream(s, nullptr, x, 10, nullptr, SLUICE_F32, SLUICE_SUM, nullptr, on,
                                            nullptr),
            "send is NULL");
    refused(sluice_reduce_scatter_on_stream(s, x, x, SIZE_MAX / 2, nullptr, SLUICE_F32, SLUICE_SUM, nullptr,
                                            on, nullptr),
            "exceeds 63 bits");
    if (is_gpu()) {
      std::vector<float> host(20);
      refused(sluice_all_gather_on_stream(s, x, host.data(), 20, nullptr, SLUICE_F32, on, nullptr),
              "the other host memory");
      refused(sluice_broadcast_on_stream(s, x, 21, SLUICE_F32, 0, on, nullptr), "exceed their allocation");
    }
    ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
    refused(sluice_broadcast_on_stream(s, x, 1, SLUICE_F32, 1, on, nullptr), "root is no rank");
    refused(sluice_group_end(s, nullptr), "an operation of the group was refused: root is no rank");
    EXPECT_EQ(sluice_broadcast_on_stream(nullptr, x, 1, SLUICE_F32, 0, on, nullptr), SLUICE_INVALID_ARGUMENT);
    // The session is unchanged.
    ASSERT_EQ(sluice_broadcast_on_stream(s, x, 20, SLUICE_F32, 0, on, nullptr), SLUICE_OK);
    memory.synchronize();
  });
}

// Ranks without a stream get the result with the request.
TEST_P(HostCollectives, OperationsWithARequestNeedNoStream) {
  start_reducers(1);
  run_on_streams(2, nullptr, [&](uint32_t rank, sluice_session* s, RankMemory&) {
    std::vector<float> x = ramp(rank, 60'000), part(30'000), all(60'000);
    sluice_request first = 0, second = 0;
    EXPECT_EQ(sluice_broadcast_on_stream(s, x.data(), 1, SLUICE_F32, 0, nullptr, nullptr),
              SLUICE_INVALID_ARGUMENT);
    ASSERT_EQ(sluice_reduce_scatter_on_stream(s, x.data(), part.data(), part.size(), nullptr, SLUICE_F32,
                                              SLUICE_SUM, nullptr, nullptr, &first),
              SLUICE_OK);
    ASSERT_EQ(sluice_wait(s, first, -1), SLUICE_OK);
    ASSERT_EQ(sluice_all_gather_on_stream(s, part.data(), all.data(), part.size(), nullptr, SLUICE_F32,
                                          nullptr, &second),
              SLUICE_OK);
    ASSERT_EQ(sluice_wait(s, second, -1), SLUICE_OK);
    EXPECT_EQ(all, sum_of_ramps(2, 60'000));
  });
}

#ifdef SLUICE_CUDA_STAND_IN
class GpuCollectives : public StreamCollectives {};

// The nth call of a function of the driver fails on rank 0. Both ranks get the error, and no stream stays
// blocked.
TEST_P(GpuCollectives, AFailureOfTheGpuEndsTheSessionOnAllRanks) {
  start_reducers(1);
  for (const Kind kind : kKinds) {
    for (const auto& [call, nth] :
         {std::pair("cuEventRecord", 3), std::pair("cuStreamWaitEvent", 3),
          std::pair("cuStreamWaitValue32", 2), std::pair("cuEventSynchronize", 1)}) {
      std::latch joined(2);
      each_rank(2, [&, name = call, at_call = nth](uint32_t rank) {
        const Created c = create(options_for(rank, 2));
        ASSERT_EQ(c.status, SLUICE_OK) << c.error;
        joined.arrive_and_wait();
        if (rank == 1) {
          EXPECT_TRUE(eventually([&] { return sluice_session_error(c.session, nullptr, 0) != SLUICE_OK; }));
        } else {
          const std::unique_ptr<RankMemory> memory = memory_of(rank);
          const sluice_stream_options o = options_of(rank);
          ASSERT_EQ(sluice_session_open_streams(c.session, &o, nullptr, 0), SLUICE_OK) << sluice_refusal();
          cuda_stand_in::fail_call(name, at_call, CUDA_ERROR_ILLEGAL_ADDRESS);
          sluice_request request = 0;
          const Operation operation{kind, SLUICE_F32, SLUICE_SUM, {100'000, 90'000}, 0, false, 1};
          const Issued issued = issue(c.session, *memory, rank, operation, true, &request);
          EXPECT_EQ(issued.status != SLUICE_OK ? issued.status : sluice_wait(c.session, request, -1),
                    SLUICE_SYSTEM)
              << name;
          (void)cuStreamSynchronize(static_cast<CUstream>(memory->stream()));
        }
        EXPECT_THAT(reason_of(c.session), ::testing::HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")) << name;
        EXPECT_NE(sluice_session_close(c.session), SLUICE_OK);
      });
      EXPECT_EQ(cuda_stand_in::live(), cuda_stand_in::Live{}) << call;
      cuda_stand_in::reset();
      ++session_;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(In, GpuCollectives, ::testing::Values("gpu"), name_of);
INSTANTIATE_TEST_SUITE_P(In, StagedCollectives, ::testing::Values("staged", "gpu"), name_of);
#else
INSTANTIATE_TEST_SUITE_P(In, StagedCollectives, ::testing::Values("staged"), name_of);
#endif
INSTANTIATE_TEST_SUITE_P(In, HostCollectives, ::testing::Values("host", "staged"), name_of);
INSTANTIATE_TEST_SUITE_P(In, StreamCollectives, ::testing::ValuesIn(memory_names()), name_of);

}  // namespace
}  // namespace sluice::test
