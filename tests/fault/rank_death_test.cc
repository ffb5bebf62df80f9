// What the other ranks learn when SIGKILL ends a rank at a random moment: while it joins, in its operations,
// or while it closes. Two hosts of four ranks, with a pool of two reducers and without one; some victims have
// 256 MiB of memory, and some ranks have forked children that live on with everything that they inherited.
//
// SLUICE_TEST_DEATHS sets how many ranks die, SLUICE_TEST_SEED which and when; death n of seed s is death 0
// of seed s + n. The distribution of the times is printed, and written to the file SLUICE_TEST_JSON.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "core/log.h"
#include "tests/fault/death_report.h"
#include "tests/fault/pool_process.h"
#include "tests/functional/local_test_bed.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"

namespace sluice::test {
namespace {

constexpr uint32_t kRanksPerHost = 4;
constexpr uint32_t kRanks = 2 * kRanksPerHost;
constexpr size_t kMaxCount = 1 << 20;      // f32 of an operation
constexpr uint32_t kJoinTimeoutMs = 3000;  // what the others wait for a rank that dies unseen
constexpr Nanos kLongest = 15 * kSecond;   // of a busy machine; the report has the times
constexpr unsigned kStuckSeconds = 60;     // then a rank ends itself, which fails the test
constexpr size_t kLargeProcess = 256 * kMiB;

enum class Moment : uint8_t { kJoin, kOperations, kClose };
constexpr std::array kMomentNames = {"join", "operations", "close"};

// What is random about one death.
struct Death {
  explicit Death(uint64_t death_seed) : seed(death_seed) {
    std::mt19937_64 random(seed);
    has_pool = seed % 2 == 0;
    const uint64_t kind = seed / 2 % 3;
    victim_bytes = kind == 1 ? kLargeProcess : 0;
    has_children = kind == 2;
    victim = static_cast<uint32_t>(random() % kRanks);
    const uint64_t share = random() % 100;
    moment = share < 15 ? Moment::kJoin : share < 85 ? Moment::kOperations : Moment::kClose;
    operations = static_cast<uint32_t>(random() % 40);
    // From 1 us to 16 ms, each power of two alike.
    delay = static_cast<Nanos>(1000 * std::exp2(14 * std::uniform_real_distribution<>()(random)));
    if (moment == Moment::kJoin) delay *= 4;
    if (moment == Moment::kClose) delay /= 8;
  }
  [[nodiscard]] std::string setting() const {
    return std::string(has_pool ? "2 reducers" : "no reducer") + (victim_bytes != 0 ? ", 256 MiB" : "") +
           (has_children ? ", children" : "");
  }
  [[nodiscard]] std::string text() const {
    return "seed " + std::to_string(seed) + " (" + setting() + "): rank " + std::to_string(victim) + ", " +
           kMomentNames[static_cast<size_t>(moment)] + ", operation " + std::to_string(operations) + " and " +
           std::to_string(delay / kMicrosecond) + " us";
  }

  uint64_t seed;
  bool has_pool = false, has_children = false;
  size_t victim_bytes = 0;
  uint32_t victim = 0, operations = 0;
  Moment moment = Moment::kJoin;
  Nanos delay = 0;
};

struct RankReport {
  Nanos close_began = 0;
  Nanos at = 0;  // when the first call with an error returned; of a rank without an error, the close
  sluice_status status = SLUICE_OK, closed = SLUICE_OK;
  size_t descriptors_before = 0, descriptors_after = 0;
  bool has_segment = false;  // after the close
  pid_t child = 0;
  std::array<char, 1024> reason{};
};

struct Shared {
  std::atomic<Nanos> killed_at{0};
  std::array<RankReport, kRanks> ranks{};
};

size_t open_descriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(folder), end(folder)));
}

bool maps_segment() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:sluice") != std::string::npos) return true;
  }
  return false;
}

// Class RandomOperations issues the same operations on all ranks.
class RandomOperations {
 public:
  RandomOperations(sluice_session* session, uint64_t seed) : session_(session), random_(seed) {}

