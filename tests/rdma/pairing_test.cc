// The reducer's side of pairing a lane connection with a queue pair, with peers that behave rightly and
// wrongly. Runs in a guest of guest.sh --loopback.
#include <array>
#include <chrono>
#include <future>
#include <span>

#include "tests/functional/reducer_fixture.h"
#include "tests/support/temporary_file.h"
#include "transport/rdma/pairing.h"

namespace sluice::test {
namespace {

using Shape = ScriptedMember::Shape;

class PairingFixture : public ReducerTest {
 protected:
  void start_with(config::LaneTransport transport, Nanos handshake_timeout = 10 * kSecond) {
    auto options = test_options();
    options.transport = transport;
    options.handshake_timeout = handshake_timeout;
    start(options);
  }
  // One rank that has joined and requested its lane. Its control connection announces the RDMA feature too,
  // where it has no meaning.
  void join(uint64_t features = wire::kFeatureRdma, uint8_t session = 1) {
    rank.emplace(port(), Shape{.session = session_id(session), .features = features});
    rank->join();
    rank->expect_joined();
    rank->lanes.push_back(rank->request_lane(0));
  }
  ScriptedConnection& lane() { return rank->lanes[0]; }
  void expect_attached() { (void)lane().expect<wire::Attached>(); }
  // The lane is served over the TCP connection.
  void expect_sums_over_tcp() {
    rank->vote_yes();
    rank->commit();
    std::vector<float> values(100, 2.5f);
    rank->contribute(0, values);
    EXPECT_EQ(rank->result(0), values);
  }
  // The same, and the lane counts as one that fell back to TCP.
  void expect_fallback_to_tcp() {
    expect_sums_over_tcp();
    EXPECT_TRUE(eventually([](const nlohmann::json& j) { return j["rdma"]["on_tcp"] == 1; }));
  }
  std::optional<ScriptedMember> rank;
};

TEST_F(PairingFixture, APeerWithoutTheFeatureIsServedOverTcp) {
  start();
  join(0);
  expect_attached();
  expect_sums_over_tcp();
  EXPECT_EQ(status()["rdma"]["on_tcp"], 0);
}

TEST_F(PairingFixture, APeerWithoutADeviceIsServedOverTcp) {
  start();
  join();
  expect_attached();
  lane().send(wire::Pair{.address = {}, .reason = "no RDMA device"});
  EXPECT_TRUE(lane().expect<wire::Pair>().address.empty());
  expect_fallback_to_tcp();
}

// A client that may not join cannot make the reducer allocate device resources.
TEST_F(PairingFixture, NoQueuePairIsCreatedWithoutTheToken) {
  const TemporaryFile key_file("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
  auto options = test_options();
  options.key_file = key_file.path();
  start(options);
  const auto made = [this] {
    uint64_t pairs = 0, registrations = 0;
    const auto now = status();
    for (const auto& d : now["rdma"]["devices"]) {
      pairs += d["pairs"]["made"].get<uint64_t>();
      registrations += d["registrations"]["made"].get<uint64_t>();
    }
    return pairs + registrations;
  };
  ASSERT_FALSE(status()["rdma"]["devices"].empty());
  std::vector<std::byte> key(32);
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  Shape shape{.session = session_id(1),
              .features = wire::kFeatureRdma,
              .token = wire::job_token(key, "a"),
              .job = "a"};
  ScriptedMember own(port(), shape);
  own.join();
  own.expect_joined();
  shape.token = wire::job_token(key, "b");
  ScriptedMember unauthenticated(port(), shape);
  unauthenticated.joined = own.joined;  // the client knows all but the token
  ScriptedConnection lane_request = unauthenticated.request_lane(0);
  wire::Pair pair{.address = std::vector<uint8_t>(transport::rdma::kPairAddressBytes), .reason = {}};
  transport::rdma::encode(
      {.number = 17,
       .sequence = 1,
       .mtu = 3,
       .segment_bytes = 16 * kKiB,
       .segments = 32,
       .gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}},
      std::as_writable_bytes(std::span(pair.address)).first<transport::rdma::kPairAddressBytes>());
  lane_request.send(pair);
  EXPECT_EQ(lane_request.expect<wire::Refused>().code, Errc::kUnauthenticated);
  EXPECT_TRUE(lane_request.closed_within(10 * kSecond));
  EXPECT_EQ(made(), 0U);
  // The same messages with the token create a queue pair.
  own.lanes.push_back(own.request_lane(0));
  (void)own.lanes[0].expect<wire::Attached>();
  own.lanes[0].send(pair);
  EXPECT_EQ(own.lanes[0].expect<wire::Pair>().address.size(), transport::rdma::kPairAddressBytes);
  // The queue pair and three registrations: its segments, its slots, and the results.
  EXPECT_EQ(made(), 4U);
}

TEST_F(PairingFixture, AnInvalidAddressIsReportedAndServedOverTcp) {
  start();
  join();
  expect_attached();
  lane().send(wire::Pair{.address = std::vector<uint8_t>(40, 7), .reason = {}});
  const auto answer = lane().expect<wire::Pair>();
  EXPECT_TRUE(answer.address.empty());
  EXPECT_EQ(answer.reason, "not a queue pair address: wrong magic number");
  expect_fallback_to_tcp();
}

// The test plays the client up to the offer of its queue pair.
class OfferedPairFixture : public PairingFixture {
 protected:
  void SetUp() override { offer_to(config::LaneTransport::kAuto); }
  void offer_to(config::LaneTransport transport, Nanos handshake_timeout = 10 * kSecond) {
    rank.reset();
    start_with(transport, handshake_timeout);
    join();
    expect_attached();
    auto made = transport::rdma::offer_pair(transport::rdma::connection_gids(lane().fd()), {});
    ASSERT_TRUE(made) << made.error().text;
    offer = std::move(*made);
    lane().send(wire::Pair{.address = offer.address, .reason = {}});
    answer = lane().expect<wire::Pair>();
    ASSERT_EQ(answer.address.size(), transport::rdma::kPairAddressBytes) << answer.reason;
  }
  void attach_pair() {
    const auto address = std::as_bytes(std::span(answer.address));
    ASSERT_TRUE(
        transport::rdma::connect_pair(*offer.pair, transport::rdma::connection_gids(lane().fd()), address));
    ASSERT_TRUE(transport::rdma::probe_pair(*offer.pair, monotonic_now() + 10 * kSecond));
    lane().send(wire::Paired{.ready = 1, .reason = {}});
    ASSERT_TRUE(eventually([](const nlohmann::json& j) { return j["rdma"]["paired"] == 1; }));
  }
  transport::rdma::PairOffer offer;
  wire::Pair answer;
};

TEST_F(OfferedPairFixture, AFailedProbeIsServedOverTcp) {
  lane().send(wire::Paired{.ready = 0, .reason = "probe failed"});
  EXPECT_TRUE(lane().expect<wire::Pair>().address.empty());
  expect_fallback_to_tcp();
}

TEST_F(OfferedPairFixture, AFailedProbeIsRefusedWithTransportRdma) {
  offer_to(config::LaneTransport::kRdma);
  lane().send(wire::Paired{.ready = 0, .reason = "probe failed"});
  EXPECT_EQ(lane().expect<wire::Refused>().text,
            "reducer serves lanes over RDMA only (--transport rdma): probe failed");
}

TEST_F(OfferedPairFixture, TheStatusShowsTheDevices) {
  const auto of_device = [](const nlohmann::json& j) {
    for (const auto& d : j["rdma"]["devices"]) {
      if (d["device"] == "rxelo") return d;
    }
    return nlohmann::json();
  };
  const auto before = of_device(status());
  ASSERT_TRUE(before.is_object());
  // Both ends are in this process.
  EXPECT_EQ(before["pairs"]["open"], 2);
  EXPECT_EQ(before["registrations"]["made"], 4)
      << "the segments of both ends, the slots of a rank, the results";
  EXPECT_GT(before["registrations"]["bytes"], 2 * 1114112);
  EXPECT_EQ(before["bytes_out"], 0);
  attach_pair();
  offer.pair.reset();
  lane().close();
  EXPECT_TRUE(eventually([&](const nlohmann::json& j) {
    return of_device(j)["pairs"]["open"] == 0 && of_device(j)["registrations"]["bytes"] == 0;
  }));
  const auto after = of_device(status());
  EXPECT_EQ(after["pairs"]["made"], before["pairs"]["made"]);
  EXPECT_EQ(after["pairs"]["failed"], 0);
  EXPECT_EQ(after["registrations"]["made"], before["registrations"]["made"]);
  EXPECT_EQ(after["port_losses"], 0);
  EXPECT_EQ(after["retries_exhausted"], 0);
}

// The reducer is idle and has the device open, and the kernel waits for it: the reducer must check by itself.
TEST_F(OfferedPairFixture, ADeviceRemovalEndsItsLanesAndLaterLanesUseTcp) {
  attach_pair();
  offer.pair.reset();
  auto removed = std::async(std::launch::async, [] { return std::system("rdma link delete rxelo"); });
  EXPECT_TRUE(lane().closed_within(20 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "reset"));
  const bool device_released = removed.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  if (!device_released) reducer.reset();
  ASSERT_TRUE(device_released);
  join(wire::kFeatureRdma, 2);
  expect_attached();
  lane().send(wire::Pair{.address = offer.address, .reason = {}});
  EXPECT_EQ(lane().expect<wire::Pair>().reason, "no RDMA device has the address 127.0.0.1");
  expect_fallback_to_tcp();
  EXPECT_EQ(std::system("rdma link add rxelo type rxe netdev lo"), 0);
  offer_to(config::LaneTransport::kAuto);
}

TEST_F(OfferedPairFixture, BytesOnAPairedConnectionEndIt) {
  attach_pair();
  rank->vote_yes();
  EXPECT_NO_THROW((void)rank->control.expect<wire::Verdict>());
  lane().send(wire::Commit{.incarnation = 1});
  EXPECT_TRUE(lane().closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "bad_type"));
}

TEST_F(OfferedPairFixture, ASilentPeerTimesOut) {
  offer_to(config::LaneTransport::kAuto, 2 * kSecond);
  EXPECT_TRUE(lane().closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "timeout"));
}

