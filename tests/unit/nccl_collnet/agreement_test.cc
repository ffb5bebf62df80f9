#include "nccl_plugin/collnet/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <thread>

#include "core/clock.h"

namespace sluice::nccl::collnet {
namespace {

using ::testing::HasSubstr;
using transport::tcp::Socket;

// Nodes of one communicator, each on a thread of its own.
class AgreementTest : public ::testing::Test {
 protected:
  void SetUp() override { make_nodes(); }
  void make_nodes() {
    nodes_.clear();
    listeners_.clear();
    for (uint32_t i = 0; i < kNodes; ++i) {
      auto socket = transport::tcp::listen_on("127.0.0.1", 0, {});
      ASSERT_TRUE(socket);
      Contact c{
          .identity = {}, .address = "127.0.0.1", .port = transport::tcp::bound_port(socket->fd()).value()};
      c.identity[0] = static_cast<uint8_t>(i + 1);
      nodes_.push_back(c);
      listeners_.push_back(std::move(*socket));
    }
  }

  static Result<void> fine(uint32_t) { return {}; }
  static std::string one_list(uint32_t) { return "r1,r2"; }
  static constexpr Patience kPatience{.call = 10 * kSecond, .late = 20 * kSecond};

  [[nodiscard]] std::string outcome_of(uint32_t rank, const Patience& patience, const Result<void>& mine = {},
                                       const std::string& common = "r1,r2") {
    auto a = Agreement::gather({.nodes = nodes_,
                                .rank = rank,
                                .session = session_of(nodes_),
                                .common = common,
                                .local_address = "127.0.0.1"},
                               std::move(listeners_[rank]), patience);
    if (!a) return a.error().text;
    const auto all = a->decide(mine, monotonic_now() + 20 * kSecond);
    a->part(monotonic_now() + 20 * kSecond);
    return all ? "yes" : all.error().text;
  }

  // What each node came to. `missing` does not come at all.
  std::vector<std::string> run(const std::function<Result<void>(uint32_t)>& mine, uint32_t missing = kNodes,
                               const std::function<std::string(uint32_t)>& common = one_list,
                               const Patience& patience = kPatience) {
    std::vector<std::string> outcome(kNodes, "?");
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kNodes; ++rank) {
      if (rank == missing) continue;
      threads.emplace_back(
          [&, rank] { outcome[rank] = outcome_of(rank, patience, mine(rank), common(rank)); });
    }
    for (auto& t : threads) t.join();
    if (missing < kNodes) outcome.erase(outcome.begin() + missing);
    return outcome;
  }