  // Runs one to three operations at once. Returns the first error.
  sluice_status run_some() {
    std::vector<sluice_request> requests(1 + random_() % out_.size());
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; i < requests.size() && status == SLUICE_OK; ++i) status = start(out_[i], &requests[i]);
    for (const sluice_request request : requests) {
      if (status == SLUICE_OK) status = sluice_wait(session_, request, -1);
    }
    return status;
  }

 private:
  sluice_status start(std::vector<float>& out, sluice_request* request) {
    const auto count =
        static_cast<size_t>(std::exp2(std::uniform_real_distribution<>(0, std::log2(kMaxCount))(random_)));
    const auto root = static_cast<uint32_t>(random_() % kRanks);
    const size_t part = count / kRanks;
    switch (random_() % 8) {
      case 0:
        return sluice_reduce_scatter_async(session_, in_.data(), out.data(), part, nullptr, SLUICE_F32,
                                           SLUICE_SUM, request);
      case 1:
        return sluice_all_gather_async(session_, in_.data(), out.data(), part, nullptr, SLUICE_F32, request);
      case 2:
        return sluice_reduce_async(session_, in_.data(), out.data(), count, SLUICE_F32, SLUICE_SUM, root,
                                   request);
      case 3: return sluice_broadcast_async(session_, out.data(), count, SLUICE_F32, root, request);
      default:
        return sluice_allreduce_async(session_, in_.data(), out.data(), count, SLUICE_F32, SLUICE_SUM,
                                      request);
    }
  }

  sluice_session* const session_;
  std::mt19937_64 random_;
  std::vector<float> in_ = std::vector<float>(kMaxCount, 1);
  std::array<std::vector<float>, 3> out_ = {in_, in_, in_};
};

class RankDeath : public LocalTestBed {
 protected:
  void SetUp() override {
    LocalTestBed::SetUp();
    ::setenv("SLUICE_HOSTS", "auto", 1);
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = static_cast<Shared*>(memory);
    // The children of dead ranks become children of this process, so that they can be waited for.
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  }
  void TearDown() override {
    ::munmap(shared_, sizeof(Shared));
    ::unsetenv("SLUICE_HOSTS");
    ::unsetenv("SLUICE_RENDEZVOUS");
  }

