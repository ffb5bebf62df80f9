// Which ranks count as one host, and what they do where they cannot share its memory. Ranks are processes,
// some of them in namespaces or without system calls that others have.
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "colocated/hosted_reducer.h"
#include "gpu_client/api/options.h"
#include "gpu_client/engine/session/session.h"
#include "gpu_client/local/host_agreement.h"
#include "gpu_client/local/local_session.h"
#include "tests/functional/rails_test_bed.h"
#include "tests/support/reserved_port.h"

namespace sluice::test {
namespace {

constexpr const char* kNeedsRoot = "needs root: for namespaces and other users";

// In a rank's process, which has no other way to report.
void require(bool done, const char* what) {
  if (done) return;
  std::perror(what);
  ::_exit(6);
}

void write_to(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  require(fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()), path);
  ::close(fd);
}

void become_other_user() {
  constexpr uid_t kOther = 65534;
  require(::setgroups(0, nullptr) == 0 && ::setgid(kOther) == 0 && ::setuid(kOther) == 0, "setuid");
  require(::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0, "PR_SET_DUMPABLE");  // else root owns /proc/self
}

// The other user, who has the number 0 there.
void enter_user_namespace() {
  become_other_user();
  require(::unshare(CLONE_NEWUSER) == 0, "unshare");
  write_to("/proc/self/setgroups", "deny");
  write_to("/proc/self/uid_map", "0 65534 1");
  write_to("/proc/self/gid_map", "0 65534 1");
  require(::geteuid() == 0, "geteuid");
}

void enter_mount_namespace() {
  require(::unshare(CLONE_NEWNS) == 0, "unshare");
  ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);  // fails where / is no mount, as in a chroot
}

void shrink_shared_memory_folder() {
  enter_mount_namespace();
  require(::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") == 0, "mount /dev/shm");
}

// The rank is a child in the namespace.
void enter_process_namespace() {
  require(::unshare(CLONE_NEWPID) == 0, "unshare");
  const pid_t rank = ::fork();
  if (rank == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return;
  }
  int exited = 0;
  ::waitpid(rank, &exited, 0);
  ::_exit(WIFEXITED(exited) ? WEXITSTATUS(exited) : 7);
}

void hide_proc() {
  enter_mount_namespace();
  require(::mount("tmpfs", "/proc", "tmpfs", 0, "") == 0, "mount /proc");
}

void become_another_machine(const std::string& boot_id) {
  const TemporaryFile file(boot_id);
  enter_mount_namespace();
  require(::mount(file.path().c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) == 0,
          "mount boot_id");
}

// From now on the system call fails, if its first argument is the given one (~0: always).
void forbid(uint32_t system_call, uint32_t argument = ~0U) {
  const auto skip_unless = static_cast<uint8_t>(argument == ~0U ? 0 : 2);
  std::vector<sock_filter> program = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<uint8_t>(1 + skip_unless), system_call}};
  if (argument != ~0U) {
    program.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args)});
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, argument});
  }
  program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM});
  program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog filter{static_cast<uint16_t>(program.size()), program.data()};
  require(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
              ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0,
          "seccomp");
}

