// What ends a session of ranks that share a host, or keeps it from beginning.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>

#include "gpu_client/local/packet_socket.h"
#include "tests/functional/local_test_bed.h"
#include "tests/support/temporary_file.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using LocalFailure = LocalTestBed;

sluice_status sum(sluice_session* s, std::vector<float>& x) {
  return sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM);
}

TEST_F(LocalFailure, MissingRanksAreNamed) {
  each_rank(2, [&](uint32_t rank) {
    sluice_options o = options_for(rank * 2, 5);
    o.join_timeout_ms = 300;
    const Created c = create_session(o);
    EXPECT_EQ(c.status, SLUICE_TIMEOUT);
    EXPECT_EQ(c.error,
              "ranks 1, 3, 4 of 5 did not join on this host; for ranks on several hosts set "
              "SLUICE_REDUCERS, or SLUICE_RENDEZVOUS=host:port of rank 0");
  });
}

TEST_F(LocalFailure, SluiceHostsOffRequiresReducers) {
  ::setenv("SLUICE_HOSTS", "off", 1);
  const Created c = create_session(options_for(0, 2));
  EXPECT_EQ(c.status, SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(c.error, HasSubstr("neither SLUICE_REDUCERS nor the platform names reducers"));
  ::setenv("SLUICE_HOSTS", "yes", 1);
  EXPECT_EQ(create_session(options_for(0, 2)).error,
            "variable SLUICE_HOSTS: \"yes\": expected auto, exact or off");
}

// In bytes, also where each rank is on its own, and before anything connects.
TEST_F(LocalFailure, ANameOfAHostIsChecked) {
  std::array<char, 200> error{};
  const auto check = [&](const std::string& name) {
    ::setenv("SLUICE_HOST_ID", name.c_str(), 1);
    const sluice_options o = options_for(0, 2);
    const sluice_status status = sluice_options_check(&o, error.data(), error.size());
    ::unsetenv("SLUICE_HOST_ID");
    return status;
  };
  EXPECT_EQ(check(std::string(64, 'x')), SLUICE_OK);
  EXPECT_EQ(check(std::string(65, 'x')), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(error.data(), "variable SLUICE_HOST_ID: 65 bytes; expected at most 64");
}

// Ranks that are not on one host, and have a meeting point that they shall not use.
TEST_F(LocalFailure, AMeetingPointThatIsNotUsedIsNotTheRemedy) {
  ::setenv("SLUICE_COLOCATED", "off", 1);
  sluice_options o = options_for(0, 2);
  o.reducers = "none";
  o.rendezvous = "127.0.0.1:1";
  o.join_timeout_ms = 300;
  EXPECT_EQ(create_session(o).error,
            "rank 1 of 2 did not join on this host; for ranks on several hosts set SLUICE_REDUCERS, or "
            "SLUICE_COLOCATED=auto");
  ::unsetenv("SLUICE_COLOCATED");
}

TEST_F(LocalFailure, RanksThatDisagreeOnTheirNumberAreNamed) {
  each_rank(2, [&](uint32_t rank) {
    const Created c = create_session(options_for(rank, 2 + rank));
    EXPECT_EQ(c.status, SLUICE_MISMATCH);
    EXPECT_THAT(c.error, AnyOf(std::string("rank 1 expects 3 ranks, rank 0 expects 2"),
                               std::string("rank 0 expects 2 ranks, rank 1 expects 3")));
  });
}

TEST_F(LocalFailure, ARankTwiceIsRefused) {
  each_rank(2, [&](uint32_t /*rank*/) {
    const Created c = create_session(options_for(1, 3));
    EXPECT_EQ(c.status, SLUICE_REFUSED);
    EXPECT_EQ(c.error, "rank 1 is already part of the session");
  });
}

TEST_F(LocalFailure, MoreRanksThanShareMemoryAreRefused) {
  EXPECT_THAT(create_session(options_for(0, 65)).error, StartsWith("65 ranks on one host; at most 64"));
}

// The kernel ends a process that allocates more, unless it asks first.
TEST_F(LocalFailure, ALimitOfFileSizesBelowTheMemoryIsAnError) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  each_rank(2, [&](uint32_t rank) {
    const Created c = create_session(options_for(rank, 2));
    EXPECT_EQ(c.status, SLUICE_SYSTEM);
    EXPECT_THAT(c.error, HasSubstr("the limit of file sizes (ulimit -f) is lower"));
  });
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  run(2, [](uint32_t /*rank*/, sluice_session* s) {
    std::vector<float> x(8, 1);
    EXPECT_EQ(sum(s, x), SLUICE_OK);
  });
}

TEST_F(LocalFailure, RanksWithAnotherTokenOrNoneDoNotJoin) {
  const TemporaryFile key(std::string(64, 'a')), other(std::string(64, 'b'));
  const auto join = [&](const char* key0, const char* key1) {
    std::array<Created, 2> out;
    each_rank(2, [&](uint32_t rank) {
      sluice_options o = options_for(rank, 2);
      o.key_file = rank == 0 ? key0 : key1;
      o.join_timeout_ms = 500;
      out[rank] = create_session(o);
    });
    return out;
  };
  for (const Created& c : join(key.path().c_str(), key.path().c_str())) {
    EXPECT_EQ(c.status, SLUICE_OK) << c.error;
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_OK);
  }
  // Whoever leads waits for a rank with its token, until the time is over.
  const auto wrong = join(key.path().c_str(), other.path().c_str());
  for (const Created& c : wrong) EXPECT_NE(c.status, SLUICE_OK);
  EXPECT_THAT(wrong[0].error + wrong[1].error,
              AllOf(HasSubstr("does not hold the job token"), HasSubstr("did not join on this host")));
  const auto none = join(key.path().c_str(), "");
  EXPECT_THAT(none[0].error + none[1].error, HasSubstr("rank 1 has no pool key or job token"));
}

