// The order, the ends and the refusals of collectives on streams.
#include "tests/functional/stream_collective_operation.h"

namespace sluice::test {
namespace {

class StreamOrder : public StreamCollectives {};
// With a buffer that is free before the network has ended, and a queue that does not wait for the network.
class StagedCollectives : public StreamCollectives {};
// NULL is no stream.
class HostCollectives : public StreamCollectives {};

// A rank that receives nothing need not wait for the others.
TEST_P(StagedCollectives, AStreamWithoutAResultContinuesBeforeTheOtherRanks) {
  start_pool(1);
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

// As in sharded training: a gather for the next layer passes a scatter that still waits for its gradients.
TEST_P(StagedCollectives, OperationsOfTwoSessionsOnOneDeviceDoNotWaitForEachOther) {
  start_pool(1);
  std::latch gathered(2);
  run_on_streams(2, nullptr, [&](uint32_t rank, sluice_session* scattering, RankMemory& memory) {
    sluice_options o = options_for(rank, 2);
    o.session_id[1] = 1;
    const Created second = create(o);
    ASSERT_EQ(second.status, SLUICE_OK) << second.error;
    {
      const std::unique_ptr<RankMemory> other = memory_of(rank);
      const sluice_stream_options streams = options_of(rank);
      ASSERT_EQ(sluice_session_open_streams(second.session, &streams, nullptr, 0), SLUICE_OK);
      std::latch gradients(1);
      memory.wait_for(gradients);
      const Operation scatter{Kind::kReduceScatter, SLUICE_I32, SLUICE_SUM, {100'000, 90'000}, 0, false, 1};
      const Operation gather{Kind::kAllGather, SLUICE_I32, SLUICE_SUM, {90'000, 100'000}, 0, false, 2};
      sluice_request request = 0;
      ASSERT_EQ(issue(scattering, memory, rank, scatter, true, &request).status, SLUICE_OK);
      const Issued issued = issue(second.session, *other, rank, gather, true);
      ASSERT_EQ(issued.status, SLUICE_OK);
      Bytes whole = noise(20, gather.part(0));
      std::ranges::copy(noise(21, gather.part(1)), std::back_inserter(whole));
      EXPECT_EQ(result(*other, rank, gather, issued), whole);
      gathered.arrive_and_wait();
      int done = 1;
      EXPECT_EQ(sluice_test(scattering, request, &done), SLUICE_OK);
      EXPECT_EQ(done, 0);
      gradients.count_down();
      EXPECT_EQ(sluice_wait(scattering, request, -1), SLUICE_OK);
      EXPECT_EQ(sluice_session_close(second.session), SLUICE_OK);
    }
  });
}

TEST_P(StreamOrder, AStreamContinuesWhenAnotherRankEndsTheSession) {
  start_pool(1);
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

TEST_P(StreamOrder, InvalidCallsAreRefused) {
  start_pool(1);
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
  start_pool(1);
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
  start_pool(1);
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
INSTANTIATE_TEST_SUITE_P(In, StreamOrder, ::testing::ValuesIn(memory_names()), name_of);
INSTANTIATE_TEST_SUITE_P(In, HostCollectives, ::testing::Values("host", "staged"), name_of);

}  // namespace
}  // namespace sluice::test