  // Until somebody has called this node, which does not answer yet: the others wait for it.
  void until_called(uint32_t rank) {
    pollfd p{.fd = listeners_[rank].fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&p, 1, 20'000), 1);
  }
  // As until_called(), and then `late` does.
  std::vector<std::string> run_with_late(uint32_t late, const std::function<std::string()>& then) {
    std::string of_late;
    std::thread thread([&] {
      until_called(late);
      of_late = then();
    });
    auto outcome = run(fine, late, one_list, {.call = 100 * kMillisecond, .late = 20 * kSecond});
    thread.join();
    outcome.push_back(of_late);
    return outcome;
  }

  static constexpr uint32_t kNodes = 5;
  std::vector<Contact> nodes_;
  std::vector<Socket> listeners_;
};

TEST_F(AgreementTest, SucceedsWhenAllSucceed) {
  EXPECT_THAT(run(fine), ::testing::Each("yes"));
}

TEST_F(AgreementTest, FailsOnAllWithTheWordsOfTheLowestThatFailed) {
  const auto outcome = run([](uint32_t rank) -> Result<void> {
    if (rank == 2 || rank == 4)
      return fail(Errc::kTimeout, "reducer b does not answer " + std::to_string(rank));
    return {};
  });
  EXPECT_THAT(outcome, ::testing::Each("node 2 (127.0.0.1): reducer b does not answer 2"));
}

TEST_F(AgreementTest, FailsOnAllWhenTheLeaderFails) {
  EXPECT_THAT(run([](uint32_t rank) -> Result<void> {
                if (rank == 0) return fail(Errc::kSystem, "no memory");
                return {};
              }),
              ::testing::Each("node 0 (127.0.0.1): no memory"));
}

TEST_F(AgreementTest, NamesANodeThatLivesAndDoesNotCome) {
  EXPECT_THAT(run(fine, 3, one_list, {.call = 100 * kMillisecond, .late = kSecond}),
              ::testing::Each("node 3 (127.0.0.1) did not come in time (SLUICE_JOIN_TIMEOUT is 1s)"));
}

TEST_F(AgreementTest, WaitsForTheLeaderAsForAnyOther) {
  for (const uint32_t late : {0U, 3U}) {
    if (late != 0) make_nodes();
    const auto punctual = [&] { return outcome_of(late, kPatience); };
    EXPECT_THAT(run_with_late(late, punctual), ::testing::Each("yes")) << late;
  }
}

TEST_F(AgreementTest, EndsAtTheDeadlineForTheLeaderAsForAnyOther) {
  for (const uint32_t late : {0U, 3U}) {
    if (late != 0) make_nodes();
    const Nanos begin = monotonic_now();
    const auto outcome = run(fine, late, one_list, {.call = 100 * kMillisecond, .late = kSecond});
    // How long a hello has lain there is told in ticks of the kernel, 10 ms at most.
    EXPECT_GE(monotonic_now() - begin, kSecond - 20 * kMillisecond);
    EXPECT_THAT(outcome,
                ::testing::Each(::testing::StartsWith(late == 0 ? "no word from node 0" : "node 3")));
    // All others have given up; it is told so at once.
    const Nanos came = monotonic_now();
    EXPECT_THAT(outcome_of(late, {.call = 20 * kSecond, .late = 60 * kSecond}),
                HasSubstr(late == 0 ? "node 0 (127.0.0.1) came too late" : "agreement with node 0"))
        << late;
    EXPECT_LT(monotonic_now() - came, 10 * kSecond);
  }
}

TEST_F(AgreementTest, TakesTheSmallestPatience) {
  std::string impatient;
  std::thread node([&] { impatient = outcome_of(1, {.call = 100 * kMillisecond, .late = kSecond}); });
  until_called(0);
  EXPECT_THAT(outcome_of(0, {.call = 100 * kMillisecond, .late = 60 * kSecond}), HasSubstr("node 2"));
  node.join();
  EXPECT_THAT(impatient, HasSubstr("node 2 (127.0.0.1) did not come in time"));
}

TEST_F(AgreementTest, DoesNotWaitForANodeThatIsGone) {
  // The leader is called at once, the others when they have been missed for as long as a call may take.
  const struct {
    uint32_t rank;
    Nanos call;
    const char* words;
  } nodes[] = {{0, 20 * kSecond, "agreement with node 0 (127.0.0.1): cannot connect"},
               {3, 100 * kMillisecond, "node 3 (127.0.0.1) is gone: cannot connect"}};
  for (const auto& gone : nodes) {
    if (gone.rank != 0) make_nodes();
    listeners_[gone.rank] = Socket();
    EXPECT_THAT(run(fine, gone.rank, one_list, {.call = gone.call, .late = 3600 * kSecond}),
                ::testing::Each(HasSubstr(gone.words)));
  }
}

TEST_F(AgreementTest, DoesNotWaitForANodeThatGoesAwayMeanwhile) {
  for (const uint32_t goes : {0U, 3U}) {
    if (goes != 0) make_nodes();
    auto outcome = run_with_late(goes, [&] {
      listeners_[goes] = Socket();
      return "gone";
    });
    outcome.pop_back();
    EXPECT_THAT(outcome,
                ::testing::Each(HasSubstr(goes == 0 ? "node 0 (127.0.0.1)" : "node 3 (127.0.0.1) is gone")));
  }
}

TEST_F(AgreementTest, ShowsBothListsWhereTheyDiffer) {
  const auto outcome = run(fine, kNodes, [](uint32_t rank) { return rank == 1 ? "r1" : "r1,r2"; });
  EXPECT_THAT(
      outcome,
      ::testing::Each(
          "the nodes see different reducers: node 0 (127.0.0.1) \"r1,r2\", node 1 (127.0.0.1) \"r1\""));
}

TEST_F(AgreementTest, FailsOnAllWhenOneHadNoPort) {
  nodes_[4].port = 0;
  EXPECT_THAT(run(fine), ::testing::Each(HasSubstr("node 4 (127.0.0.1) could not open a port")));
}

TEST_F(AgreementTest, IsNotDisturbedByStrangers) {
  std::vector<Socket> strangers;
  const auto call = [&](const std::string& words) {
    auto s = transport::tcp::connect_to("127.0.0.1", nodes_[0].port, {}, monotonic_now() + 10 * kSecond);
    ASSERT_TRUE(s);
    EXPECT_TRUE(
        transport::tcp::write_all(s->fd(), std::as_bytes(std::span(words)), monotonic_now() + kSecond).ok());
    strangers.push_back(std::move(*s));
  };
  call("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  call("SLCA");
  call(std::string("SLCA\1\0\0\0\1\0\0\0\x20\0\0\0", 16) + std::string(32, 'x'));  // rank 1, another session
  call(std::string("SLCA\1\0\0\0\1\0\0\0\xff\xff\xff\x7f", 16));                   // a text of 2 GB
  call(std::string("SLCA\1\0\0\0\x63\0\0\0\x20\0\0\0", 16) + std::string(32, 'x'));  // rank 99
  call("");
  EXPECT_THAT(run(fine), ::testing::Each("yes"));
}

}  // namespace
}  // namespace sluice::nccl::collnet