TEST_F(LocalFailure, OperationsThatDifferAreNamedOnAllRanks) {
  each_rank(3, [&](uint32_t rank) {
    const Created c = create_session(options_for(rank, 3));
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    std::vector<float> x(rank == 2 ? 500'000 : 8);
    EXPECT_EQ(sum(c.session, x), SLUICE_MISMATCH);
    EXPECT_EQ(
        reason_of(c.session),
        "ranks disagree on count: rank 2 operation 0 is allreduce of count 500000 dtype f32 op sum, rank 0 "
        "operation 0 is allreduce of count 8 dtype f32 op sum");
    EXPECT_EQ(sum(c.session, x), SLUICE_MISMATCH);
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_MISMATCH);
  });
}

TEST_F(LocalFailure, KindsRootsAndPartsThatDifferAreFound) {
  const std::array<size_t, 2> counts = {3, 5}, swapped = {5, 3};
  struct Case {
    const char* name;
    std::function<sluice_status(sluice_session*, uint32_t rank, float* x, sluice_request*)> start;
  };
  const std::vector<Case> cases = {
      {"kind",
       [](auto* s, uint32_t rank, float* x, auto* r) {
         return rank == 0 ? sluice_broadcast_async(s, x, 8, SLUICE_F32, 0, r)
                          : sluice_allreduce_async(s, x, x, 8, SLUICE_F32, SLUICE_SUM, r);
       }},
      {"root", [](auto* s, uint32_t rank, float* x,
                  auto* r) { return sluice_broadcast_async(s, x, 8, SLUICE_F32, rank, r); }},
      {"counts",
       [&](auto* s, uint32_t rank, float* x, auto* r) {
         return sluice_all_gather_async(s, x + 100, x, 0, rank == 0 ? counts.data() : swapped.data(),
                                        SLUICE_F32, r);
       }},
      {"op", [](auto* s, uint32_t rank, float* x, auto* r) {
         return sluice_allreduce_async(s, x, x, 8, SLUICE_F32, rank == 0 ? SLUICE_MIN : SLUICE_MAX, r);
       }}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SetUp();
    each_rank(2, [&](uint32_t rank) {
      const Created made = create_session(options_for(rank, 2));
      ASSERT_EQ(made.status, SLUICE_OK) << made.error;
      std::vector<float> x(200, static_cast<float>(rank));
      sluice_request request = 0;
      ASSERT_EQ(c.start(made.session, rank, x.data(), &request), SLUICE_OK);
      EXPECT_EQ(sluice_wait(made.session, request, -1), SLUICE_MISMATCH);
      EXPECT_EQ(x, std::vector<float>(200, static_cast<float>(rank))) << "no result";
      EXPECT_THAT(reason_of(made.session),
                  StartsWith(std::string("ranks disagree on ") + c.name + ": rank 1 "));
      EXPECT_EQ(sluice_session_close(made.session), SLUICE_MISMATCH);
    });
  }
}

