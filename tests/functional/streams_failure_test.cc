// Refused calls of the streams API, and failures, after which streams must continue.
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <numeric>
#include <vector>

#include "tests/functional/streams_test_bed.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

class StreamsFailure : public StreamsTestBed {
 protected:
  // Creates a session of one rank.
  sluice_session* create_single(const sluice_stream_options* options = nullptr) {
    start_reducers(1);
    if (options != nullptr) return create_with_streams(options_for(0, 1), *options).session;
    const Created c = create(options_for(0, 1));
    EXPECT_EQ(c.status, SLUICE_OK) << c.error;
    return c.session;
  }
  // Waits for a child process that exits with code 0.
  static void expect_success(pid_t child) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
};

TEST_F(StreamsFailure, AnInvalidOptionIsNamed) {
  sluice_session* const s = create_single();
  const auto refused = [&](auto&& change, const char* text) {
    sluice_stream_options o;
    sluice_stream_options_init(&o);
    change(o);
    std::array<char, 512> error{};
    EXPECT_EQ(sluice_session_open_streams(s, &o, error.data(), error.size()), SLUICE_INVALID_ARGUMENT)
        << text;
    EXPECT_THAT(error.data(), HasSubstr(text));
    EXPECT_THAT(sluice_refusal(), HasSubstr(text));
  };
  refused([](auto& o) { o.struct_size = 8; }, "sluice_stream_options_init first");
  refused([](auto& o) { o.device_kind = 7; }, "device_kind 7");
  refused([](auto& o) { o.device = -2; }, "device -2");
  refused([](auto& o) { o.piece_bytes = 0; }, "piece_bytes 0");
  refused([](auto& o) { o.piece_bytes = 65537; }, "piece_bytes 65537 is not a multiple");
  refused([](auto& o) { o.staging_bytes = 15 << 20; }, "exceeds a quarter of staging_bytes 15728640");
  refused([](auto& o) { o.staging_bytes = uint64_t{1} << 40; }, "staging_bytes 1099511627776");
  refused([](auto& o) { o.wire_dtype = SLUICE_I8; }, "wire_dtype 0");
  refused([](auto& o) { o.measure_error = 2; }, "measure_error 2");
  refused([](auto& o) { o.always_staged = 2; }, "always_staged 2");
  struct Newer {
    sluice_stream_options options;
    uint64_t unknown;
  } newer{};
  sluice_stream_options_init_sized(&newer.options, sizeof newer);
  newer.unknown = 1;
  EXPECT_EQ(sluice_session_open_streams(s, &newer.options, nullptr, 0), SLUICE_UNSUPPORTED);
  newer.unknown = 0;
  EXPECT_EQ(sluice_session_open_streams(s, &newer.options, nullptr, 0), SLUICE_OK);
  EXPECT_EQ(sluice_session_open_streams(s, nullptr, nullptr, 0), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_refusal(), HasSubstr("already has streams"));
  EXPECT_EQ(sluice_session_close(s), SLUICE_OK);
}

