// Clients that connect to a reducer and prove nothing: they take a bounded number of connections, and keep no
// rank out.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <deque>
#include <filesystem>

#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

// Class Flood is a process that opens 500 silent connections per second and keeps the last 500. It begins
// with the port, so that it can be forked before a thread runs.
class Flood {
 public:
  Flood() {
    if (::pipe(port_.data()) != 0) throw std::runtime_error("pipe");
    process_ = ::fork();
    if (process_ == 0) run();
  }
  ~Flood() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    for (const int end : port_) ::close(end);
  }
  void begin(uint16_t port) const { ASSERT_EQ(::write(port_[1], &port, sizeof port), ssize_t{sizeof port}); }

 private:
  [[noreturn]] void run() const noexcept {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    uint16_t port = 0;
    if (::read(port_[0], &port, sizeof port) != ssize_t{sizeof port}) ::_exit(1);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::array<int, 500> kept{};
    kept.fill(-1);
    for (size_t i = 0;; ++i) {
      int& at = kept[i % kept.size()];
      if (at >= 0) ::close(at);
      at = ::socket(AF_INET, SOCK_STREAM, 0);
      static_cast<void>(::connect(at, reinterpret_cast<const sockaddr*>(&to), sizeof to));
      ::poll(nullptr, 0, 2);
    }
  }

  std::array<int, 2> port_{};
  pid_t process_ = 0;
};

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

class Strangers : public ReducerTest {
 protected:
  static wire::Hello status_hello() { return {.purpose = wire::Purpose::kStatus, .session = session_id(1)}; }
};

// The budget is that of docs/guides/secure.md.
TEST_F(Strangers, LeaveAHostedReducerWithinItsBudgetAndItsRanksIn) {
  constexpr size_t kRanks = 2;
  constexpr size_t kBudget = 64 + 5 * kRanks;
  constexpr size_t kOfTheRanks = 2 * kRanks;  // the other ends, which this process has too
  const Flood flood;
  auto options = test_options();
  options.lanes = options.lanes_per_session = 1;
  options.only_expected_sessions = options.hosted = true;
  const size_t before = open_descriptors();
  start(options);
  reducer->expect_session(session_id(1), kRanks);
  reducer->expect_session(session_id(2), kRanks);
  reducer->forget_session(session_id(2));
  flood.begin(port());
  const auto accepted = [&] { return status()["connections"]["accepted"].get<uint64_t>(); };
  ASSERT_TRUE(eventually([&](const nlohmann::json&) { return accepted() > 200; }, 20 * kSecond));
  auto ranks = start_session(port(), {.session = session_id(1), .ranks = kRanks});
  size_t most = 0;
  for (uint64_t sequence = 0; sequence < 50 || accepted() < 600; ++sequence) {
    expect_sums(ranks, sequence);
    most = std::max(most, open_descriptors());
  }
  EXPECT_LE(most, before + kBudget + kOfTheRanks);
  const auto now = status();
  EXPECT_EQ(now["connections"]["limit"], 32 + 4 * kRanks);
  EXPECT_LE(now["connections"]["unproved"], now["connections"]["unproved_limit"]);
  EXPECT_GT(now["closed"]["too_many"], 300);
  for (auto& rank : ranks) rank.leave();
}

TEST_F(Strangers, ThatAreSilentGoBeforeClientsInTheHandshake) {
  auto options = test_options();
  options.max_unproved_connections = 4;
  start(options);
  std::vector<ScriptedConnection> asked;
  for (int i = 0; i < 3; ++i) asked.emplace_back(port()).handshake(status_hello());
  std::deque<ScriptedConnection> silent;
  for (int i = 0; i < 50; ++i) silent.emplace_back(port());
  ASSERT_TRUE(eventually_counted("closed", "too_many", 49));
  const auto told = silent.front().expect<wire::Refused>();
  EXPECT_EQ(told.code, Errc::kTooMany);
  EXPECT_THAT(told.text, HasSubstr("the reducer serves at most 4 of them"));
  for (int i = 0; i < 49; ++i) EXPECT_TRUE(silent[static_cast<size_t>(i)].closed_within(10 * kSecond));
  for (auto& c : asked) {
    c.send(wire::StatusQuery{});
    static_cast<void>(c.expect<wire::StatusReply>());
  }
}

