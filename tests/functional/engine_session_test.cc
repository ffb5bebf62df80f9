// The client library with real reducers over loopback.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "tests/functional/engine_test_bed.h"

namespace sluice::test {
namespace {

using EngineSession = EngineTestBed;

TEST_F(EngineSession, SumsOverRanksAndReducers) {
  start_reducers(2);
  run_session(3, nullptr, [](uint32_t rank, sluice_session* s) {
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{65536}, size_t{1234567}}) {
      const auto in = ramp(rank, count);
      std::vector<float> out(count, -1.f);
      ASSERT_EQ(sluice_allreduce(s, in.data(), out.data(), count, SLUICE_F32, SLUICE_SUM), SLUICE_OK)
          << reason_of(s);
      ASSERT_EQ(out, sum_of_ramps(3, count)) << count;
    }
  });
}

TEST_F(EngineSession, ReducesInPlaceWithoutAnOwnThread) {
  start_reducers(2);
  run_session(
      2, [](sluice_options& o) { o.progress_threads = 0; },
      [](uint32_t rank, sluice_session* s) {
        auto data = ramp(rank, 300'001);
        ASSERT_EQ(sum(s, data), SLUICE_OK);
        ASSERT_EQ(data, sum_of_ramps(2, data.size()));
      });
}

// Without an own thread, the caller may write a checkpoint between issuing an operation and waiting for it.
// A partly sent frame must make progress meanwhile. Otherwise the reducer's frame deadline closes the
// connection.
TEST_F(EngineSession, MakesProgressWhileTheCallerIsBusyBeyondTheFrameDeadline) {
  auto options = reducer_options();
  options.frame_timeout = 300 * kMillisecond;
  options.socket_buffer = 64 * kKiB;  // so that a chunk does not fit into the socket buffers
  start_reducers(1, options);
  const auto uptime = [&] {
    return nlohmann::json::parse(reducers_[0]->status_json())["uptime_seconds"].get<double>();
  };
  run_session(
      2,
      [](sluice_options& o) {
        o.progress_threads = 0;
        o.slot_bytes = 1 << 20;
        o.window_bytes = 64 << 20;
      },
      [&](uint32_t rank, sluice_session* s) {
        auto data = ramp(rank, 8'000'000);
        sluice_request request = 0;
        ASSERT_EQ(sum_async(s, data, request), SLUICE_OK);
        int done = 0;
        // Rank 1 fills its socket buffers. Rank 0 has sent nothing yet, so there is no result.
        for (int turns = 0; rank == 1 && turns < 100; ++turns)
          ASSERT_EQ(sluice_test(s, request, &done), SLUICE_OK);
        const double left_at = uptime();
        while (uptime() < left_at + 1.2)
          std::this_thread::yield();  // both callers busy for four frame deadlines
        ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK) << reason_of(s);
        ASSERT_EQ(data, sum_of_ramps(2, data.size()));
      });
}

TEST_F(EngineSession, HonoursWeightsAndLanes) {
  start_reducers(3);
  addresses_ += "*3";
  run_session(
      2, [](sluice_options& o) { o.lanes = 1; },
      [](uint32_t rank, sluice_session* s) {
        const size_t count = 1'000'003;
        auto data = ramp(rank, count);
        ASSERT_EQ(sum(s, data), SLUICE_OK);
        ASSERT_EQ(data, sum_of_ramps(2, count));
        sluice_stats stats{};
        stats.struct_size = sizeof stats;
        ASSERT_EQ(sluice_session_stats(s, &stats), SLUICE_OK);
        EXPECT_EQ(stats.lanes, is_colocated() ? 5u : 3u);    // one for each reducer
        EXPECT_EQ(stats.operations, kOnStreams ? 16u : 1u);  // segments of 256 KiB
        EXPECT_EQ(stats.payload_bytes_out, count * sizeof(float));
        EXPECT_EQ(stats.payload_bytes_in, count * sizeof(float));
        EXPECT_GT(stats.wire_bytes_out, stats.payload_bytes_out);
      });
}

// Tells -0 from 0, and finds equal NaNs equal.
bool has_equal_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