TEST_F(StreamsFailure, ASessionHasOperationsEitherOnStreamsOrWithout) {
  sluice_session* s = create_single();
  std::vector<float> x{1, 2, 3};
  EXPECT_EQ(enqueue(s, x, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_refusal(), HasSubstr("sluice_session_open_streams first"));
  EXPECT_EQ(sluice_group_begin(s), SLUICE_INVALID_ARGUMENT);
  ASSERT_EQ(sluice_allreduce(s, x.data(), x.data(), 3, SLUICE_F32, SLUICE_SUM), SLUICE_OK);
  EXPECT_EQ(sluice_session_open_streams(s, nullptr, nullptr, 0), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_refusal(), HasSubstr("has already had operations"));
  EXPECT_EQ(sluice_session_close(s), SLUICE_OK);
  ++session_;
  s = create_single();
  ASSERT_EQ(sluice_session_open_streams(s, nullptr, nullptr, 0), SLUICE_OK);
  EXPECT_EQ(sluice_allreduce(s, x.data(), x.data(), 3, SLUICE_F32, SLUICE_SUM), SLUICE_UNSUPPORTED);
  EXPECT_EQ(sluice_session_close(s), SLUICE_OK);
}

TEST_F(StreamsFailure, InvalidOperationsAreRefused) {
  const sluice_stream_options options = small_options();
  sluice_session* const s = create_single(&options);
  ScopedHostStream stream;
  float x[8]{};
  const auto refused = [&](const void* send, void* recv, size_t count, int dtype, int op, sluice_stream on,
                           const char* text) {
    EXPECT_EQ(sluice_allreduce_on_stream(s, send, recv, count, static_cast<sluice_dtype>(dtype),
                                         static_cast<sluice_op>(op), on, nullptr),
              SLUICE_INVALID_ARGUMENT)
        << text;
    EXPECT_THAT(sluice_refusal(), HasSubstr(text));
  };
  refused(nullptr, x, 1, SLUICE_F32, SLUICE_SUM, stream.get(), "send is NULL");
  refused(x, nullptr, 1, SLUICE_F32, SLUICE_SUM, stream.get(), "recv is NULL");
  refused(x, x + 1, 2, SLUICE_F32, SLUICE_SUM, stream.get(), "overlap");
  refused(x, x, 1, 14, SLUICE_SUM, stream.get(), "unknown dtype");
  refused(x, x, 1, SLUICE_F32, 5, stream.get(), "unknown op");
  refused(x, x, SIZE_MAX / 2, SLUICE_F32, SLUICE_SUM, stream.get(), "exceeds 63 bits");
  refused(x, x, 1, SLUICE_F32, SLUICE_SUM, x, "not a live stream of sluice_host_stream_create");
  refused(x, x, 1, SLUICE_F32, SLUICE_SUM, nullptr, "stream and request are both NULL");
  sluice_stream destroyed = nullptr;
  ASSERT_EQ(sluice_host_stream_create(&destroyed), SLUICE_OK);
  ASSERT_EQ(sluice_host_stream_destroy(destroyed), SLUICE_OK);
  refused(x, x, 1, SLUICE_F32, SLUICE_SUM, destroyed, "not a live stream of sluice_host_stream_create");
  EXPECT_EQ(sluice_host_stream_destroy(destroyed), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_host_stream_synchronize(x), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_host_stream_submit(stream.get(), nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_allreduce_on_stream(nullptr, x, x, 1, SLUICE_F32, SLUICE_SUM, nullptr, nullptr),
            SLUICE_INVALID_ARGUMENT);
  sluice_stream_stats stats{};
  EXPECT_EQ(sluice_session_stream_stats(s, &stats), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_stream_stats(s, nullptr), SLUICE_INVALID_ARGUMENT);
  // The session is unchanged. An operation without elements is valid.
  std::vector<float> y{1, 2, 3}, none;
  sluice_request request = 0;
  ASSERT_EQ(enqueue(s, none, stream.get(), &request), SLUICE_OK);
  ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
  ASSERT_EQ(enqueue(s, y, nullptr, &request), SLUICE_OK);
  ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
  EXPECT_THAT(y, ::testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(sluice_session_close(s), SLUICE_OK);
}

TEST_F(StreamsFailure, AGroupRunsAsAWholeOrNotAtAll) {
  const sluice_stream_options options = small_options();
  sluice_session* const s = create_single(&options);
  ScopedHostStream stream;
  std::vector<float> x{1, 2, 3};
  sluice_request request = 0;
  EXPECT_EQ(sluice_group_end(s, &request), SLUICE_INVALID_ARGUMENT);
  ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
  EXPECT_EQ(sluice_group_begin(s), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_refusal(), HasSubstr("do not nest"));
  ASSERT_EQ(enqueue(s, x, stream.get()), SLUICE_OK);
  EXPECT_EQ(enqueue(s, x, stream.get(), &request), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_group_end(s, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_refusal(),
              HasSubstr("an operation of the group was refused: request must be NULL within a group"));
  EXPECT_EQ(stats_of(s).rounds, 0u);
  ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
  ASSERT_EQ(enqueue(s, x, nullptr), SLUICE_OK);
  EXPECT_EQ(sluice_group_end(s, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_refusal(), HasSubstr("stream and request are both NULL"));
  ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
  ASSERT_EQ(sluice_group_end(s, &request), SLUICE_OK);
  ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK) << "an empty group";
  ASSERT_EQ(sluice_group_begin(s), SLUICE_OK);
  ASSERT_EQ(enqueue(s, x, stream.get()), SLUICE_OK);
  ASSERT_EQ(sluice_group_end(s, nullptr), SLUICE_OK);
  stream.synchronize();
  EXPECT_EQ(stats_of(s).rounds, 1u);
  EXPECT_EQ(sluice_session_close(s), SLUICE_OK);
}

TEST_F(StreamsFailure, RefusesOperationsAboveTheInflightLimit) {
  const sluice_stream_options options = small_options();
  sluice_session* const s = create_single(&options);
  ScopedHostStream stream;
  std::latch start(1);
  stream.submit([&] { start.wait(); });
  constexpr size_t kMaxInflight = 8192;
  std::vector<float> x(kMaxInflight + 1, 1.f);
  for (size_t i = 0; i < kMaxInflight; ++i) ASSERT_EQ(enqueue(s, &x[i], 1, stream.get()), SLUICE_OK) << i;
  EXPECT_EQ(enqueue(s, &x[kMaxInflight], 1, stream.get()), SLUICE_AGAIN);
  EXPECT_THAT(sluice_refusal(), HasSubstr("8192 segments in flight"));
  start.count_down();
  stream.synchronize();
  EXPECT_EQ(enqueue(s, &x[kMaxInflight], 1, stream.get()), SLUICE_OK);
  stream.synchronize();
  EXPECT_EQ(stats_of(s).operations, kMaxInflight + 1);
  EXPECT_EQ(sluice_session_close(s), SLUICE_OK);
}

// The session is closed while its operation waits for another rank: the operation is cancelled, its stream
// continues.
TEST_F(StreamsFailure, AStreamContinuesWhenItsSessionIsClosed) {
  start_reducers(1);
  for (const uint32_t staged : {0u, 1u}) {
    std::latch joined(2), closed(1);
    each_rank(2, [&](uint32_t rank) {
      sluice_options o = options_for(rank, 2);
      o.linger_ms = 200;
      const Created c = create(o);
      ASSERT_EQ(c.status, SLUICE_OK) << c.error;
      joined.arrive_and_wait();
      if (rank == 1) {
        closed.wait();
        static_cast<void>(sluice_session_close(c.session));
        return;
      }
      const sluice_stream_options options = small_options(staged);
      ASSERT_EQ(sluice_session_open_streams(c.session, &options, nullptr, 0), SLUICE_OK);
      ScopedHostStream stream;
      std::vector<float> x(100'000, 1.f);
      bool continued = false;
      ASSERT_EQ(enqueue(c.session, x, stream.get()), SLUICE_OK);
      stream.submit([&] { continued = true; });
      EXPECT_EQ(sluice_session_close(c.session), SLUICE_TIMEOUT);
      stream.synchronize();
      EXPECT_TRUE(continued);
      closed.count_down();
    });
    ++session_;
  }
}

TEST_F(StreamsFailure, AStreamContinuesAfterTheLossOfAReducer) {
  start_reducers(1);
  std::latch enqueued(2);
  each_rank(2, [&](uint32_t rank) {
    sluice_options o = options_for(rank, 2);
    o.keep_results = 0;
    const Created c = create_with_streams(o, small_options(rank));  // ranks may differ in `always_staged`
    ASSERT_EQ(c.status, SLUICE_OK);
    ScopedHostStream stream;
    std::vector<float> x(100'000, 1.f);
    std::latch stopped(1);
    stream.submit([&] { stopped.wait(); });
    sluice_request request = 0;
    ASSERT_EQ(enqueue(c.session, x, stream.get(), &request), SLUICE_OK);
    enqueued.arrive_and_wait();
    if (rank == 0) reducers_.clear();
    stopped.count_down();
    EXPECT_EQ(sluice_wait(c.session, request, -1), SLUICE_LOST);
    stream.synchronize();
    EXPECT_EQ(enqueue(c.session, x, stream.get()), SLUICE_LOST);
    EXPECT_EQ(sluice_refusal(), reason_of(c.session));
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_LOST);
    stream.synchronize();
  });
}

TEST_F(StreamsFailure, AllRanksFailWhenTheirWireTypesDiffer) {
  start_reducers(1);
  each_rank(2, [&](uint32_t rank) {
    sluice_stream_options options = small_options();
    options.wire_dtype = rank == 0 ? SLUICE_BF16 : SLUICE_WIRE_AS_GIVEN;
    const Created c = create_with_streams(options_for(rank, 2), options);
    ASSERT_EQ(c.status, SLUICE_OK);
    ScopedHostStream stream;
    std::vector<float> x(1000, 1.f);
    sluice_request request = 0;
    ASSERT_EQ(enqueue(c.session, x, stream.get(), &request), SLUICE_OK);
    EXPECT_EQ(sluice_wait(c.session, request, -1), SLUICE_MISMATCH);
    EXPECT_THAT(reason_of(c.session), HasSubstr("bf16"));
    stream.synchronize();
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_MISMATCH);
  });
}

TEST_F(StreamsFailure, AChildOfForkCannotUseTheSession) {
  const sluice_stream_options options = small_options();
  sluice_session* const s = create_single(&options);
  const pid_t child = fork();
  if (child == 0) {
    float x = 1;
    sluice_request request = 0;
    const bool all = sluice_allreduce_on_stream(s, &x, &x, 1, SLUICE_F32, SLUICE_SUM, nullptr, &request) ==
                         SLUICE_CLOSED &&
                     sluice_group_begin(s) == SLUICE_CLOSED &&
                     sluice_group_end(s, nullptr) == SLUICE_CLOSED && sluice_session_close(s) == SLUICE_OK;
    _exit(all ? 0 : 1);
  }
  expect_success(child);
  EXPECT_EQ(sluice_session_close(s), SLUICE_OK);
}

// The stream's thread does not exist in the child, so waiting for it would never end.
TEST_F(StreamsFailure, AChildOfForkCannotUseTheParentsHostStreams) {
  ScopedHostStream stream;
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const auto nothing = [](void*) {};
    bool all = sluice_host_stream_synchronize(stream.get()) == SLUICE_INVALID_ARGUMENT &&
               sluice_host_stream_submit(stream.get(), nothing, nullptr) == SLUICE_INVALID_ARGUMENT &&
               sluice_host_stream_destroy(stream.get()) == SLUICE_INVALID_ARGUMENT;
#ifndef __SANITIZE_THREAD__  // it aborts a child that starts a thread
    sluice_stream own = nullptr;
    all = all && sluice_host_stream_create(&own) == SLUICE_OK &&
          sluice_host_stream_synchronize(own) == SLUICE_OK && sluice_host_stream_destroy(own) == SLUICE_OK;
#endif
    _exit(all ? 0 : 1);
  }
  expect_success(child);
}

// An operation without elements ends at once, also after an operation that waits for another rank.
TEST_F(StreamsFailure, AnEmptyOperationEndsAtOnce) {
  start_reducers(1);
  std::latch tested(1);
  run_streams(2, small_options(), [&](uint32_t rank, sluice_session* s) {
    ScopedHostStream stream;
    std::vector<float> x(1000, 1.f), none;
    if (rank == 1) tested.wait();
    ASSERT_EQ(enqueue(s, x, stream.get()), SLUICE_OK);
    sluice_request request = 0;
    ASSERT_EQ(enqueue(s, none, stream.get(), &request), SLUICE_OK);
    EXPECT_EQ(sluice_wait(s, request, 0), SLUICE_OK);
    if (rank == 0) tested.count_down();
    stream.synchronize();
  });
}

}  // namespace
}  // namespace sluice::test
