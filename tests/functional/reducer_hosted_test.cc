// A reducer inside a worker process: it serves one job and the sessions that its host expects, and refuses
// all other clients before it reserves memory.
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "core/instrumented.h"
#include "core/log.h"
#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

constexpr std::array kPurposes = {wire::Purpose::kControl, wire::Purpose::kLane,   wire::Purpose::kStatus,
                                  wire::Purpose::kVerdict, wire::Purpose::kGather, wire::Purpose::kDrain};

constexpr uint64_t kLinkRate = 25'000'000'000;

class ReducerHosted : public ReducerTest {
 protected:
  static reducer::ReducerOptions hosted_options() {
    auto options = test_options();
    options.lanes = 1;
    options.lanes_per_session = 1;
    options.job = "own";
    options.token = token("own");
    options.only_expected_sessions = true;
    options.hosted = true;
    options.link_rate = kLinkRate;
    return options;
  }
  static wire::Digest token(const std::string& job) {
    return wire::job_token(std::as_bytes(std::span("a key of thirty-two bytes, or so")), job);
  }
  // A rank of the job that the reducer serves.
  static Shape own(uint8_t session) {
    return {.session = session_id(session), .ranks = 2, .token = token("own"), .job = "own"};
  }

  void SetUp() override {
    start(hosted_options());
    reducer->expect_session(session_id(1), 4);
  }
  // The expected session works, whatever happened before.
  void TearDown() override {
    if (HasFatalFailure()) return;
    auto ranks = start_session(port(), own(1));
    expect_sums(ranks, 0);
    for (auto& rank : ranks) rank.leave();
  }

  // The answer to the HELLO itself.
  [[nodiscard]] wire::Refused refusal_of(const wire::Hello& hello) const {
    ScriptedConnection c(port());
    c.send(hello);
    return c.expect<wire::Refused>();
  }
  void expect_nothing_reserved(const char* reason, uint64_t refused) const {
    const auto now = status();
    EXPECT_EQ(now["refused"].value(reason, uint64_t{0}), refused);
    EXPECT_EQ(now["sessions"]["begun"], 0);
    EXPECT_EQ(now["memory"]["reserved_bytes"], 0);
  }
};

TEST_F(ReducerHosted, RefusesAnotherJobAtItsHello) {
  for (const auto purpose : kPurposes) {
    for (const char* job : {"other", ""}) {
      const auto refused = refusal_of({.purpose = purpose, .ranks = 2, .session = session_id(1), .job = job});
      EXPECT_EQ(refused.code, Errc::kUnauthenticated);
      EXPECT_THAT(refused.text, HasSubstr("serves a single job"));
    }
  }
  expect_nothing_reserved("unauthenticated", 2 * kPurposes.size());
}

size_t open_null_files() {
  size_t count = 0;
  std::error_code closed;  // the one that lists the folder
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    count += std::filesystem::read_symlink(entry.path(), closed) == "/dev/null" ? 1 : 0;
  return count;
}

TEST_F(ReducerHosted, HoldsOneDescriptorOfTheProcessBack) {
  const size_t with_one = open_null_files();
  auto options = hosted_options();
  options.hosted = false;
  const auto other = reducer::Reducer::start(options);
  ASSERT_TRUE(other);
  EXPECT_EQ(open_null_files(), with_one + 8);
  const auto second = reducer::Reducer::start(hosted_options());
  ASSERT_TRUE(second);
  EXPECT_EQ(open_null_files(), with_one + 9);
}

TEST_F(ReducerHosted, RefusesAnUnexpectedSessionAtItsHello) {
  for (const auto purpose : kPurposes) {
    const auto refused = refusal_of({.purpose = purpose, .ranks = 2, .session = session_id(2), .job = "own"});
    EXPECT_EQ(refused.code, Errc::kUnknownSession);
    EXPECT_THAT(refused.text, HasSubstr("does not expect session " + to_string(session_id(2))));
  }
  expect_nothing_reserved("unknown_session", kPurposes.size());
}

