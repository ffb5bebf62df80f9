// Each state of a connection to a reducer ends in time, whether its peer is silent or sends byte by byte.
#include <sys/socket.h>

#include "tests/functional/reducer_fixture.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::test {
namespace {

using Shape = ScriptedMember::Shape;

class ReducerDeadlines : public ReducerTest {
 protected:
  struct Peer {
    std::string name;
    ScriptedConnection connection;
    std::vector<std::byte> drips{};  // sent one by one
    size_t sent = 0;
    bool has_ended = false;
  };

  void begin() {
    auto options = test_options();
    options.handshake_timeout = 500 * kMillisecond;
    options.frame_timeout = 500 * kMillisecond;
    options.peer_timeout = 1500 * kMillisecond;
    options.join_timeout = 1500 * kMillisecond;
    options.linger_timeout = 300 * kMillisecond;
    start(options);
  }
  void add(std::string name, ScriptedConnection connection, std::vector<std::byte> drips = {}) {
    peers_.push_back({std::move(name), std::move(connection), std::move(drips)});
  }
  ScriptedConnection welcomed(wire::Purpose purpose) {
    wire::Hello hello;
    hello.purpose = purpose;
    hello.session = session_id(++last_session_);
    hello.ranks = 2;
    ScriptedConnection c(port());
    (void)c.handshake(hello);
    return c;
  }
  Shape next_shape(uint32_t ranks) {
    return {.session = session_id(++last_session_), .ranks = ranks, .join_timeout_ms = 1500};
  }
  // The end shows behind what the reducer has sent.
  static bool is_closed(Peer& peer) {
    std::array<char, 4096> bytes{};
    for (;;) {
      const ssize_t n = ::recv(peer.connection.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return true;
      if (n < 0) return false;
    }
  }
  void expect_all_end() {
    const Nanos deadline = monotonic_now() + 25 * kSecond;
    size_t left = peers_.size();
    while (left > 0 && monotonic_now() < deadline) {
      for (Peer& peer : peers_) {
        if (peer.has_ended) continue;
        peer.has_ended = is_closed(peer);
        left -= peer.has_ended ? 1 : 0;
        if (!peer.has_ended && peer.sent < peer.drips.size())
          static_cast<void>(::send(peer.connection.fd(), &peer.drips[peer.sent++], 1, MSG_NOSIGNAL));
      }
      (void)transport::tcp::sleep_until(monotonic_now() + 20 * kMillisecond);
    }
    for (const Peer& peer : peers_) EXPECT_TRUE(peer.has_ended) << peer.name;
    EXPECT_TRUE(eventually([](const nlohmann::json& j) {
      return j["connections"]["open"] == 0 && j["sessions"]["open"] == 0 && j["sessions"]["ending"] == 0;
    }));
  }

  std::vector<Peer> peers_;
  uint8_t last_session_ = 0;
};

TEST_F(ReducerDeadlines, EndTheHandshakeOfEachPurpose) {
  begin();
  add("silent before HELLO", ScriptedConnection(port()));
  add("HELLO byte by byte", ScriptedConnection(port()), wire::encode_message(wire::Hello{}));
  const std::pair<wire::Purpose, std::vector<std::byte>> requests[] = {
      {wire::Purpose::kControl, wire::encode_message(wire::Join{})},
      {wire::Purpose::kLane, wire::encode_message(wire::Attach{})},
      {wire::Purpose::kStatus, wire::encode_message(wire::StatusQuery{})},
      {wire::Purpose::kVerdict, wire::encode_message(wire::VerdictQuery{})},
      {wire::Purpose::kGather, wire::encode_message(wire::Gather{})},
      {wire::Purpose::kDrain, wire::encode_message(wire::StatusQuery{})}};
  for (const auto& [purpose, request] : requests) {
    const std::string name = "purpose " + std::to_string(static_cast<int>(purpose));
    add(name + " silent after WELCOME", welcomed(purpose));
    add(name + " request byte by byte", welcomed(purpose), request);
  }
  expect_all_end();
}

TEST_F(ReducerDeadlines, EndWhatWaitsForOtherRanks) {
  begin();
  ScriptedMember alone(port(), next_shape(2));
  alone.join();
  alone.expect_joined();
  add("joined alone", std::move(alone.control));
  ScriptedMember attached(port(), next_shape(1));
  attached.join();
  attached.expect_joined();
  attached.attach();
  add("joined without a vote", std::move(attached.control));
  add("attached without COMMIT", std::move(attached.lanes[0]));
  auto gathering = welcomed(wire::Purpose::kGather);
  gathering.send(wire::Gather{.round = 0, .timeout_ms = 60'000, .data = {}, .mac = {}});
  add("gathers alone", std::move(gathering));
  // The round of a session of one rank ends at once.
  wire::Hello hello;
  hello.purpose = wire::Purpose::kGather;
  hello.session = session_id(++last_session_);
  hello.ranks = 1;
  ScriptedConnection gathered(port());
  (void)gathered.handshake(hello);
  gathered.send(wire::Gather{.round = 0, .timeout_ms = 60'000, .data = {}, .mac = {}});
  (void)gathered.expect<wire::Gathered>();
  add("silent after a round", std::move(gathered));
  expect_all_end();
}

TEST_F(ReducerDeadlines, EndASessionWhosePeerStops) {
  begin();
  const auto active = [&](const std::string& name, std::vector<std::byte> control = {},
                          std::vector<std::byte> lane = {}) {
    auto ranks = start_session(port(), next_shape(1));
    add(name + ": control", std::move(ranks[0].control), std::move(control));
    add(name + ": lane", std::move(ranks[0].lanes[0]), std::move(lane));
  };
  const auto beat = wire::encode_message(wire::Heartbeat{});
  active("silent");
  active("HEARTBEAT byte by byte", beat);
  // The rest of a frame that has begun.
  active("COMMIT byte by byte", {}, wire::encode_message(wire::Commit{}));
  expect_all_end();
}

}  // namespace
}  // namespace sluice::test