TEST_F(OfferedPairFixture, AnotherMessageThanPairedEndsIt) {
  lane().send(wire::Pair{.address = offer.address, .reason = {}});
  EXPECT_TRUE(lane().closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "unexpected_message"));
}

TEST_F(PairingFixture, AnotherMessageThanPairEndsIt) {
  start();
  join();
  expect_attached();
  lane().send(wire::Commit{.incarnation = 1});
  EXPECT_TRUE(lane().closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "unexpected_message"));
}

TEST_F(PairingFixture, TransportRdmaRefusesAPeerWithoutTheFeature) {
  start_with(config::LaneTransport::kRdma);
  join(0);
  const auto refused = lane().expect<wire::Refused>();
  EXPECT_EQ(refused.code, Errc::kMismatch);
  EXPECT_EQ(refused.text,
            "reducer serves lanes over RDMA only (--transport rdma): the client did not request RDMA");
}

TEST_F(PairingFixture, TransportRdmaRefusesAPeerWithoutADevice) {
  start_with(config::LaneTransport::kRdma);
  join();
  expect_attached();
  lane().send(wire::Pair{.address = {}, .reason = "no RDMA device"});
  EXPECT_EQ(lane().expect<wire::Refused>().text,
            "reducer serves lanes over RDMA only (--transport rdma): no RDMA device");
}

TEST_F(PairingFixture, TransportTcpOffersNoQueuePair) {
  start_with(config::LaneTransport::kTcp);
  join();
  expect_attached();
  expect_sums_over_tcp();
  EXPECT_TRUE(status()["rdma"]["rails"].empty());
}

}  // namespace
}  // namespace sluice::test