TEST_F(Strangers, ThatSayHelloGiveWayToNewerOnes) {
  auto options = test_options();
  options.max_unproved_connections = 4;
  start(options);
  std::deque<ScriptedConnection> asked;
  for (int i = 0; i < 20; ++i) asked.emplace_back(port()).handshake(status_hello());
  EXPECT_THAT(asked.front().expect<wire::Refused>().text, HasSubstr("it has proved nothing yet"));
  asked.back().send(wire::StatusQuery{});
  static_cast<void>(asked.back().expect<wire::StatusReply>());
}

// As a rank on a slow path: there is a moment between its connect and its HELLO.
TEST_F(Strangers, ThatSayHelloDoNotDisplaceAClientThatIsAboutTo) {
  auto options = test_options();
  options.max_unproved_connections = 16;
  start(options);
  std::deque<ScriptedConnection> strangers;
  for (int i = 0; i < 16; ++i) strangers.emplace_back(port()).handshake(status_hello());
  ScriptedConnection client(port());
  for (int i = 0; i < 15; ++i) strangers.emplace_back(port()).handshake(status_hello());
  client.handshake(status_hello());
  client.send(wire::StatusQuery{});
  static_cast<void>(client.expect<wire::StatusReply>());
}

// A refused client may stay until the linger deadline.
TEST_F(Strangers, ThatWereRefusedAreCountedToo) {
  auto options = test_options();
  options.only_expected_sessions = true;
  options.max_unproved_connections = 4;
  options.linger_timeout = 60 * kSecond;
  start(options);
  reducer->expect_session(session_id(1), 2);
  ScriptedConnection asked(port());
  asked.handshake(status_hello());
  std::deque<ScriptedConnection> refused;
  for (int i = 0; i < 20; ++i) {
    refused.emplace_back(port()).send(wire::Hello{.session = session_id(9)});
    EXPECT_EQ(refused.back().expect<wire::Refused>().code, Errc::kUnknownSession);
  }
  EXPECT_LE(status()["connections"]["open"], 4);
  asked.send(wire::StatusQuery{});
  static_cast<void>(asked.expect<wire::StatusReply>());
}

TEST_F(Strangers, DoNotDisplaceWhoHasProvedItself) {
  auto options = test_options();
  options.max_connections = options.max_unproved_connections = 6;
  start(options);
  auto ranks = start_session(port(), {.session = session_id(1), .ranks = 4});
  std::deque<ScriptedConnection> silent;
  for (int i = 0; i < 50; ++i) silent.emplace_back(port());
  ASSERT_TRUE(eventually_counted("closed", "too_many", 48));
  expect_sums(ranks, 0);
  for (auto& rank : ranks) rank.leave();
}

// Jobs that fill the limit do not keep the reducers of a pool from each other.
TEST_F(Strangers, AndJobsLeaveReducersTheirPlaces) {
  std::atomic<int> taken = 0;
  auto options = test_options();
  options.max_connections = 2;
  options.on_store_connection = [&](auto, const auto&, const std::string& job, auto&&...) {
    taken += job == wire::kReducerJob ? 1 : 0;
  };
  start(options);
  std::deque<ScriptedConnection> of_job, strangers;
  for (uint32_t rank = 0; rank < 2; ++rank) {  // they wait for a third rank
    of_job.emplace_back(port()).handshake({.purpose = wire::Purpose::kGather, .rank = rank, .ranks = 3});
    of_job.back().send(wire::Gather{.round = 1, .timeout_ms = 20'000, .data = {}, .mac = {}});
  }
  ASSERT_TRUE(eventually([](const nlohmann::json& j) { return j["connections"]["unproved"] == 0; }));
  const wire::Hello of_reducer{.purpose = wire::Purpose::kStore, .job = wire::kReducerJob};
  for (int i = 0; i < 300; ++i) strangers.emplace_back(port()).handshake(of_reducer);
  ScriptedConnection more(port());
  more.send(status_hello());
  EXPECT_THAT(more.expect<wire::Refused>().text,
              HasSubstr("the reducer serves its maximum of 2 connections"));
  ScriptedConnection link(port());
  link.handshake(of_reducer);
  link.send(wire::StoreRequest{});
  EXPECT_TRUE(eventually([&](const nlohmann::json&) { return taken == 1; }));
}

}  // namespace
}  // namespace sluice::test