TEST_F(LocalFailure, AnAbortEndsTheWaitOfTheOthers) {
  each_rank(3, [&](uint32_t rank) {
    const Created c = create_session(options_for(rank, 3));
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    std::vector<float> x(100);
    if (rank == 1) {
      EXPECT_EQ(sluice_session_abort(c.session, "out of \x01 cheese"), SLUICE_OK);
      EXPECT_EQ(sum(c.session, x), SLUICE_CLOSED);
      EXPECT_EQ(sluice_session_close(c.session), SLUICE_CLOSED);
    } else {
      EXPECT_EQ(sum(c.session, x), SLUICE_LOST);
      EXPECT_THAT(reason_of(c.session), AllOf(StartsWith("rank 1: out of "), HasSubstr(" cheese")));
      EXPECT_EQ(sluice_session_close(c.session), SLUICE_LOST);
    }
  });
}

// Also on a rank that calls nothing in the meantime.
TEST_F(LocalFailure, AnAbortIsSeenByIdleRanks) {
  each_rank(2, [&](uint32_t rank) {
    const Created c = create_session(options_for(rank, 2));
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    if (rank == 0) {
      EXPECT_EQ(sluice_session_abort(c.session, "enough"), SLUICE_OK);
    }
    const std::string reason = rank == 0 ? "enough" : "rank 0: enough";
    EXPECT_TRUE(eventually([&] { return reason_of(c.session) == reason; })) << reason_of(c.session);
    sluice_session_close(c.session);
  });
}

TEST_F(LocalFailure, ARankThatLeftEndsTheOperationsItDoesNotKnow) {
  std::atomic<bool> left{false};
  each_rank(3, [&](uint32_t rank) {
    const Created c = create_session(options_for(rank, 3));
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    std::vector<float> x(300'000, 1);
    ASSERT_EQ(sum(c.session, x), SLUICE_OK);
    if (rank == 2) {
      EXPECT_EQ(sluice_session_close(c.session), SLUICE_OK);
      left = true;
      return;
    }
    if (rank == 1) {
      EXPECT_TRUE(eventually([&] { return left.load(); }));
    }
    EXPECT_EQ(sum(c.session, x), SLUICE_CLOSED);
    EXPECT_EQ(reason_of(c.session), "rank 2 left the session; rank " + std::to_string(rank) + " continued");
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_CLOSED);
  });
}

TEST_F(LocalFailure, AnOperationTimesOutAndNamesWhoIsMissing) {
  each_rank(3, [&](uint32_t rank) {
    sluice_options o = options_for(rank, 3);
    o.op_timeout_ms = 200;
    const Created c = create_session(o);
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    std::vector<float> x(100);
    if (rank != 1) {
      EXPECT_EQ(sum(c.session, x), SLUICE_TIMEOUT);
    } else {
      EXPECT_TRUE(eventually([&] { return !reason_of(c.session).empty(); }));
    }
    EXPECT_EQ(reason_of(c.session),
              "operation 0 (allreduce of 100 f32) timed out; waiting for 1 rank, the first is rank 1");
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_TIMEOUT);
  });
}