  // The kernel sends SIGKILL to this process after `delay`.
  void die_after(Nanos delay) const {
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    timer_t timer{};
    if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) ::_exit(2);
    const Nanos at = monotonic_now() + delay;
    shared_->killed_at = at;
    itimerspec when{};
    when.it_value = {.tv_sec = at / kSecond, .tv_nsec = at % kSecond};
    if (::timer_settime(timer, TIMER_ABSTIME, &when, nullptr) != 0) ::_exit(2);
  }

  static pid_t fork_child() {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, 0);
      while (true) ::pause();
    }
    return child;
  }

  void run_rank(uint32_t rank, const Death& death, const std::string& reducers) const {
    ::alarm(kStuckSeconds);
    log::set_sink([](log::Level, std::string_view) noexcept {});  // each death causes many warnings
    ::setenv("SLUICE_HOST_ID", ("host" + std::to_string(rank / kRanksPerHost)).c_str(), 1);
    RankReport& report = shared_->ranks[rank];
    const bool dies = rank == death.victim;
    sluice_options o = options_for(rank, kRanks);
    o.reducers = reducers.c_str();
    o.join_timeout_ms = kJoinTimeoutMs;
    const std::vector<char> memory(dies ? death.victim_bytes : 0, 1);
    report.descriptors_before = open_descriptors();
    if (dies && death.moment == Moment::kJoin) die_after(death.delay);
    const Created c = create_session(o);
    report.status = c.status;
    if (c.status == SLUICE_OK) {
      if (death.has_children) report.child = fork_child();
      run_operations(c.session, death, dies, report);
    } else {
      report.at = monotonic_now();
      set_reason(report, c.error);
    }
    report.descriptors_after = open_descriptors();
    report.has_segment = maps_segment();
  }

  void run_operations(sluice_session* session, const Death& death, bool dies, RankReport& report) const {
    RandomOperations operations(session, death.seed);
    for (uint32_t i = 0; report.status == SLUICE_OK; ++i) {
      if (i == death.operations) {
        if (dies && death.moment != Moment::kJoin) die_after(death.delay);
        if (death.moment == Moment::kClose) break;
      }
      report.status = operations.run_some();
    }
    report.at = monotonic_now();
    if (report.status != SLUICE_OK) set_reason(report, reason_of(session));
    report.close_began = monotonic_now();
    report.closed = sluice_session_close(session);
    if (report.status == SLUICE_OK) report.at = monotonic_now();
  }

  static void set_reason(RankReport& report, const std::string& text) {
    text.copy(report.reason.data(), report.reason.size() - 1);
  }

  // Returns false if the victim had closed before it was killed.
  bool run_death(const Death& death, const PoolProcess& pool) {
    LocalTestBed::SetUp();
    ::setenv("SLUICE_HOSTS", "auto", 1);
    new (shared_) Shared;
    if (!death.has_pool) meet_at_free_port();
    std::array<pid_t, kRanks> processes{};
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      processes[rank] = ::fork();
      if (processes[rank] != 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      run_rank(rank, death, death.has_pool ? pool.list() : "none");
      ::_exit(0);
    }
    bool died = false;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      int exited = 0;
      EXPECT_EQ(::waitpid(processes[rank], &exited, 0), processes[rank]);
      if (rank == death.victim) died = WIFSIGNALED(exited) && WTERMSIG(exited) == SIGKILL;
      EXPECT_TRUE(exited == 0 || (rank == death.victim && died)) << "rank " << rank << ": " << exited;
    }
    for (const RankReport& report : shared_->ranks) {
      if (report.child > 0) ::kill(report.child, SIGKILL);
      EXPECT_TRUE(report.child <= 0 || ::waitpid(report.child, nullptr, 0) == report.child);
    }
    if (died) check_others(death);
    return died;
  }

  static void meet_at_free_port() {
    const auto listener = transport::tcp::listen_on("127.0.0.1", 0, {});
    ASSERT_TRUE(listener.has_value());
    const uint16_t port = transport::tcp::bound_port(listener->fd()).value();
    ::setenv("SLUICE_RENDEZVOUS", ("127.0.0.1:" + std::to_string(port)).c_str(), 1);
  }

  void check_others(const Death& death) const {
    const std::string victim = "ranks? " + std::to_string(death.victim) + "([^0-9]|$)";
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      if (rank == death.victim) continue;
      const RankReport& r = shared_->ranks[rank];
      const std::string reason = r.reason.data();
      SCOPED_TRACE("rank " + std::to_string(rank) + ": " + sluice_status_string(r.status) + ", " + reason);
      if (death.moment == Moment::kClose && r.status == SLUICE_OK) {
        // It had all results, and needed the victim no more or lost it while it closed. What a forked child
        // holds open ends with the time limit of a close.
        EXPECT_THAT(r.closed, ::testing::AnyOf(SLUICE_OK, SLUICE_LOST, SLUICE_TIMEOUT));
      } else {
        const bool is_unseen = death.moment == Moment::kJoin && r.status == SLUICE_TIMEOUT;
        if (!is_unseen) {
          EXPECT_EQ(r.status, SLUICE_LOST);
        }
        // Without reducers the ranks meet at rank 0, whose address is all that they know.
        const bool is_meeting_point = is_unseen && death.victim == 0 && !death.has_pool;
        EXPECT_THAT(reason,
                    ::testing::ContainsRegex(is_meeting_point ? "cannot connect to|" + victim : victim));
      }
      EXPECT_LT(r.at - shared_->killed_at, kLongest);
      EXPECT_LE(r.descriptors_after, r.descriptors_before);
      EXPECT_FALSE(r.has_segment);
    }
  }

  void add_to(DeathReport& out, const Death& death) const {
    std::vector<double> same_host, other_host;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const RankReport& r = shared_->ranks[rank];
      if (rank == death.victim) continue;
      if (r.status == SLUICE_TIMEOUT) {
        out.count_unseen();  // it died before another rank knew its process
        return;
      }
      if (r.status == SLUICE_OK) {  // closed with all results; waits for a victim that might need one
        const Nanos since = std::max(shared_->killed_at.load(), r.close_began);
        out.add_close(1e-6 * static_cast<double>(std::max<Nanos>(r.at - since, 0)));
        continue;
      }
      const bool is_same_host = rank / kRanksPerHost == death.victim / kRanksPerHost;
      (is_same_host ? same_host : other_host)
          .push_back(1e-6 * static_cast<double>(r.at - shared_->killed_at));
    }
    const auto longest = [](const std::vector<double>& ms) {
      return ms.empty() ? 0 : *std::ranges::max_element(ms);
    };
    if (longest(same_host) > DeathReport::kMostOnHostMs ||
        longest(other_host) > DeathReport::kMostElsewhereMs) {
      std::fprintf(stderr, "# late: %s: %.1f ms on its host, %.1f ms on the other\n", death.text().c_str(),
                   longest(same_host), longest(other_host));
    }
    out.add(death.setting(), kMomentNames[static_cast<size_t>(death.moment)], same_host, other_host);
  }

  Shared* shared_ = nullptr;
};

uint64_t number_of_environment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::stoull(text) : otherwise;
}

TEST_F(RankDeath, AtRandomMoments) {
  const uint64_t deaths = number_of_environment("SLUICE_TEST_DEATHS", 60);
  const uint64_t seed = number_of_environment("SLUICE_TEST_SEED", std::random_device()());
  std::printf("SLUICE_TEST_SEED=%llu SLUICE_TEST_DEATHS=%llu\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(deaths));
  const PoolProcess pool(2);
  DeathReport report(seed);
  uint64_t died = 0;
  // A victim that has closed in time does not count.
  for (uint64_t n = 0; died < deaths && !HasFailure(); ++n) {
    const Death death(seed + n);
    SCOPED_TRACE(death.text());
    const bool is_dead = run_death(death, pool);
    EXPECT_TRUE(pool.wait_until_idle()) << "a reducer holds a session of ended ranks";
    if (!is_dead) continue;
    if (++died % 50 == 0) std::fprintf(stderr, "# %llu deaths\n", static_cast<unsigned long long>(died));
    add_to(report, death);
  }
  report.print();
  if (const char* const path = std::getenv("SLUICE_TEST_JSON")) report.write(path);
}

}  // namespace
}  // namespace sluice::test