TEST_F(ReducerHosted, RefusesAStrangerAndAWrongToken) {
  for (const auto& presented : {std::optional<wire::Digest>(), std::optional(token("other"))}) {
    Shape shape = own(1);
    shape.token = presented;
    EXPECT_EQ(refusal(shape).code, Errc::kUnauthenticated);
    ScriptedMember lane(port(), shape);
    auto connection = lane.request_lane(0);
    EXPECT_EQ(connection.expect<wire::Refused>().code, Errc::kUnauthenticated);
    ScriptedConnection query(port());
    query.handshake({.purpose = wire::Purpose::kStatus, .session = session_id(1), .job = "own"});
    query.send(wire::StatusQuery{.mac = presented ? query.proof(*presented, 0) : wire::Mac{}});
    EXPECT_EQ(query.expect<wire::Refused>().code, Errc::kUnauthenticated);
  }
  expect_nothing_reserved("unauthenticated", 6);
}

TEST_F(ReducerHosted, ProvesTheTokenToItsClients) {
  ScriptedConnection c(port());
  const wire::Hello hello{.purpose = wire::Purpose::kStatus, .session = session_id(1), .job = "own"};
  const auto welcome = c.handshake(hello);
  EXPECT_EQ(welcome.link_rate, kLinkRate);
  EXPECT_EQ(status()["link_rate"], kLinkRate);
  EXPECT_EQ(welcome.mac, wire::server_proof(token("own"), hello, welcome));
}

TEST_F(ReducerHosted, AForgottenSessionMayFinishButNotBegin) {
  reducer->expect_session(session_id(3), 4);
  auto running = start_session(port(), own(3));
  reducer->forget_session(session_id(3));
  EXPECT_EQ(refusal_of({.session = session_id(3), .job = "own"}).code, Errc::kUnknownSession);
  expect_sums(running, 0);
  for (auto& rank : running) rank.leave();
}

// What a process holds while no reducer runs.
struct Held {
  size_t threads = 0, descriptors = 0, heap_bytes = 0, mapped_bytes = 0;