void limit_file_sizes() {
  const rlimit low{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
  require(::setrlimit(RLIMIT_FSIZE, &low) == 0, "setrlimit");
}

class HostsOfRanks : public Rails {
 protected:
  // Each rank's sum must be right, whoever shares memory. `sent`: by each rank, in bytes of the tensor.
  void expect_sums(const std::vector<uint32_t>& host_of, size_t reducers,
                   const std::function<void(uint32_t rank, sluice_options&)>& before_join,
                   const std::function<bool(uint32_t rank, uint64_t sent)>& is_expected) {
    const auto n = static_cast<uint32_t>(host_of.size());
    run_hosts(
        host_of, reducers,
        [&](uint32_t rank, sluice_session* s) {
          std::vector<float> x(100'000, static_cast<float>(rank + 1));  // zeros are not sent
          const uint64_t joined = stats_of(s).payload_bytes_out;
          if (sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM) != SLUICE_OK)
            return 81;
          const uint32_t ranks_sum = n * (n + 1) / 2;
          const auto sum = static_cast<float>(ranks_sum);
          if (x[7] != sum || x.back() != sum) return 82;
          const auto sent = [&] { return stats_of(s).payload_bytes_out - joined; };
          // Counters follow the operation's end.
          if (eventually([&] { return is_expected(rank, sent()); })) return 0;
          std::fprintf(stderr, "rank %u has sent %llu bytes\n", rank,
                       static_cast<unsigned long long>(sent()));
          return 83;
        },
        ~0U, before_join);
  }

  static constexpr uint64_t kBytes = 400'000;  // of the tensor
};

// As containers of one machine are. What they share counts, not what they call themselves.
TEST_F(HostsOfRanks, OtherUsersAreOtherHosts) {
  if (::geteuid() != 0) GTEST_SKIP() << kNeedsRoot;
  for (void (*const isolate)() : {become_other_user, enter_user_namespace}) {
    for (const size_t reducers : {size_t{1}, size_t{0}}) {
      SetUp();
      const auto before_join = [&](uint32_t rank, sluice_options&) {
        if (rank == 2) isolate();
      };
      // Two rails of two hosts: the second host serves both.
      expect_sums({0, 0, 0}, reducers, before_join, [](uint32_t rank, uint64_t sent) {
        return sent > 0 && sent <= (rank == 2 ? kBytes : kBytes * 2 / 3);
      });
      EXPECT_EQ(
          count_logged("runs on the machine of rank 0, but as another user or in another network or user "
                       "namespace; they count as different hosts"),
          1U);
    }
  }
}

TEST_F(HostsOfRanks, OtherNamespacesAreNot) {
  if (::geteuid() != 0) GTEST_SKIP() << kNeedsRoot;
  const std::vector<void (*)()> isolations = {
      [] { require(::unshare(CLONE_NEWIPC) == 0, "unshare"); },
      [] { require(::unshare(CLONE_NEWUTS | CLONE_NEWCGROUP) == 0, "unshare"); }, shrink_shared_memory_folder,
      enter_process_namespace};
  for (void (*const isolate)() : isolations) {
    SetUp();
    const auto before_join = [&](uint32_t rank, sluice_options&) {
      if (rank >= 1) isolate();
    };
    expect_sums({0, 0, 0}, 0, before_join, [](uint32_t, uint64_t sent) { return sent == 0; });
    EXPECT_EQ(log_, "");
  }
}

// A host for each such rank, even with a name that others have.
TEST_F(HostsOfRanks, ARankThatCannotSeeWhereItIsSharesNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << kNeedsRoot;
  const auto before_join = [&](uint32_t rank, sluice_options&) {
    if (rank == 0 || rank == 3) hide_proc();
  };
  expect_sums({0, 0, 0, 0}, 1, before_join, [](uint32_t, uint64_t sent) { return sent > 0; });
  EXPECT_EQ(
      count_logged("ranks 0, 3 count as a host each: /proc/sys/kernel/random/boot_id or /proc/self/ns/net "
                   "cannot be read there"),
      1U);
}

TEST_F(HostsOfRanks, OneNameOnTwoMachinesIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << kNeedsRoot;
  expected_exit_ = kRefused;
  for (const size_t reducers : {size_t{1}, size_t{0}}) {
    SetUp();
    expect_sums(
        {0, 0, 0}, reducers,
        [](uint32_t rank, sluice_options&) {
          if (rank == 2) become_another_machine("5ba2cdd5-0e7b-4a9c-a3f2-2b6f7a1f0c11\n");
        },
        [](uint32_t, uint64_t) { return true; });
    EXPECT_EQ(
        count_logged("rank 2 (127.0.0.1) and rank 0 (127.0.0.1) have the same SLUICE_HOST_ID on different "
                     "machines"),
        3U);
  }
}

// The ranks that wait for one that cannot come hear of it in time.
TEST_F(HostsOfRanks, ARankThatCannotMeetTheOthersMakesAllSendTheirData) {
  const std::vector<std::pair<void (*)(), const char*>> cases = {
      {[] { forbid(SYS_socket, AF_UNIX); }, "cannot create a Unix socket"},
      {[] { forbid(SYS_memfd_create); }, "shared memory: "},
      {[] { forbid(SYS_set_robust_list); }, "cannot register robust futexes"},
      {limit_file_sizes, "the limit of file sizes (ulimit -f) is lower"}};
  for (const auto& [forbid_it, reason] : cases) {
    SCOPED_TRACE(reason);
    for (const size_t reducers : {size_t{2}, size_t{0}}) {
      SetUp();
      expect_sums(
          {0, 0, 1, 1}, reducers,
          [&, act = forbid_it](uint32_t rank, sluice_options& o) {
            if (rank >= 2) act();
            o.join_timeout_ms = 6000;
          },
          [](uint32_t, uint64_t sent) { return sent == kBytes; });
      EXPECT_EQ(count_logged("no host shares memory, so each rank sends its data: on the host of rank "), 1U);
      EXPECT_EQ(count_logged(reason), 1U);
    }
  }
  SetUp();
  expect_sums(
      {0, 0, 1, 1}, 0,
      [&](uint32_t rank, sluice_options& o) {
        if (rank == 3) forbid(SYS_socket, AF_UNIX);
        o.join_timeout_ms = 6000;
      },
      [](uint32_t, uint64_t sent) { return sent == kBytes; });
  EXPECT_EQ(count_logged("on the host of rank 3 (127.0.0.1), cannot create a Unix socket"), 1U);
}

// The members of its rail would meet there.
TEST_F(HostsOfRanks, AFirstMemberWithoutAReducerMakesAllSendTheirData) {
  expect_sums(
      {0, 0, 1, 1}, 0,
      [](uint32_t rank, sluice_options&) {
        if (rank == 1) forbid(SYS_listen);
      },
      [](uint32_t, uint64_t sent) { return sent == kBytes; });
  EXPECT_EQ(count_logged(
                "no host shares memory, so each rank sends its data: rank 1 (127.0.0.1) could not start the "
                "reducer"),
            1U);
}

TEST_F(HostsOfRanks, ARankWithoutSharingIsNamedAtOnce) {
  expected_exit_ = kRefused;
  for (const uint32_t differing : {0U, 1U}) {
    for (const size_t reducers : {size_t{1}, size_t{0}}) {
      SetUp();
      const Nanos begun = monotonic_now();
      expect_sums(
          {0, 0}, reducers,
          [&](uint32_t rank, sluice_options&) {
            if (rank == differing) ::setenv("SLUICE_HOSTS", "off", 1);
          },
          [](uint32_t, uint64_t) { return true; });
      EXPECT_LT(monotonic_now() - begun, 10 * kSecond);
      EXPECT_GE(count_logged("set SLUICE_HOSTS and SLUICE_COLOCATED alike on all ranks"), 1U);
    }
  }
}

TEST_F(HostsOfRanks, AnExactRankAmongOthersIsNamed) {
  expected_exit_ = kRefused;
  expect_sums(
      {0, 0, 1, 1}, 1,
      [](uint32_t rank, sluice_options&) {
        if (rank == 2) ::setenv("SLUICE_HOSTS", "exact", 1);
      },
      [](uint32_t, uint64_t) { return true; });
  EXPECT_EQ(count_logged("SLUICE_HOSTS is exact on rank 2 (127.0.0.1), but not on rank 0 (127.0.0.1)"), 4U);
}

TEST_F(HostsOfRanks, RanksWithDifferentListsAreTold) {
  expected_exit_ = kRefused;
  for (const size_t reducers : {size_t{2}, size_t{0}}) {
    SetUp();
    std::string own;
    expect_sums(
        {0, 0, 1}, reducers,
        [&](uint32_t rank, sluice_options& o) {
          o.join_timeout_ms = 1000;
          const std::string list = o.reducers;
          own = rank == 1 ? list.substr(list.find(',') + 1) : list.substr(0, list.find(','));
          o.reducers = own.c_str();
          if (reducers == 0 && rank == 1) ::_exit(kRefused);  // as if it waited elsewhere
        },
        [](uint32_t, uint64_t) { return true; });
    EXPECT_EQ(count_logged("if they run, their list of reducers may differ from this rank's: 127.0.0.1:"),
              reducers == 0 ? 0U : 3U);
    EXPECT_EQ(
        count_logged("rank 1 did not join in time; if they run, they may have a list of reducers, or another "
                     "SLUICE_RENDEZVOUS than 127.0.0.1:"),
        reducers == 0 ? 2U : 0U);
  }
}

TEST_F(HostsOfRanks, MoreRanksThanCanShareMemorySendTheirData) {
  std::vector<uint32_t> hosts(66, 1);
  hosts[0] = 0;
  expect_sums(
      hosts, 1, [](uint32_t, sluice_options&) {}, [](uint32_t, uint64_t sent) { return sent == kBytes; });
  EXPECT_EQ(
      count_logged("no host shares memory, so each rank sends its data: 65 ranks run on the host of rank 1 "
                   "(127.0.0.1); at most 64 can share its memory"),
      1U);
}

// Without a pool, in whichever exchange it leaves: here the others learn of no rank before.
TEST_F(HostsOfRanks, RankZeroThatLeavesTheMeetingPointIsNamed) {
  const ReservedPort port;
  const config::Endpoint at{.host = "127.0.0.1", .port = port.number()};
  engine::Identity identity;
  identity.session.bytes.fill(1), identity.rank = 1, identity.ranks = 2;
  colocated::LocalReducerRequest place;
  place.host = at.host, place.port = at.port, place.session = identity.session, place.job = identity.job;
  auto reducer = colocated::local_reducer_factory({})(place);
  ASSERT_TRUE(reducer) << reducer.error().text;
  auto gather = engine::GatherConnection::open(at, identity, true, monotonic_now() + 10 * kSecond);
  ASSERT_TRUE(gather) << gather.error().text;
  reducer->reset();
  const auto all = gather->gather(0, {}, 10 * kSecond);
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Errc::kPeerLost);
  EXPECT_THAT(all.error().text,
              ::testing::StartsWith("rank 0 lost: it left before all ranks had joined (reducer "));
}

