// What ends a session of several hosts with several ranks each, or keeps it from beginning.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <span>
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

// From now on the process dies at the first of these system calls, with this second argument if one is given.
void die_at(std::span<const uint32_t> calls, const uint32_t* argument = nullptr) {
  std::vector<sock_filter> program;
  for (const uint32_t call : calls) {
    program.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)});
    program.push_back(
        {BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<uint8_t>(argument != nullptr ? 3 : 1), call});
    if (argument != nullptr) {
      program.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args) + sizeof(uint64_t)});
      program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, *argument});
    }
    program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS});
  }
  program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog filter{static_cast<uint16_t>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    ::_exit(6);
}

// The first system call of the thread that watches reducers, which begins with a rank's first rail.
void die_when_rails_join() {
  die_at(std::array<uint32_t, 2>{SYS_epoll_pwait,
#ifdef SYS_epoll_wait
                                 SYS_epoll_wait
#endif
  });
}

void die_when_hosts_meet() {
  const uint32_t type = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
  die_at(std::array<uint32_t, 1>{SYS_socket}, &type);
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

TEST_F(RailsFailure, ARankThatDiesBeforeTheSessionBeginsIsNamedOnAllRanks) {
  for (const auto die : {die_when_hosts_meet, die_when_rails_join}) {
    for (const uint32_t culprit : {1U, 4U}) {
      SCOPED_TRACE("rank " + std::to_string(culprit));
      SetUp();
      expect_no_session(
          {0, 0, 1, 1, 2}, 2, culprit, [&](sluice_options&) { die(); },
          "rank " + std::to_string(culprit) + " lost", true);
    }
  }
}

}  // namespace
}  // namespace sluice::test
