// How the end of a session reaches the ranks of other hosts: at once, and never as an error of its creation.
#include <sys/mman.h>

#include <atomic>
#include <vector>

#include "tests/functional/rails_test_bed.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

class RailsEnd : public Rails {
 protected:
  // What the ranks' processes tell each other. Before run_ranks().
  struct Shared {
    std::atomic<bool> is_asleep{false};
    std::atomic<Nanos> ended_at{0};
  };
  static Shared& share() {
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    return *new (memory) Shared;
  }
  static sluice_status sum_one(sluice_session* s) {
    float x = 1;
    return sluice_allreduce(s, &x, &x, 1, SLUICE_F32, SLUICE_SUM);
  }
};

// Ranks 2 and 3 have nothing on a rail: rank 2 computes, and rank 3 waits for it. They sleep for 1 s unless
// someone wakes them.
TEST_F(RailsEnd, WakesRanksWithoutAnOperationOnARail) {
  for (const size_t reducers : {size_t{1}, size_t{0}}) {
    SetUp();
    Shared& shared = share();
    const auto run = [&](uint32_t rank, sluice_options& o) {
      const Created c = create_session(o);
      EXPECT_EQ(c.status, SLUICE_OK) << c.error;
      EXPECT_EQ(sum_one(c.session), SLUICE_OK);
      if (rank == 1) {
        EXPECT_TRUE(eventually([&] { return shared.is_asleep.load(); }));
        shared.ended_at = monotonic_now();
        EXPECT_EQ(sluice_session_abort(c.session, "enough"), SLUICE_OK);
      } else if (rank == 3) {
        std::thread looks([&] {
          EXPECT_TRUE(eventually([&] { return stats_of(c.session).waited_ms >= 100; }));
          shared.is_asleep = true;
        });
        EXPECT_EQ(sum_one(c.session), SLUICE_LOST);
        EXPECT_LT(monotonic_now() - shared.ended_at, 400 * kMillisecond);
        looks.join();
      }
      EXPECT_TRUE(eventually([&] { return !reason_of(c.session).empty(); }));
      EXPECT_THAT(reason_of(c.session), HasSubstr("enough"));
      static_cast<void>(sluice_session_close(c.session));
      return 0;
    };
    run_ranks({0, 0, 1, 1}, reducers, run);
    ::munmap(&shared, sizeof shared);
  }
}

// A rank may end the session while another one is still told that all have joined.
TEST_F(RailsEnd, IsNoErrorOfTheCreation) {
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 0, 1, 1}, {0, 0, 1}}) {
    for (const size_t reducers : {size_t{2}, size_t{0}}) {
      SCOPED_TRACE(std::to_string(hosts.size()) + " ranks, " + std::to_string(reducers) + " reducers");
      SetUp();
      const auto run = [](uint32_t rank, sluice_options& o) {
        for (uint8_t i = 1; i <= 20; ++i) {
          o.session_id[3] = i;
          const Created c = create_session(o);
          EXPECT_EQ(c.status, SLUICE_OK) << "session " << int{i} << " rank " << rank << ": " << c.error;
          if (c.session == nullptr) continue;
          if (rank == 0) {
            EXPECT_EQ(sluice_session_abort(c.session, "enough"), SLUICE_OK);
          } else {
            EXPECT_EQ(sum_one(c.session), SLUICE_LOST);
            EXPECT_THAT(reason_of(c.session), HasSubstr("enough"));
          }
          static_cast<void>(sluice_session_close(c.session));
        }
        return 0;
      };
      run_ranks(hosts, reducers, run);
    }
  }
}

// Rank 0 serves three rails, and lingers on each of them.
TEST_F(RailsEnd, OfARankReachesAllItsRailsAtOnce) {
  for (const size_t reducers : {size_t{1}, size_t{0}}) {
    SetUp();
    const auto run = [](uint32_t rank, sluice_options& o) {
      o.linger_ms = 20'000;
      const Created c = create_session(o);
      EXPECT_EQ(c.status, SLUICE_OK) << c.error;
      EXPECT_EQ(sum_one(c.session), SLUICE_OK);
      const Nanos began = monotonic_now();
      if (rank != 0) {
        EXPECT_EQ(sum_one(c.session), SLUICE_CLOSED);
        EXPECT_THAT(reason_of(c.session), HasSubstr("rank 0 left the session"));
      }
      EXPECT_EQ(sluice_session_close(c.session), rank == 0 ? SLUICE_OK : SLUICE_CLOSED);
      EXPECT_LT(monotonic_now() - began, 10 * kSecond) << "rank " << rank;
      return 0;
    };
    run_ranks({0, 1, 1, 1}, reducers, run);
  }
}

// Without a meeting point all ranks count as one host, and don't know of another.
TEST_F(RailsEnd, ComesBeforeTheBeginWhereOneHostHasTwoNames) {
  ::setenv("SLUICE_COLOCATED", "off", 1);
  const auto run = [](uint32_t /*rank*/, sluice_options& o) {
    o.reducers = "none";
    const Created c = create_session(o);
    EXPECT_EQ(c.status, SLUICE_MISMATCH);
    EXPECT_THAT(c.error, ::testing::MatchesRegex(
                             "rank [01] has another SLUICE_HOST_ID than rank [01]; ranks on several "
                             "hosts need SLUICE_REDUCERS, or SLUICE_COLOCATED=auto"));
    return 0;
  };
  run_ranks({0, 1}, 0, run);
  ::unsetenv("SLUICE_COLOCATED");
}

}  // namespace
}  // namespace sluice::test