// In all kinds and types zero blocks do not travel, and the bits are those of plain payloads.
TEST_F(EngineSession, ZeroBlocksDoNotTravel) {
  start_reducers(2);
  constexpr size_t kCount = 200'000;
  constexpr uint32_t kRanks = 3;
  // One block of 64 in ten; -0 elsewhere is not zero.
  const auto sparse = [](uint32_t rank) {
    std::vector<float> v(kCount, 0.f);
    for (size_t i = 0; i < kCount; ++i)
      if (i / 64 % 10 == 3) v[i] = static_cast<float>(i % 100 + rank);
    v[64] = -0.f;
    return v;
  };
  std::vector<float> expected(kCount, 0.f);
  for (uint32_t r = 0; r < kRanks; ++r) {
    const auto v = sparse(r);
    for (size_t i = 0; i < kCount; ++i) expected[i] = r == 0 ? v[i] : expected[i] + v[i];
  }
  for (const char* const mode : {"skip", "send"}) {
    ASSERT_EQ(::setenv("SLUICE_ZERO_BLOCKS", mode, 1), 0);
    run_session(kRanks, nullptr, [&](uint32_t rank, sluice_session* s) {
      const auto in = sparse(rank);
      std::vector<float> out(kCount, -1.f);
      ASSERT_EQ(sluice_allreduce(s, in.data(), out.data(), kCount, SLUICE_F32, SLUICE_SUM), SLUICE_OK);
      EXPECT_TRUE(has_equal_bits(out, expected));
      sluice_stats stats{};
      stats.struct_size = sizeof stats;
      ASSERT_EQ(sluice_session_stats(s, &stats), SLUICE_OK);
      const bool skips = std::string_view(mode) == "skip";
      EXPECT_EQ(stats.payload_bytes_out < kCount * sizeof(float) / 2, skips) << stats.payload_bytes_out;
      EXPECT_EQ(stats.payload_bytes_in < kCount * sizeof(float) / 2, skips) << stats.payload_bytes_in;

      const std::array<size_t, kRanks> counts{kCount - 2 * (kCount / kRanks), kCount / kRanks,
                                              kCount / kRanks};
      std::vector<float> part(counts[rank]), gathered(kCount, -1.f), sum(kCount, -1.f);
      const size_t before = rank == 0 ? 0 : counts[0] + (rank - 1) * counts[1];
      sluice_request request = 0;
      ASSERT_EQ(sluice_reduce_scatter_async(s, in.data(), part.data(), 0, counts.data(), SLUICE_F32,
                                            SLUICE_SUM, &request),
                SLUICE_OK);
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      EXPECT_TRUE(has_equal_bits(part, std::span(expected).subspan(before, counts[rank])));
      ASSERT_EQ(
          sluice_all_gather_async(s, part.data(), gathered.data(), 0, counts.data(), SLUICE_F32, &request),
          SLUICE_OK);
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      EXPECT_TRUE(has_equal_bits(gathered, expected));
      ASSERT_EQ(sluice_reduce_async(s, in.data(), sum.data(), kCount, SLUICE_F32, SLUICE_SUM, 1, &request),
                SLUICE_OK);
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      ASSERT_EQ(sluice_broadcast_async(s, sum.data(), kCount, SLUICE_F32, 1, &request), SLUICE_OK);
      ASSERT_EQ(sluice_wait(s, request, -1), SLUICE_OK);
      EXPECT_TRUE(has_equal_bits(sum, expected));
    });
    ++session_;
  }
  ::unsetenv("SLUICE_ZERO_BLOCKS");
}

// Programs compiled against another version's header have a struct of another size.
TEST_F(EngineSession, FillsStatsUpToTheSizeOfTheCallersStruct) {
  start_reducers(1);
  run_session(1, nullptr, [](uint32_t, sluice_session* s) {
    std::vector<float> x(1, 1.f);
    ASSERT_EQ(sum(s, x), SLUICE_OK);
    struct {
      sluice_stats stats;
      std::array<unsigned char, 32> later;
    } given;
    const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
    const auto get_stats = [&](size_t size) {
      std::memset(static_cast<void*>(&given), 0x5a, sizeof given);
      given.stats.struct_size = size;
      return sluice_session_stats(s, &given.stats);
    };
    const size_t shorter = offsetof(sluice_stats, payload_bytes_in);
    ASSERT_EQ(get_stats(shorter), SLUICE_OK);
    EXPECT_EQ(given.stats.struct_size, shorter);
    EXPECT_EQ(given.stats.operations, 1u);
    EXPECT_EQ(given.stats.payload_bytes_out, 4u);
    for (size_t i = shorter; i < sizeof given; ++i) ASSERT_EQ(bytes[i], 0x5a) << i;

    ASSERT_EQ(get_stats(sizeof given), SLUICE_OK);
    EXPECT_EQ(given.stats.struct_size, sizeof given);
    EXPECT_EQ(given.stats.payload_bytes_in, 4u);
    EXPECT_EQ(given.later, (std::array<unsigned char, 32>{}));

    EXPECT_EQ(get_stats(0), SLUICE_INVALID_ARGUMENT);
  });
}

