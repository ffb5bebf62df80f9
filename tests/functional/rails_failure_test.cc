// What ends a session of several hosts with several ranks each, or keeps it from beginning.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <vector>

#include "tests/functional/rails_test_bed.h"

namespace sluice::test {
namespace {

class RailsFailure : public Rails {
 protected:
  // The creation fails at once on all ranks, and each names the cause.
  void expect_no_session(const std::vector<uint32_t>& host_of, size_t reducers, uint32_t culprit,
                         const std::function<void(sluice_options&)>& spoil, const std::string& cause,
                         bool dies) {
    const auto create = [&](uint32_t rank, sluice_options& o) {
      if (rank == culprit) spoil(o);
      const Nanos began = monotonic_now();
      const Created c = create_session(o);
      EXPECT_NE(c.status, SLUICE_OK);
      EXPECT_THAT(c.error, ::testing::HasSubstr(cause)) << "rank " << rank;
      // Processes may begin late.
      EXPECT_LT(monotonic_now() - began, 5 * kSecond) << "rank " << rank << ": " << c.error;
      return 0;
    };
    run_ranks(host_of, reducers, create, dies ? culprit : ~0U);
  }
};

// The system calls that no rank makes before a moment, with this second argument if one is given.
struct Moment {
  std::vector<uint32_t> calls;
  std::optional<uint32_t> argument{};
};

const Moment kHostsMeet{{SYS_socket}, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK};
// Then the thread begins that watches reducers.
const Moment kRailsJoin{{SYS_epoll_pwait,
#ifdef SYS_epoll_wait
                         SYS_epoll_wait
#endif
}};

// What the kernel does at the first of these calls: SECCOMP_RET_...
void stop_at(const Moment& moment, uint32_t action) {
  const bool has_argument = moment.argument.has_value();
  std::vector<sock_filter> program;
  for (const uint32_t call : moment.calls) {
    program.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)});
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<uint8_t>(has_argument ? 3 : 1), call});
    if (has_argument) {
      program.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args) + sizeof(uint64_t)});
      program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, *moment.argument});
    }
    program.push_back({BPF_RET | BPF_K, 0, 0, action});
  }
  program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog filter{static_cast<uint16_t>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    ::_exit(6);
}

TEST_F(RailsFailure, ARankThatCannotJoinItsRailIsNamedOnAllRanks) {
  const auto spoil = [](sluice_options& o) { o.window_bytes = 1U << 20; };
  for (const size_t reducers : {size_t{2}, size_t{0}}) {
    for (const uint32_t culprit : {1U, 3U, 4U}) {
      SCOPED_TRACE(std::to_string(reducers) + " reducers, rank " + std::to_string(culprit));
      SetUp();
      expect_no_session({0, 0, 1, 1, 2}, reducers, culprit, spoil, "window", false);
    }
  }
}

// As where one rank has too few descriptors. It knows that the failure is its own.
TEST_F(RailsFailure, AnErrorOfOneRankOnlyIsNotThatOfTheOthers) {
  const auto create = [](uint32_t rank, sluice_options& o) {
    if (rank == 1) stop_at({{SYS_epoll_create1}}, SECCOMP_RET_ERRNO | EMFILE);
    const Created c = create_session(o);
    const std::string failure = "cannot wait for the other ranks: Too many open files";
    if (rank == 1) {
      EXPECT_EQ(c.status, SLUICE_SYSTEM);
      EXPECT_EQ(c.error, failure);
    } else {
      EXPECT_EQ(c.status, SLUICE_LOST) << "rank " << rank;
      EXPECT_THAT(c.error, ::testing::ContainsRegex("rank 1( \\([^)]*\\))?: " + failure)) << "rank " << rank;
    }
    return 0;
  };
  run_ranks({0, 0, 1, 1}, 2, create);
}