  static size_t entries(const char* folder) {
    const std::filesystem::directory_iterator all(folder);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
  static Held now() {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return {.threads = entries("/proc/self/task"),
            .descriptors = entries("/proc/self/fd"),
            .heap_bytes = mallinfo2().uordblks,
            .mapped_bytes = pages * static_cast<size_t>(sysconf(_SC_PAGE_SIZE))};
  }
};

TEST_F(ReducerHosted, StartsAndStopsManyTimesAndLeavesNothingBehind) {
  const auto cycle = [this](int number) {
    reducer.reset();
    start(hosted_options());
    reducer->expect_session(session_id(1), 4);
    if (number % 4 == 0) return;
    auto ranks = start_session(port(), own(1));
    expect_sums(ranks, 0);
    if (number % 4 == 1) return;  // the connections break
    if (number % 4 == 2) return reducer->stop();
    for (auto& rank : ranks) rank.leave();
  };
  for (int i = 0; i < 20; ++i) cycle(i);  // fills caches and arenas
  reducer.reset();
  const Held before = Held::now();
  for (int i = 0; i < 200; ++i) cycle(i);
  reducer.reset();
  // The kernel lists a thread for a moment after its join.
  const Nanos deadline = monotonic_now() + 10 * kSecond;
  while (Held::now().threads > before.threads && monotonic_now() < deadline) std::this_thread::yield();
  const Held after = Held::now();
  EXPECT_LE(after.threads, before.threads);  // the same moment may follow the earlier joins
  EXPECT_EQ(after.descriptors, before.descriptors);
  // A sanitizer finds leaks itself, and keeps freed memory.
  if (SLUICE_INSTRUMENTED == 0) {
    EXPECT_LT(after.heap_bytes, before.heap_bytes + 200 * 256);
    EXPECT_LT(after.mapped_bytes, before.mapped_bytes + 200 * 64 * kKiB);
  }
  SetUp();
}

// A training process may have used up its descriptors, which must not end it.
TEST_F(ReducerHosted, AStartWithoutDescriptorsIsAnErrorAndLeavesNothingBehind) {
  // To check the type of an exception, the sanitizer opens a pipe.
  if (SLUICE_INSTRUMENTED != 0) GTEST_SKIP() << "left out: the sanitizer itself needs descriptors";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const Held held = Held::now();
  const int free_one = dup(STDIN_FILENO);
  ASSERT_GE(free_one, 0);
  close(free_one);
  const auto lowest_free = static_cast<rlim_t>(free_one);
  int failed = 0;
  for (rlim_t more = 0; more < 32; ++more) {
    const rlimit limit{.rlim_cur = lowest_free + more, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    auto started = reducer::Reducer::start(hosted_options());
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (started) break;
    ++failed;
    EXPECT_EQ(started.error().code, Errc::kSystem) << started.error().text;
    EXPECT_EQ(Held::now().descriptors, held.descriptors) << started.error().text;
  }
  EXPECT_GT(failed, 3);
  EXPECT_LT(failed, 32);
}

std::atomic<int> normal_lines = 0;  // global, because a log sink is a plain function
std::string hosted_warning;

TEST_F(ReducerHosted, LogsWarningsOnly) {
  normal_lines = 0;
  log::set_sink([](log::Level level, std::string_view line) noexcept {
    if (level < log::Level::kWarn) ++normal_lines;
    // Not that the process was stopped.
    if (level == log::Level::kWarn && line.find("session") != line.npos) hosted_warning = line;
  });
  reducer->expect_session(session_id(4), 4);
  auto ranks = start_session(port(), own(4));
  ranks[0].control.close();
  EXPECT_EQ(ranks[1].control.expect<wire::Abort>().code, Errc::kPeerLost);
  EXPECT_TRUE(eventually_empty());
  log::set_sink(nullptr);
  EXPECT_EQ(normal_lines, 0);
  EXPECT_THAT(hosted_warning, testing::MatchesRegex("co-located reducer: session .* failed: .*"));
}

reducer::ReducerOptions on_all_addresses() {
  reducer::ReducerOptions options;
  options.listen_host = "";
  options.listen_port = 0;
  options.lanes = 1;
  return options;
}

TEST(ReducerHostedStart, NeedsNoKeyFileOffLoopback) {
  auto with_token = on_all_addresses();
  with_token.job = "";  // the default job
  with_token.token = wire::Digest{};
  EXPECT_TRUE(reducer::Reducer::start(with_token));
  auto with_sessions = on_all_addresses();
  with_sessions.only_expected_sessions = true;
  EXPECT_TRUE(reducer::Reducer::start(with_sessions));
  EXPECT_FALSE(reducer::Reducer::start(on_all_addresses()));
}

TEST(ReducerHostedStart, ServesTheDefaultJobByItsName) {
  auto options = on_all_addresses();
  options.job = "";
  options.token = wire::Digest{};
  const auto reducer = reducer::Reducer::start(options);
  ASSERT_TRUE(reducer) << reducer.error().text;
  for (const char* job : {"", "default"}) {
    ScriptedConnection c((*reducer)->port());
    EXPECT_EQ(c.handshake({.purpose = wire::Purpose::kStatus, .job = job}).proof, 1);
  }
}

TEST(ReducerHostedStart, SendsNoLinkRateThatItDoesNotKnow) {
  reducer::ReducerOptions options;
  options.listen_port = 0;  // on loopback
  options.lanes = 1;
  const auto reducer = reducer::Reducer::start(options);
  ASSERT_TRUE(reducer) << reducer.error().text;
  ScriptedConnection c((*reducer)->port());
  EXPECT_FALSE(c.handshake({.purpose = wire::Purpose::kStatus}).link_rate);
}

TEST(ReducerHostedStart, RefusesContradictingOptions) {
  auto options = on_all_addresses();
  options.token = wire::Digest{};
  auto refused = reducer::check_options(options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("a token needs the job"));
  options.job = "own";
  options.key_file = "/nonexistent/key";
  refused = reducer::check_options(options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("exclude each other"));
  options.key_file.clear();
  options.job = std::string(wire::kMaxJobText + 1, 'j');
  EXPECT_FALSE(reducer::check_options(options));
  options.job = "own";
  EXPECT_TRUE(reducer::check_options(options));
  options.link_rate = 25;
  refused = reducer::check_options(options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("rate of 25 bit/s"));
}

}  // namespace
}  // namespace sluice::test
