// GATHER at a reducer (protocol.md section 5): the ranks of a session exchange data before they join.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "tests/functional/reducer_fixture.h"
#include "tests/support/temporary_file.h"

namespace sluice::test {
namespace {

class GatherTest : public ReducerTest {
 protected:
  wire::Hello hello(uint32_t rank, uint32_t ranks, uint8_t session = 1) const {
    wire::Hello h;
    h.purpose = wire::Purpose::kGather;
    h.rank = rank;
    h.ranks = ranks;
    h.session = session_id(session);
    return h;
  }
  ScriptedConnection send(uint32_t rank, uint32_t ranks, const std::vector<uint8_t>& data,
                          uint32_t timeout_ms = 5000, uint8_t round = 1) const {
    ScriptedConnection c(port());
    EXPECT_NE(c.handshake(hello(rank, ranks)).features & wire::kFeatureGather, 0u);
    c.send(wire::Gather{.round = round, .timeout_ms = timeout_ms, .data = data, .mac = {}});
    return c;
  }
  // The data of all ranks, from as many messages as the reducer sends.
  static std::vector<std::vector<uint8_t>> receive(ScriptedConnection& c, size_t ranks, uint8_t round = 1) {
    std::vector<std::vector<uint8_t>> all;
    while (all.size() < ranks) {
      const auto part = c.expect<wire::Gathered>();
      EXPECT_EQ(part.round, round);
      EXPECT_EQ(part.first_rank, all.size());
      size_t at = 0;
      for (const uint16_t size : part.sizes) {
        all.emplace_back(part.data.begin() + static_cast<std::ptrdiff_t>(at),
                         part.data.begin() + static_cast<std::ptrdiff_t>(at + size));
        at += size;
      }
      EXPECT_EQ(at, part.data.size());
    }
    return all;
  }
};

TEST_F(GatherTest, SendsTheDataOfAllRanksToEachInSeveralRounds) {
  start();
  constexpr uint32_t kRanks = 120;  // with 256 bytes each: three messages
  std::deque<ScriptedConnection> ranks;
  std::vector<std::vector<uint8_t>> data;
  for (uint32_t rank = 0; rank < kRanks; ++rank) data.emplace_back(256, static_cast<uint8_t>(rank));
  data[7].clear();
  for (uint32_t i = 0; i < kRanks; ++i) ranks.push_back(send(kRanks - 1 - i, kRanks, data[kRanks - 1 - i]));
  for (ScriptedConnection& c : ranks) EXPECT_EQ(receive(c, kRanks), data);
  for (uint32_t i = 0; i < kRanks; ++i)
    ranks[i].send(
        wire::Gather{.round = 2, .timeout_ms = 60'000, .data = {static_cast<uint8_t>(i)}, .mac = {}});
  for (ScriptedConnection& c : ranks) EXPECT_EQ(receive(c, kRanks, 2)[kRanks - 1], std::vector<uint8_t>{0});
}

TEST_F(GatherTest, NamesTheRanksThatDoNotArrive) {
  start();
  auto a = send(1, 4, {1}, 2000);
  auto b = send(2, 4, {2}, 60'000);
  for (auto* c : {&a, &b}) {
    const auto refused = c->expect<wire::Refused>();
    EXPECT_EQ(refused.code, Errc::kJoinTimeout);
    EXPECT_EQ(refused.text, "ranks 0, 3 did not join in time");
  }
  // Nothing of the first attempt is left.
  std::deque<ScriptedConnection> ranks;
  for (uint32_t rank = 0; rank < 4; ++rank) ranks.push_back(send(rank, 4, {9}));
  EXPECT_EQ(receive(ranks[0], 4)[1], std::vector<uint8_t>{9});
}

TEST_F(GatherTest, RefusesAllRanksWhenOneContradictsTheOthers) {
  start();
  auto a = send(1, 4, {1});
  auto other_size = send(2, 5, {2});
  for (auto* c : {&a, &other_size}) {
    const auto refused = c->expect<wire::Refused>();
    EXPECT_EQ(refused.code, Errc::kMismatch);
    EXPECT_EQ(refused.text, "rank 2 has 5 ranks, rank 1 has 4");
  }
  auto first = send(1, 4, {1});
  auto twice = send(1, 4, {1});
  for (auto* c : {&first, &twice}) EXPECT_EQ(c->expect<wire::Refused>().code, Errc::kRankTaken);
  EXPECT_EQ(send(4, 4, {}).expect<wire::Refused>().code, Errc::kBadField);
}

// One of them shares no host, whoever comes first: they would wait for each other.
TEST_F(GatherTest, RefusesRanksThatWaitInDifferentRounds) {
  start();
  for (const uint8_t first : {uint8_t{0}, uint8_t{1}}) {
    auto a = send(0, 4, {1}, 60'000, first);
    auto b = send(2, 4, {1}, 60'000, first);
    ASSERT_TRUE(eventually([](const nlohmann::json& j) { return j["connections"]["open"] == 2; }));
    auto other = send(1, 4, {2}, 60'000, 1 - first);
    const std::string text = "before the join, rank 1 in round " + std::to_string(1 - first) +
                             " exchanges other data than rank 0 in round " + std::to_string(first) +
                             "; set SLUICE_HOSTS and SLUICE_COLOCATED alike on all ranks";
    for (auto* c : {&a, &b, &other}) {
      const auto refused = c->expect<wire::Refused>();
      EXPECT_EQ(refused.code, Errc::kMismatch);
      EXPECT_EQ(refused.text, text);
    }
  }
  // A rank that has gone waits no more.
  {
    auto gone = send(0, 2, {1}, 60'000, 0);
    ASSERT_TRUE(eventually([](const nlohmann::json& j) { return j["connections"]["open"] == 1; }));
  }
  ASSERT_TRUE(eventually([](const nlohmann::json& j) { return j["connections"]["open"] == 0; }));
  auto again = send(0, 2, {2});
  auto peer = send(1, 2, {3});
  EXPECT_EQ(receive(again, 2), (std::vector<std::vector<uint8_t>>{{2}, {3}}));
}

// Some ranks use co-located reducers and one does not, whoever comes first.
TEST_F(GatherTest, RefusesRanksThatJoinWithoutGather) {
  start();
  const ScriptedMember::Shape shape{.session = session_id(1), .rank = 1, .ranks = 2};
  auto waits = send(0, 2, {1});
  ASSERT_TRUE(eventually([](const nlohmann::json& j) { return j["connections"]["open"] == 1; }));
  const std::string text =
      "rank 1 joins at once, rank 0 first exchanges data with the others; set SLUICE_HOSTS and "
      "SLUICE_COLOCATED "
      "alike on all ranks";
  EXPECT_EQ(refusal(shape).text, text);
  EXPECT_EQ(waits.expect<wire::Refused>().text, text);

  ScriptedMember member(port(), shape);
  member.join();
  member.expect_joined();
  EXPECT_EQ(send(0, 2, {1}).expect<wire::Refused>().text, text);
  EXPECT_EQ(member.control.expect<wire::Verdict>().reason.text, text);
}

TEST_F(GatherTest, LeavesASessionOfAnotherJobAlone) {
  start();
  const ScriptedMember::Shape shape{.session = session_id(1), .rank = 1, .ranks = 2};
  ScriptedMember member(port(), shape);
  member.join();
  member.expect_joined();
  ScriptedConnection other(port());
  wire::Hello h = hello(0, 2);
  h.job = "other";
  other.handshake(h);
  other.send(wire::Gather{.round = 1, .timeout_ms = 60'000, .data = {}, .mac = {}});
  EXPECT_EQ(other.expect<wire::Refused>().code, Errc::kUnauthenticated);
  EXPECT_EQ(send(7, 8, {}).expect<wire::Refused>().code, Errc::kBadField);
  EXPECT_EQ(status()["sessions"]["open"], 1);
}

TEST_F(GatherTest, ForgetsARankThatClosesItsConnection) {
  start();
  {
    auto gone = send(0, 2, {1});
    ASSERT_TRUE(eventually([](const nlohmann::json& j) { return j["connections"]["open"] == 1; }));
  }
  ASSERT_TRUE(eventually([](const nlohmann::json& j) { return j["connections"]["open"] == 0; }));
  auto again = send(0, 2, {2});
  auto peer = send(1, 2, {3});
  EXPECT_EQ(receive(peer, 2), (std::vector<std::vector<uint8_t>>{{2}, {3}}));
  EXPECT_EQ(receive(again, 2), (std::vector<std::vector<uint8_t>>{{2}, {3}}));
}

TEST_F(GatherTest, TellsTheRanksThatWaitThatOneHasLeft) {
  start();
  auto waiting = send(0, 3, {1}, 60'000);
  {
    auto gone = send(2, 3, {1}, 60'000);
    ASSERT_TRUE(eventually([](const nlohmann::json& j) { return j["connections"]["open"] == 2; }));
  }
  const auto told = waiting.expect<wire::Refused>();
  EXPECT_EQ(told.code, Errc::kPeerLost);
  EXPECT_EQ(told.rank, 2u);
  EXPECT_EQ(told.text, "rank 2 lost: it left before all ranks had joined");
}

TEST_F(GatherTest, TellsTheOthersThatARankHasLeftAfterARound) {
  start();
  std::deque<ScriptedConnection> ranks;
  for (uint32_t rank = 0; rank < 3; ++rank) ranks.push_back(send(rank, 3, {1}));
  for (ScriptedConnection& c : ranks) receive(c, 3);
  ranks[0].send(wire::Gather{.round = 2, .timeout_ms = 60'000, .data = {}, .mac = {}});
  ranks.pop_back();
  for (ScriptedConnection& c : ranks) {
    const auto told = c.expect<wire::Abort>();
    EXPECT_EQ(told.code, Errc::kPeerLost);
    EXPECT_EQ(told.rank, 2u);
    EXPECT_EQ(told.text, "rank 2 lost: it left before all ranks had joined");
  }
  // The ranks may come again.
  ranks.clear();
  for (uint32_t rank = 0; rank < 3; ++rank) ranks.push_back(send(rank, 3, {9}));
  EXPECT_EQ(receive(ranks[0], 3)[1], std::vector<uint8_t>{9});
}

TEST_F(GatherTest, PassesOnWhyARankLeaves) {
  start();
  auto a = send(0, 2, {});
  auto b = send(1, 2, {});
  receive(a, 2);
  receive(b, 2);
  wire::Abort abort;
  abort.code = Errc::kMismatch;
  abort.text = "no cheese";
  a.send(abort);
  const auto told = b.expect<wire::Abort>();
  EXPECT_EQ(told.code, Errc::kMismatch);
  EXPECT_EQ(told.rank, 0u);
  EXPECT_EQ(told.text, "no cheese");
}

// The reducer of a rank, which ends after the first failure.
class HostedGather : public GatherTest {
 protected:
  HostedGather() {
    auto options = test_options();
    options.hosted = true;
    options.only_expected_sessions = true;
    start(options);
    reducer->expect_session(session_id(1), 4);
  }
};

TEST_F(HostedGather, TellsRanksThatComeLaterWhyTheSessionWasRefused) {
  auto first = send(1, 4, {}, 5000, 1);
  EXPECT_FALSE(reducer->end_meeting(session_id(2))) << "another session";
  auto second = send(2, 4, {}, 5000, 0);
  const auto why = first.expect<wire::Refused>();
  EXPECT_EQ(why.code, Errc::kMismatch);
  EXPECT_EQ(second.expect<wire::Refused>().text, why.text);
  EXPECT_TRUE(reducer->end_meeting(session_id(1))) << "rank 3 has not come";
  {
    ScriptedMember::Shape shape{.session = session_id(1), .rank = 3, .ranks = 4};
    ScriptedMember late(port(), shape);
    late.join();
    EXPECT_EQ(late.control.expect<wire::Refused>().text, why.text);
    EXPECT_TRUE(reducer->end_meeting(session_id(1))) << "they may still be reading";
    const ScriptedConnection a = std::move(first), b = std::move(second);
  }
  EXPECT_TRUE(eventually([&](const nlohmann::json&) { return !reducer->end_meeting(session_id(1)); }));
  reducer->forget_session(session_id(1));
  reducer->expect_session(session_id(1), 4);
  auto again = send(0, 2, {2});
  auto peer = send(1, 2, {3});
  EXPECT_EQ(receive(peer, 2), (std::vector<std::vector<uint8_t>>{{2}, {3}}));
}

TEST_F(HostedGather, RefusesRanksThatWaitWhenItsRankHasFailed) {
  auto waiting = send(1, 3, {});
  ASSERT_TRUE(eventually([&](const nlohmann::json&) { return reducer->end_meeting(session_id(1)); }));
  const auto why = waiting.expect<wire::Refused>();
  EXPECT_EQ(why.code, Errc::kPeerLost);
  EXPECT_EQ(why.text, "the rank at whose address the ranks meet has failed");
  EXPECT_EQ(send(2, 3, {}).expect<wire::Refused>().text, why.text);
}

TEST_F(GatherTest, RefusesAStrangerWithoutEffectOnTheJob) {
  const TemporaryFile key_file(std::string(64, 'a'));
  auto options = test_options();
  options.key_file = key_file.path();
  start(options);
  const std::string key(32, '\xaa');
  const wire::Digest token = wire::job_token(std::as_bytes(std::span(key)), "default");
  ScriptedConnection member(port());
  member.handshake(hello(0, 2));
  member.send(wire::Gather{.round = 1, .timeout_ms = 60'000, .data = {1}, .mac = member.proof(token, 0)});
  EXPECT_EQ(send(1, 2, {6}).expect<wire::Refused>().code, Errc::kUnauthenticated);
  EXPECT_TRUE(eventually_counted("refused", "unauthenticated"));
  ScriptedConnection peer(port());
  peer.handshake(hello(1, 2));
  peer.send(wire::Gather{.round = 1, .timeout_ms = 60'000, .data = {2}, .mac = peer.proof(token, 0)});
  EXPECT_EQ(receive(member, 2), (std::vector<std::vector<uint8_t>>{{1}, {2}}));
}

}  // namespace
}  // namespace sluice::test