// Whatever host a rank is on, and whatever its rail's reducers call it.
TEST_F(RailsFailure, ErrorsNameTheRanksOfTheSession) {
  const auto narrow = [](sluice_options& o) { o.window_bytes = 1U << 20; };
  for (const size_t reducers : {size_t{2}, size_t{0}}) {
    SetUp();
    // Rank 4 meets rank 1 on rail 1. Whoever comes later is named first.
    const auto run = [&](uint32_t rank, sluice_options& o) {
      if (rank == 4) narrow(o);
      const Created c = create_session(o);
      EXPECT_THAT(c.error, ::testing::AllOf(::testing::ContainsRegex("rank 4 \\([^)]*\\) has 1048576"),
                                            ::testing::ContainsRegex("rank 1 \\([^)]*\\) has 2097152")));
      return 0;
    };
    run_ranks({0, 0, 0, 1, 1, 1}, reducers, run);
  }
  run_ranks({0, 0, 0, 1, 1, 1}, 1, [](uint32_t rank, sluice_options& o) {
    const Created c = create_session(o);
    if (rank == 4) {
      EXPECT_EQ(c.status, SLUICE_OK) << c.error;
      EXPECT_EQ(sluice_session_abort(c.session, "rank 1 is tired"), SLUICE_OK);
    }
    // The abort may come before this rank knows that all have joined.
    EXPECT_TRUE(c.session == nullptr || eventually([&] { return !reason_of(c.session).empty(); }));
    const std::string reason = c.session == nullptr ? c.error : reason_of(c.session);
    if (rank == 4) {
      EXPECT_EQ(reason, "rank 1 is tired");
    } else {
      EXPECT_THAT(reason, ::testing::ContainsRegex("rank 4( \\([^)]*\\))?: rank 1 is tired$"));
    }
    if (c.session != nullptr) static_cast<void>(sluice_session_close(c.session));
    return 0;
  });
}

TEST_F(RailsFailure, ARankThatDiesBeforeTheSessionBeginsIsNamedOnAllRanks) {
  for (const Moment& moment : {kHostsMeet, kRailsJoin}) {
    for (const uint32_t culprit : {1U, 4U}) {
      SCOPED_TRACE("rank " + std::to_string(culprit));
      SetUp();
      expect_no_session(
          {0, 0, 1, 1, 2}, 2, culprit, [&](sluice_options&) { stop_at(moment, SECCOMP_RET_KILL_PROCESS); },
          "rank " + std::to_string(culprit) + " lost", true);
    }
  }
}

// All waits of a creation have one deadline: a rank that comes late leaves less time to one that hangs.
TEST_F(RailsFailure, ARankThatHangsDoesNotCostMoreThanOneDeadline) {
  constexpr uint32_t kHangs = 1;
  const auto create = [](uint32_t rank, sluice_options& o) {
    o.connect_timeout_ms = 500;
    o.join_timeout_ms = 3000;
    const Nanos began = monotonic_now();
    if (rank == kHangs) {
      // Nearly too late: a session of ranks that don't exist comes first.
      sluice_options alone = o;
      alone.session_id[0] = static_cast<uint8_t>(alone.session_id[0] + 1);
      alone.join_timeout_ms = 2700;
      EXPECT_EQ(create_session(alone).status, SLUICE_TIMEOUT);
      ::signal(SIGSYS, [](int) {
        while (true) ::pause();
      });
      ::alarm(3);
      stop_at(kHostsMeet, SECCOMP_RET_TRAP);
    }
    const Created c = create_session(o);
    EXPECT_EQ(c.status, SLUICE_TIMEOUT) << c.error;
    const Nanos took = monotonic_now() - began;
    EXPECT_LT(took, 5 * kSecond) << "rank " << rank << ": " << c.error;
    return 0;
  };
  run_ranks({0, 0, 1, 1, 2}, 2, create, kHangs);
}

TEST_F(RailsFailure, AnOperationTimesOutAndNamesTheRanksOfTheHostThatIsMissing) {
  const auto run = [](uint32_t rank, sluice_options& o) {
    o.op_timeout_ms = rank < 2 ? 2500 : 0;  // longer than a heartbeat, which says who is missing
    const Created c = create_session(o);
    EXPECT_EQ(c.status, SLUICE_OK) << c.error;
    std::vector<float> x(100);
    if (rank != 3) {
      EXPECT_EQ(sluice_allreduce(c.session, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM),
                SLUICE_TIMEOUT);
    }
    EXPECT_TRUE(eventually([&] { return !reason_of(c.session).empty(); }));
    EXPECT_THAT(reason_of(c.session),
                ::testing::HasSubstr("operation 0 (allreduce of 100 f32) timed out; waiting for 1 "
                                     "host, the first is that of ranks 2, 3"));
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_TIMEOUT);
    return 0;
  };
  run_ranks({0, 0, 1, 1}, 1, run);
}

sluice_status set_reducers(sluice_session* s, const std::string& list, std::string& why) {
  std::array<char, 200> error{};
  const sluice_status status = sluice_session_set_reducers(s, list.c_str(), error.data(), error.size());
  why = error.data();
  return status;
}

