// What a worker does about RDMA on connections of 127.0.0.1, which no device has: what is said when a pair is
// made is seen on real verbs, in tests/rdma.
#include "gpu_client/engine/lane_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "core/clock.h"
#include "tests/unit/gpu_client/answering_reducer.h"

namespace sluice::engine {
namespace {

using test::AnsweringReducer;
using ::testing::HasSubstr;

using Connection = AnsweringReducer::Connection;

class LaneTermsTest : public ::testing::Test {
 protected:
  LaneTermsTest() { who_.lanes.rdma = true; }
  // A lane connection behind ATTACHED, at a reducer that goes on with `answer`.
  Result<Greeting> settle(uint64_t offered, const std::function<void(Connection&)>& answer) {
    reducer_.play({[&](Connection& c) {
      hello_ = AnsweringReducer::welcome(c, 50, 2, offered);
      if (answer) answer(c);
    }});
    const Nanos deadline = monotonic_now() + 20 * kSecond;
    auto g =
        greet({.host = "127.0.0.1", .port = reducer_.port()}, who_, wire::Purpose::kLane, 0, 0, deadline);
    if (!g) return g;
    const auto settled = settle_transport(*g, who_.lanes, deadline);
    reducer_.finish();
    EXPECT_FALSE(g->socket.accompanied());
    return settled ? std::move(g) : Result<Greeting>(tl::unexpected(settled.error()));
  }
  [[nodiscard]] bool asked() const { return (hello_.features & wire::kFeatureRdma) != 0; }
  Result<Greeting> settle_with_none() {
    return settle(wire::kFeatureRdma, [this](Connection& c) {
      pair_ = c.expect<wire::Pair>();
      c.send(wire::Pair{});
    });
  }

  wire::Hello hello_;
  wire::Pair pair_;
  Identity who_;
  AnsweringReducer reducer_;
};

TEST_F(LaneTermsTest, WhoWantsTcpSaysNothing) {
  who_.lanes = {};
  const auto g = settle(wire::kFeatureRdma, nullptr);
  ASSERT_TRUE(g) << g.error().text;
  EXPECT_FALSE(asked());
  EXPECT_EQ(g->no_pair, "");
}

TEST_F(LaneTermsTest, WhoHasNoDeviceSaysNothingAndKnowsWhy) {
  who_.lanes.rdma = false;
  who_.lanes.no_rdma = "no RDMA device";
  const auto g = settle(wire::kFeatureRdma, nullptr);
  ASSERT_TRUE(g) << g.error().text;
  EXPECT_FALSE(asked());
  EXPECT_EQ(g->no_pair, "no RDMA device");
}

TEST_F(LaneTermsTest, AReducerThatOffersNoneIsAskedForNone) {
  const auto g = settle(0, nullptr);
  ASSERT_TRUE(g) << g.error().text;
  EXPECT_TRUE(asked());
  EXPECT_THAT(g->no_pair, HasSubstr("offers none"));
}

TEST_F(LaneTermsTest, AConnectionThatNoDeviceHasGoesOnOverTcp) {
  const auto g = settle_with_none();
  ASSERT_TRUE(g) << g.error().text;
  EXPECT_TRUE(pair_.address.empty());
  EXPECT_NE(pair_.why, "");
  EXPECT_EQ(g->no_pair, pair_.why);
}

TEST_F(LaneTermsTest, WhoWantsNothingElseSaysWhy) {
  who_.lanes.only_rdma = true;
  const auto g = settle_with_none();
  ASSERT_FALSE(g);
  EXPECT_EQ(g.error().code, Errc::kUnsupported);
  EXPECT_THAT(g.error().text, HasSubstr("no RDMA for a lane, and nothing else is allowed: "));
}

TEST_F(LaneTermsTest, AnAnswerThatIsNoneIsAnError) {
  const auto g = settle(wire::kFeatureRdma, [](Connection& c) {
    (void)c.expect<wire::Pair>();
    c.send(wire::Paired{});
  });
  ASSERT_FALSE(g);
  EXPECT_EQ(g.error().code, Errc::kUnexpectedMessage);
}

class TransportVariable : public ::testing::Test {
 protected:
  TransportVariable() { unset(); }
  ~TransportVariable() override { unset(); }
  static void unset() {
    for (const char* const name :
         {"SLUICE_TRANSPORT", "SLUICE_IB_HCA", "SLUICE_IB_GID_INDEX", "SLUICE_IB_TC"})
      ::unsetenv(name);
  }
};

TEST_F(TransportVariable, SaysOneOfThree) {
  ::setenv("SLUICE_TRANSPORT", "tcp", 1);
  const auto tcp = read_transport_variables();
  ASSERT_TRUE(tcp);
  EXPECT_FALSE(tcp->rdma);
  EXPECT_EQ(tcp->no_rdma, "") << "it was asked for";
  ::setenv("SLUICE_TRANSPORT", "quic", 1);
  const auto wrong = read_transport_variables();
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().text, "variable SLUICE_TRANSPORT: \"quic\" is none of auto, tcp, rdma");
}

TEST_F(TransportVariable, WhichDevicesAndHow) {
  ::setenv("SLUICE_TRANSPORT", "tcp", 1);
  const auto none = read_transport_variables();
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->choice.allows);
  EXPECT_EQ(none->choice.gid_index, -1);
  EXPECT_EQ(none->choice.traffic_class, 0);
  ::setenv("SLUICE_IB_HCA", "mlx5_0:1", 1);
  ::setenv("SLUICE_IB_GID_INDEX", "3", 1);
  ::setenv("SLUICE_IB_TC", "106", 1);
  const auto all = read_transport_variables();
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->choice.allows("mlx5_0", 1));
  EXPECT_FALSE(all->choice.allows("mlx5_0", 2));
  EXPECT_EQ(all->choice.gid_index, 3);
  EXPECT_EQ(all->choice.traffic_class, 106);
  ::setenv("SLUICE_IB_GID_INDEX", "-1", 1);
  EXPECT_EQ(read_transport_variables()->choice.gid_index, -1);
  for (const char* const wrong : {"-2", "256", "3x", "one"}) {
    ::setenv("SLUICE_IB_GID_INDEX", wrong, 1);
    const auto refused = read_transport_variables();
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().text,
              "variable SLUICE_IB_GID_INDEX: \"" + std::string(wrong) + "\" is not in -1..255");
  }
  ::setenv("SLUICE_IB_GID_INDEX", "", 1);
  ::setenv("SLUICE_IB_TC", "-1", 1);
  const auto refused = read_transport_variables();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text, "variable SLUICE_IB_TC: \"-1\" is not in 0..255");
}

TEST_F(TransportVariable, WithoutADeviceAutoIsTcpAndRdmaIsAnError) {
  const auto unset = read_transport_variables();
  ASSERT_TRUE(unset);
  if (unset->rdma) GTEST_SKIP() << "left out: this machine has an RDMA device";
  EXPECT_NE(unset->no_rdma, "");
  ::setenv("SLUICE_TRANSPORT", "rdma", 1);
  const auto wanted = read_transport_variables();
  ASSERT_FALSE(wanted);
  EXPECT_EQ(wanted.error().code, Errc::kUnsupported);
  EXPECT_EQ(wanted.error().text, "variable SLUICE_TRANSPORT is rdma: " + unset->no_rdma);
}

}  // namespace
}  // namespace sluice::engine
