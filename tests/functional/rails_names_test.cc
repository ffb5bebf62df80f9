// Whom errors and statistics of sessions of several hosts name.
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <vector>

#include "core/instrumented.h"
#include "tests/functional/rails_test_bed.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;
using RailsNames = Rails;

sluice_status sum(sluice_session* s, std::vector<float>& x) {
  return sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM);
}

// Host 1 knows only that host 0 is late, and lets that speak first.
TEST_F(RailsNames, ATimeoutNamesTheOperationAndTheLateRankOnAllHosts) {
  const auto run = [](uint32_t rank, sluice_options& o) {
    o.op_timeout_ms = rank == 1 ? 0 : 1500;  // longer than a heartbeat, which tells host 1 who is missing
    const Created c = create_session(o);
    EXPECT_EQ(c.status, SLUICE_OK) << c.error;
    std::vector<float> x(100'000);
    EXPECT_EQ(sum(c.session, x), SLUICE_OK);
    if (rank != 1) {
      EXPECT_EQ(sum(c.session, x), SLUICE_TIMEOUT);
    }
    EXPECT_TRUE(eventually([&] { return !reason_of(c.session).empty(); }));
    EXPECT_THAT(
        reason_of(c.session),
        HasSubstr(
            "operation 1 (allreduce of 100000 f32) timed out; waiting for 1 rank, the first is rank 1"));
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_TIMEOUT);
    return 0;
  };
  for (const size_t reducers : {size_t{1}, size_t{0}}) {
    SetUp();
    run_ranks({0, 0, 1, 1}, reducers, run);
  }
}

// Which of its ranks is late, only the host knows. All others name its first rank.
TEST_F(RailsNames, StatisticsNameTheFirstRankOfALateHost) {
  void* const memory =
      ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& informed = *new (memory) std::atomic<int>(0);
  run_hosts({0, 0, 1, 1}, 1, [&](uint32_t rank, sluice_session* s) {
    std::vector<float> x(100'000);
    if (rank == 3) {
      EXPECT_TRUE(eventually([&] { return informed == 3; }));
      return sum(s, x) == SLUICE_OK ? 0 : 81;
    }
    sluice_request request = 0;
    EXPECT_EQ(sluice_allreduce_async(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM, &request),
              SLUICE_OK);
    EXPECT_TRUE(eventually([&] {
      const sluice_stats stats = stats_of(s);
      return stats.missing_ranks == 1 && stats.missing_rank == (rank == 2 ? 3U : 2U);
    })) << "rank "
        << rank;
    ++informed;
    return sluice_wait(s, request, -1) == SLUICE_OK ? 0 : 82;
  });
  ::munmap(memory, sizeof(std::atomic<int>));
}

// Limits the descriptors of this process to those it has and `spare` more.
void leave_descriptors(rlim_t spare) {
  rlim_t limit = 0;
  for (rlim_t free = 0; free < spare; ++limit) free += ::fcntl(static_cast<int>(limit), F_GETFD) < 0 ? 1 : 0;
  const rlimit low{.rlim_cur = limit, .rlim_max = 1000};
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
}

// The rank stays without them, so it does not try until its time is over. Those it has suffice until the
// rails join.
TEST_F(RailsNames, ARankWithTooFewDescriptorsIsNamedAtOnce) {
  const auto create = [&](uint32_t rank, sluice_options& o) {
    if (rank == 3) leave_descriptors(10);
    const Nanos began = monotonic_now();
    const Created c = create_session(o);
    EXPECT_NE(c.status, SLUICE_OK) << "rank " << rank;
    EXPECT_THAT(c.error, HasSubstr("too many open files")) << "rank " << rank;
    EXPECT_LT(monotonic_now() - began, 5 * kSecond) << "rank " << rank << ": " << c.error;
    return 0;
  };
  run_ranks({0, 0, 1, 1}, 2, create);
}

// The same where each rank sends its own data. Two descriptors suffice for a connection to each reducer, and
// with nine all can begin but the last lane connection.
TEST_F(RailsNames, ARankWithTooFewDescriptorsIsNamedAtOnceWithoutSharing) {
  if (SLUICE_INSTRUMENTED != 0) GTEST_SKIP() << "left out: the sanitizer itself needs descriptors";
  for (rlim_t spare = 2; spare < 10; ++spare) {
    SCOPED_TRACE(spare);
    SetUp();
    ::setenv("SLUICE_HOSTS", "off", 1);
    run_ranks({0, 0, 1, 1}, 2, [&](uint32_t rank, sluice_options& o) {
      if (rank == 3) leave_descriptors(spare);
      const Nanos began = monotonic_now();
      const Created c = create_session(o);
      EXPECT_EQ(c.status, rank == 3 ? SLUICE_SYSTEM : SLUICE_LOST) << c.error;
      EXPECT_THAT(c.error, HasSubstr("too many open files")) << "rank " << rank;
      EXPECT_THAT(c.error, HasSubstr(rank == 3 ? "" : "rank 3 (")) << "rank " << rank;
      EXPECT_LT(monotonic_now() - began, 5 * kSecond) << "rank " << rank << ": " << c.error;
      return 0;
    });
  }
}

}  // namespace
}  // namespace sluice::test