TEST_F(LocalFailure, StatisticsNameTheLateRankAndACloseHasADeadline) {
  std::atomic<int> seen{0}, closed{0};
  each_rank(3, [&](uint32_t rank) {
    sluice_options o = options_for(rank, 3);
    o.linger_ms = 100;
    const Created c = create_session(o);
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    if (rank == 0) {
      EXPECT_TRUE(eventually([&] { return closed == 2; }));
      EXPECT_EQ(sluice_session_close(c.session), SLUICE_LOST);
      return;
    }
    std::vector<float> x(100);
    sluice_request request = 0;
    ASSERT_EQ(
        sluice_allreduce_async(c.session, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM, &request),
        SLUICE_OK);
    EXPECT_TRUE(eventually([&] {
      const sluice_stats stats = stats_of(c.session);
      return stats.missing_ranks == 1 && stats.missing_rank == 0 && stats.waited_ms >= 20;
    }));
    EXPECT_EQ(sluice_wait(c.session, request, 1), SLUICE_TIMEOUT);
    ++seen;
    EXPECT_TRUE(eventually([&] { return seen == 2; }));
    // The first to close ends the session for the other one.
    EXPECT_THAT(sluice_session_close(c.session), AnyOf(SLUICE_TIMEOUT, SLUICE_LOST));
    ++closed;
  });
}

// Processes, some of which die.
class LocalDeath : public LocalTestBed {
 protected:
  static constexpr uint32_t kRanks = 4;
  struct Shared {
    std::atomic<uint32_t> ready{0}, reported{0};
    std::array<std::atomic<int>, kRanks> status{};
    std::array<std::array<char, 256>, kRanks> reason{};
  };
  enum class Moment { kIdle, kInOperation, kBetweenOperations };

  void SetUp() override {
    LocalTestBed::SetUp();
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
  }
  void TearDown() override { ::munmap(shared_, sizeof(Shared)); }

  void run_rank(uint32_t rank, Moment moment, size_t ballast_bytes) const {
    const Created c = create_session(options_for(rank, kRanks));
    if (c.status != SLUICE_OK) ::_exit(3);
    const std::vector<char> ballast(ballast_bytes, 1);
    std::vector<float> x(100'000, 1);
    if (sum(c.session, x) != SLUICE_OK) ::_exit(4);
    if (rank == 1 && ::fork() == 0) {  // a child that lives on, with everything that it has inherited
      ::prctl(PR_SET_PDEATHSIG, 0);
      ::setsid();
      ::pause();
    }
    ++shared_->ready;
    sluice_status status = SLUICE_OK;
    if (moment == Moment::kInOperation && rank == 1) {
      while (true) ::pause();
    } else if (moment == Moment::kInOperation) {
      status = sum(c.session, x);
    } else if (moment == Moment::kBetweenOperations) {
      do status = sum(c.session, x);
      while (status == SLUICE_OK);
    } else {
      std::array<char, 256> text{};
      while ((status = sluice_session_error(c.session, text.data(), text.size())) == SLUICE_OK)
        ::sched_yield();
    }
    sluice_session_error(c.session, shared_->reason[rank].data(), shared_->reason[rank].size());
    shared_->status[rank] = status;
    ++shared_->reported;
    ::_exit(sluice_session_close(c.session) == SLUICE_LOST ? 0 : 5);
  }

  void kill_one(Moment moment, size_t ballast_bytes) {
    std::array<pid_t, kRanks> processes{};
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      processes[rank] = ::fork();
      if (processes[rank] == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_rank(rank, moment, ballast_bytes);
      }
    }
    ASSERT_TRUE(eventually([&] { return shared_->ready == kRanks; }));
    const pid_t orphan = child_of(processes[1]);
    ::kill(processes[1], SIGKILL);
    EXPECT_TRUE(eventually([&] { return shared_->reported == kRanks - 1; }));
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      int exited = 0;
      ::waitpid(processes[rank], &exited, 0);
      if (rank == 1) continue;
      EXPECT_EQ(shared_->status[rank], SLUICE_LOST) << rank;
      EXPECT_EQ(std::string(shared_->reason[rank].data()),
                "rank 1 lost: its process " + std::to_string(processes[1]) + " has ended");
      EXPECT_TRUE(WIFEXITED(exited) && WEXITSTATUS(exited) == 0) << rank << ": " << exited;
    }
    ASSERT_GT(orphan, 0);
    ::kill(orphan, SIGKILL);
  }

  static pid_t child_of(pid_t process) {
    std::ifstream children("/proc/" + std::to_string(process) + "/task/" + std::to_string(process) +
                           "/children");
    pid_t child = 0;
    children >> child;
    return child;
  }

  Shared* shared_ = nullptr;
};

