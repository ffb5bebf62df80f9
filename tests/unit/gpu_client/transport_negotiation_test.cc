// Negotiation of RDMA on connections of 127.0.0.1, which belongs to no RDMA device. tests/rdma covers the
// negotiation with real devices.
#include "gpu_client/engine/join/transport_negotiation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/clock.h"
#include "tests/unit/gpu_client/scripted_listener.h"

namespace sluice::engine {
namespace {

using test::ScriptedListener;
using ::testing::HasSubstr;

using Connection = ScriptedListener::Connection;

class TransportNegotiationTest : public ::testing::Test {
 protected:
  TransportNegotiationTest() { identity_.lanes.rdma = true; }
  // Negotiates on a lane connection with a reducer that offers the features and then runs `answer`.
  Result<Handshake> negotiate(uint64_t offered, const std::function<void(Connection&)>& answer) {
    reducer_.serve({[&](Connection& c) {
      hello_ = ScriptedListener::welcome(c, 50, 2, offered);
      if (answer) answer(c);
    }});
    const Nanos deadline = monotonic_now() + 20 * kSecond;
    auto h = connect_and_handshake({.host = "127.0.0.1", .port = reducer_.port()}, identity_,
                                   wire::Purpose::kLane, 0, 0, deadline);
    if (!h) return h;
    const auto negotiated = negotiate_lane_transport(*h, identity_.lanes, deadline);
    reducer_.finish();
    EXPECT_FALSE(h->socket.has_queue_pair());
    return negotiated ? std::move(h) : Result<Handshake>(tl::unexpected(negotiated.error()));
  }
  void expect_tcp(const Result<Handshake>& h, bool requested_rdma, const std::string& reason) const {
    ASSERT_TRUE(h) << h.error().text;
    EXPECT_EQ((hello_.features & wire::kFeatureRdma) != 0, requested_rdma);
    EXPECT_EQ(h->tcp_reason, reason);
  }
  Result<Handshake> negotiate_without_device() {
    return negotiate(wire::kFeatureRdma, [this](Connection& c) {
      pair_ = c.expect<wire::Pair>();
      c.send(wire::Pair{});
    });
  }

  wire::Hello hello_;
  wire::Pair pair_;
  Identity identity_;
  ScriptedListener reducer_;
};

TEST_F(TransportNegotiationTest, DoesNotOfferRdmaWhenTcpIsSelected) {
  identity_.lanes = {};
  const auto h = negotiate(wire::kFeatureRdma, nullptr);
  expect_tcp(h, false, "");
}

TEST_F(TransportNegotiationTest, DoesNotOfferRdmaWithoutADevice) {
  identity_.lanes.rdma = false;
  identity_.lanes.rdma_error = "no RDMA device";
  const auto h = negotiate(wire::kFeatureRdma, nullptr);
  expect_tcp(h, false, "no RDMA device");
}

TEST_F(TransportNegotiationTest, UsesTcpWhenTheReducerOffersNoRdma) {
  const auto h = negotiate(0, nullptr);
  expect_tcp(h, true, "the reducer does not offer RDMA");
}

TEST_F(TransportNegotiationTest, UsesTcpWhenNoDeviceHasTheConnection) {
  const auto h = negotiate_without_device();
  EXPECT_TRUE(pair_.address.empty());
  EXPECT_NE(pair_.reason, "");
  expect_tcp(h, true, pair_.reason);
}

TEST_F(TransportNegotiationTest, FailsWhenRdmaIsRequired) {
  identity_.lanes.rdma_required = true;
  const auto h = negotiate_without_device();
  ASSERT_FALSE(h);
  EXPECT_EQ(h.error().code, Errc::kUnsupported);
  EXPECT_THAT(h.error().text, HasSubstr("RDMA is required, but a lane connection cannot use it: "));
}

TEST_F(TransportNegotiationTest, RejectsAnUnexpectedAnswer) {
  const auto h = negotiate(wire::kFeatureRdma, [](Connection& c) {
    (void)c.expect<wire::Pair>();
    c.send(wire::Paired{});
  });
  ASSERT_FALSE(h);
  EXPECT_EQ(h.error().code, Errc::kUnexpectedMessage);
}

}  // namespace
}  // namespace sluice::engine