// Without a pool: the memory of this process's reducers is limited.
class MemoryOfHosts : public HostsOfRanks {
 protected:
  // Creates the session as sluice_session_create does. Returns whether hosts share memory.
  static Result<bool> create_with(const sluice_options& options, uint64_t memory_limit) {
    auto o = api::read_options(options);
    if (!o) return tl::unexpected(o.error());
    o->join.colocation.start_reducer = colocated::local_reducer_factory({.memory_limit = memory_limit});
    auto agreement = local::HostAgreement::reach(*o);
    if (!agreement) return tl::unexpected(agreement.error());
    std::unique_ptr<engine::CollectiveSession> session;
    if (!agreement->shares_memory()) return fail(Errc::kInternal, "hosts do not want to share memory");
    auto shared = local::LocalSession::create(*o, *agreement);
    if (!shared) return tl::unexpected(shared.error());
    const bool is_shared = *shared != nullptr;
    if (is_shared) {
      session = std::move(*shared);
    } else {
      agreement->hand_over_reducer(o->join);
      auto flat = engine::Session::create(std::move(*o));
      if (!flat) return tl::unexpected(flat.error());
      session = std::move(*flat);
    }
    if (const Status closed = session->close(monotonic_now() + 10 * kSecond); !closed.ok())
      return fail(closed.code(), session->reason());
    return is_shared;
  }

  void expect(const std::vector<uint32_t>& host_of, uint64_t memory_limit, bool is_shared) {
    run_hosts(
        host_of, 0, [](uint32_t, sluice_session*) { return 0; }, ~0U,
        [&](uint32_t rank, sluice_options& o) {
          const auto created = create_with(o, memory_limit);
          if (!created) std::fprintf(stderr, "rank %u: %s\n", rank, created.error().text.c_str());
          ::_exit(created && *created == is_shared ? 0 : 8);
        });
  }
};

// A session of n ranks needs n + 1 windows of 2 MiB, and so does each rail of n hosts.
TEST_F(MemoryOfHosts, IsReservedForRailsOrForAllRanks) {
  expect({0, 0, 1, 1}, 13 * kMiB, true);
  EXPECT_EQ(log_, "");
}
TEST_F(MemoryOfHosts, ThatIsTooSmallForTheRailsOfOneRankMakesAllSendTheirData) {
  expect({0, 1, 1, 1, 1}, 16 * kMiB, false);
  EXPECT_EQ(count_logged(
                "no host shares memory, so each rank sends its data: on the host of rank 0 (127.0.0.1), the "
                "session needs "),
            1U);
}

}  // namespace
}  // namespace sluice::test