TEST_F(LocalDeath, EndsTheOperationOfTheOthers) {
  kill_one(Moment::kInOperation, 0);
}
TEST_F(LocalDeath, EndsIdleRanks) {
  kill_one(Moment::kIdle, 0);
}
TEST_F(LocalDeath, AtAnyMoment) {
  for (int i = 0; i < 5; ++i) {
    new (shared_) Shared;
    SetUp();
    kill_one(Moment::kBetweenOperations, 0);
  }
}
TEST_F(LocalDeath, OfALargeProcess) {
  kill_one(Moment::kInOperation, 64 << 20);
}

// An operation that starts while another thread learns of the failure ends with it.
TEST_F(LocalFailure, OperationsThatStartDuringAFailureEnd) {
  for (int round = 0; round < 40; ++round) {
    SetUp();
    each_rank(2, [&](uint32_t rank) {
      const Created c = create_session(options_for(rank, 2));
      ASSERT_EQ(c.status, SLUICE_OK) << c.error;
      if (rank == 1) {
        EXPECT_EQ(sluice_session_abort(c.session, "enough"), SLUICE_OK);
      } else {
        // Unequal parts: the start takes long.
        const std::array<size_t, 2> counts = {20'000'001, 20'000'000};
        std::vector<uint8_t> x(counts[0] + counts[1]), part(counts[0]);
        for (sluice_status status = SLUICE_OK; status == SLUICE_OK;) {
          sluice_request request = 0;
          status = sluice_reduce_scatter_async(c.session, x.data(), part.data(), 0, counts.data(), SLUICE_U8,
                                               SLUICE_SUM, &request);
          if (status == SLUICE_OK) status = sluice_wait(c.session, request, 20'000);
          EXPECT_THAT(status, AnyOf(SLUICE_LOST));
        }
      }
      sluice_session_close(c.session);
    });
  }
}

// The last packet of a peer that has not read ours.
TEST_F(LocalFailure, APacketIsReceivedFromAPeerThatClosedEarly) {
  const std::string name = "sluice-test-" + std::to_string(::getpid());
  const auto listener = local::listen_at(name, 1);
  ASSERT_TRUE(listener.has_value());
  const auto client = local::connect_at(name);
  ASSERT_TRUE(client.has_value());
  {
    const auto server = local::accept_from(*listener);
    ASSERT_TRUE(server.has_value() && server->valid());
    ASSERT_TRUE(local::send_packet(*client, std::vector<std::byte>(3)).ok());
    ASSERT_TRUE(local::send_packet(*server, std::vector<std::byte>(7)).ok());
  }
  const auto packet = local::receive_packet(*client);
  ASSERT_TRUE(packet.has_value() && packet->has_value());
  EXPECT_EQ((*packet)->bytes.size(), 7U);
}

}  // namespace
}  // namespace sluice::test