TEST_F(EngineSession, RunsManySessionsInOneProcess) {
  start_reducers(2);
  constexpr uint32_t kSessions = 6;
  each_rank(2 * kSessions, [&](uint32_t thread) {
    const uint32_t rank = thread % 2;
    sluice_options o = options_for(rank, 2);
    o.session_id[1] = static_cast<uint8_t>(thread / 2);
    o.progress_threads = thread / 2 % 2;
    const Created c = create(o);
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    for (size_t count = 1; count < 100'000; count *= 7) {
      auto data = ramp(rank, count);
      ASSERT_EQ(sum(c.session, data), SLUICE_OK);
      ASSERT_EQ(data, sum_of_ramps(2, count));
    }
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_OK);
  });
}

// A data loader is forked from a training process in the middle of a step.
TEST_F(EngineSession, BelongsToTheProcessThatCreatedIt) {
  start_reducers(1);
  const auto sessions = [&] {
    std::vector<Created> made(2);
    each_rank(2, [&](uint32_t rank) {
      sluice_options o = options_for(rank, 2);
      o.progress_threads = rank;
      made[rank] = create(o);
    });
    return made;
  }();
  for (const Created& c : sessions) ASSERT_EQ(c.status, SLUICE_OK) << c.error;
  std::vector<float> x = ramp(0, 1000);
  std::vector<sluice_request> requests(2);
  ASSERT_EQ(sum_async(sessions[0].session, x, requests[0]), SLUICE_OK);
  std::vector<float> one(1, 1.f);
  const pid_t child = ::fork();
  if (child == 0) {
    int wrong = 0;
    for (const Created& c : sessions) {
      int done = 7;
      sluice_request request = 7;
      sluice_stats stats{};
      stats.struct_size = sizeof stats;
      std::array<char, 128> text{};
      wrong += sum_async(c.session, one, request) != SLUICE_CLOSED;
      wrong += sum(c.session, one) != SLUICE_CLOSED;
      wrong += sluice_test(c.session, requests[0], &done) != SLUICE_CLOSED || done != 0;
      wrong += sluice_wait(c.session, requests[0], -1) != SLUICE_CLOSED;
      wrong += sluice_progress(c.session) != SLUICE_CLOSED;
      wrong += sluice_session_stats(c.session, &stats) != SLUICE_CLOSED;
      wrong += sluice_session_error(c.session, text.data(), text.size()) != SLUICE_CLOSED || text[0] == 0;
      wrong += sluice_session_abort(c.session, "child") != SLUICE_CLOSED;
      wrong += sluice_session_close(c.session) != SLUICE_OK;
    }
    ::_exit(wrong);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  if (!eventually([&] { return ::waitpid(child, &status, WNOHANG) != 0; })) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  // The parent's session continues.
  std::vector<float> y = ramp(1, 1000);
  EXPECT_EQ(sum_async(sessions[1].session, y, requests[1]), SLUICE_OK);
  for (const size_t rank : {0u, 1u})
    EXPECT_EQ(sluice_wait(sessions[rank].session, requests[rank], -1), SLUICE_OK);
  EXPECT_EQ(x, sum_of_ramps(2, 1000));
  EXPECT_EQ(y, x);
  each_rank(2, [&](uint32_t r) { EXPECT_EQ(sluice_session_close(sessions[r].session), SLUICE_OK); });
}

TEST_F(EngineSession, SupportsManyOpenOperations) {
  start_reducers(2);
  for (const uint32_t threads : {0u, 1u}) {
    ++session_;
    run_session(
        2, [&](sluice_options& o) { o.progress_threads = threads; },
        [](uint32_t rank, sluice_session* s) {
          constexpr size_t kOps = 1500;
          std::vector<std::vector<float>> data(kOps);
          std::vector<sluice_request> requests(kOps);
          size_t oldest = 0;
          for (size_t i = 0; i < kOps; ++i) {
            data[i] = ramp(rank, i * 5);
            sluice_status status = SLUICE_AGAIN;
            while ((status = sum_async(s, data[i], requests[i])) == SLUICE_AGAIN)
              ASSERT_EQ(sluice_wait(s, requests[oldest++], -1), SLUICE_OK);
            ASSERT_EQ(status, SLUICE_OK);
          }
          if (!kOnStreams) {
            EXPECT_GT(oldest, 0u) << "the table was never full";
          }
          for (; oldest < kOps; ++oldest) ASSERT_EQ(sluice_wait(s, requests[oldest], -1), SLUICE_OK);
          for (size_t i = 0; i < kOps; ++i) ASSERT_EQ(data[i], sum_of_ramps(2, i * 5)) << i;
        });
  }
}

}  // namespace
}  // namespace sluice::test