TEST_F(RailsFailure, NoRankChangesTheReducersOfASessionThatCannot) {
  const auto run = [&](bool keeps_results) {
    SetUp();
    run_ranks({0, 0, 1, 1}, 1, [&](uint32_t rank, sluice_options& o) {
      o.keep_results = keeps_results ? 1 : 0;
      const Created c = create_session(o);
      EXPECT_EQ(c.status, SLUICE_OK) << c.error;
      std::string why;
      if (keeps_results) {
        if (rank == 0) {
          std::string list = list_;
          for (int port = 10'000; list.size() < 40'000; ++port)
            list += ",[1111:2222:3333:4444:5555:6666:7777:8888]:" + std::to_string(port) + "*100";
          EXPECT_EQ(set_reducers(c.session, list, why), SLUICE_REFUSED);
          EXPECT_THAT(why, ::testing::HasSubstr("reach the other ranks of this host"));
          EXPECT_EQ(sluice_session_abort(c.session, "enough"), SLUICE_OK);
        }
        EXPECT_TRUE(eventually([&] { return !reason_of(c.session).empty(); }));
        EXPECT_EQ(set_reducers(c.session, list_, why), rank == 0 ? SLUICE_CLOSED : SLUICE_LOST);
        EXPECT_THAT(why, ::testing::HasSubstr("enough"));
      } else {
        EXPECT_EQ(set_reducers(c.session, list_, why), SLUICE_UNSUPPORTED);
        EXPECT_THAT(why, ::testing::HasSubstr("not fault-tolerant"));
      }
      static_cast<void>(sluice_session_close(c.session));
      return 0;
    });
  };
  run(true);
  run(false);
}

// Rank 0 serves both rails.
TEST_F(Rails, CountersOfRailsAddUp) {
  run_hosts({0, 1, 1}, 2, [&](uint32_t rank, sluice_session* s) {
    std::string why;
    if (rank == 0) {
      EXPECT_EQ(set_reducers(s, list_.substr(0, list_.find(',')), why), SLUICE_OK) << why;
    }
    EXPECT_TRUE(eventually([&] { return stats_of(s).view_changes == (rank == 0 ? 2 : 1); }));
    std::vector<float> x(100);  // all stay until then
    return sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM) == SLUICE_OK ? 0 : 8;
  });
}

// The operation that ends the creation is none of the caller's.
TEST_F(Rails, ASessionBeginsWithoutOperations) {
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 0, 1, 1}, {0, 0, 0}}) {
    SetUp();
    run_hosts(
        hosts, 1,
        [](uint32_t, sluice_session* s) {
          EXPECT_EQ(stats_of(s).operations, 0U);
          EXPECT_EQ(stats_of(s).longest_stall_us, 0U);
          return 0;
        },
        ~0U, [](uint32_t rank, sluice_options& o) { o.op_timeout_ms = rank == 0 ? 1 : 0; });
  }
}

// The rails of the rank that leaves linger, since their other members might need their results.
TEST_F(RailsFailure, ARankThatLeavesIsNoticedBeforeItHasClosed) {
  const auto run = [](uint32_t rank, sluice_options& o) {
    o.linger_ms = 20'000;
    const Created c = create_session(o);
    EXPECT_EQ(c.status, SLUICE_OK) << c.error;
    float x = 1;
    const sluice_status first = sluice_allreduce(c.session, &x, &x, 1, SLUICE_F32, SLUICE_SUM);
    // The other host may learn that the session has ended before it has this result.
    if (rank != 2 || first != SLUICE_CLOSED) {
      EXPECT_EQ(first, SLUICE_OK) << "rank " << rank;
    }
    const Nanos began = monotonic_now();
    if (rank != 1) {
      EXPECT_EQ(sluice_allreduce(c.session, &x, &x, 1, SLUICE_F32, SLUICE_SUM), SLUICE_CLOSED);
      EXPECT_THAT(reason_of(c.session), ::testing::HasSubstr("rank 1 left the session"));
      EXPECT_LT(monotonic_now() - began, 10 * kSecond);
    }
    static_cast<void>(sluice_session_close(c.session));
    return 0;
  };
  for (const size_t reducers : {size_t{2}, size_t{0}}) {
    SetUp();
    run_ranks({0, 0, 1}, reducers, run);
  }
}

}  // namespace
}  // namespace sluice::test
