// Every state of a connection to models ends in time, with a peer that is silent and with one that sends or
// reads byte by byte.
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/functional/store_fixture.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/socket_options.h"

namespace sluice::test {
namespace {

using store::ConnectionState;

constexpr uint64_t kManyElements = uint64_t{1} << 20;
const std::string kManyValues =
    R"({"name": "m", "versions": 1, "mode": {"kind": "async"}, "rule": {"kind": "add"}, )"
    R"("tensors": [{"name": "w", "dtype": "f32", "shape": [1048576]}]})";

// All states end soon, but for bodies of which each frame comes in time.
cli::StoreServiceOptions short_deadlines() {
  cli::StoreServiceOptions options;
  options.deadlines.of_state.fill(kSecond);
  options.deadlines.body = 3 * kSecond;
  options.deadlines.body_rate = uint64_t{1} << 40;
  return options;
}

// One peer that misbehaves in one way.
struct Peer {
  std::string name;
  std::optional<ConnectionState> state;  // in which it is disconnected; nothing: before STORE_READY
  ScriptedConnection connection;
  std::function<void(ScriptedConnection&)> drip = nullptr;  // called again and again; null: silent
  bool has_ended = false;
};

class StoreDeadlines : public StoreRequests {
 protected:
  StoreDeadlines() : StoreRequests(short_deadlines()) {}

  void begin() {
    auto options = test_options();
    options.handshake_timeout = kSecond;
    options.frame_timeout = kSecond;
    options.linger_timeout = kSecond;
    options.socket_buffer = 64 * kKiB;
    start_with_models(options);
  }
  // A model of 4 MiB, which no socket's buffer holds.
  uint64_t create_large() {
    auto c = connect();
    const uint64_t id = make(c, kManyValues);
    c.send(wire::Install{.model = id, .bytes = kManyElements * sizeof(float)});
    const std::vector<std::byte> zeros(wire::kModelDataBytes);
    for (uint64_t at = 0, end = kManyElements * sizeof(float); at < end; at += zeros.size())
      c.send_bytes(frame_of_data(at, std::span(zeros).first(std::min<uint64_t>(zeros.size(), end - at))));
    (void)c.expect<wire::Done>();
    c.send(wire::StartModel{.model = id});
    (void)c.expect<wire::Done>();
    return id;
  }
  void add(std::string name, std::optional<ConnectionState> state, ScriptedConnection connection,
           std::function<void(ScriptedConnection&)> drip = nullptr) {
    peers_.push_back({std::move(name), state, std::move(connection), std::move(drip)});
  }
  // Sends the bytes one by one.
  static std::function<void(ScriptedConnection&)> dripping(std::vector<std::byte> bytes) {
    return [bytes = std::move(bytes), at = size_t{0}](ScriptedConnection& c) mutable {
      if (at < bytes.size()) c.send_bytes(std::span(bytes).subspan(at++, 1));
    };
  }
  // Whether the reducer has closed: a read() says so, behind what it has sent.
  static bool is_closed(const Peer& peer) {
    std::array<char, 1> byte{};
    const ssize_t n = ::recv(peer.connection.fd(), byte.data(), 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  }
  void expect_all_end() {
    const Nanos deadline = monotonic_now() + 25 * kSecond;
    auto left = std::ranges::count_if(peers_, [](const Peer& p) { return !is_unread(p); });
    while (left > 0 && monotonic_now() < deadline) {
      for (Peer& peer : peers_) {
        if (peer.has_ended) continue;
        peer.has_ended = !is_unread(peer) && is_closed(peer);
        left -= peer.has_ended ? 1 : 0;
        if (!peer.has_ended && peer.drip) peer.drip(peer.connection);
      }
      (void)transport::tcp::sleep_until(monotonic_now() + 20 * kMillisecond);
    }
    for (const Peer& peer : peers_) EXPECT_TRUE(peer.has_ended || is_unread(peer)) << peer.name;
    std::map<std::string, int> expected;
    for (const std::string_view state : store::kConnectionStateNames) expected[std::string(state)] = 0;
    for (const Peer& peer : peers_) {
      if (peer.state) ++expected[std::string(store::kConnectionStateNames[static_cast<size_t>(*peer.state)])];
    }
    EXPECT_TRUE(eventually([](const nlohmann::json& j) { return j["store"]["clients"] == 0; }));
    EXPECT_EQ(status()["store"]["budgets"]["late"].get<decltype(expected)>(), expected);
  }
  // A peer that reads nothing does not see the end behind what waits for it.
  static bool is_unread(const Peer& peer) {
    return peer.state == ConnectionState::kSending || peer.state == ConnectionState::kAnswering;
  }

  std::vector<Peer> peers_;
};

TEST_F(StoreDeadlines, EndEachStateBeforeStoreReady) {
  begin();
  const auto silent = [&] { return ScriptedConnection(port()); };
  wire::Hello hello;
  hello.purpose = wire::Purpose::kStore;
  hello.ranks = 1;
  const auto welcomed = [&] {
    auto c = silent();
    (void)c.handshake(hello);
    return c;
  };
  add("silent before HELLO", {}, silent());
  add("HELLO byte by byte", {}, silent(), dripping(wire::encode_message(hello)));
  add("silent after WELCOME", {}, welcomed());
  add("STORE byte by byte", {}, welcomed(), dripping(wire::encode_message(wire::StoreRequest{})));
  const Nanos deadline = monotonic_now() + 20 * kSecond;
  for (Peer& peer : peers_) {
    while (monotonic_now() < deadline && !peer.connection.closed_within(20 * kMillisecond)) {
      for (Peer& other : peers_) {
        if (other.drip) other.drip(other.connection);
      }
    }
    EXPECT_LT(monotonic_now(), deadline) << peer.name;
  }
  EXPECT_TRUE(eventually_counted("closed", "timeout", peers_.size()));
}

TEST_F(StoreDeadlines, EndEachStateOfAServedConnection) {
  begin();
  const uint64_t model = create_large();
  const auto with = [&](const std::vector<std::byte>& bytes) {
    auto c = connect();
    c.send_bytes(bytes);
    return c;
  };
  const auto current = wire::encode_message(wire::Current{.model = model});
  const auto half = [](std::vector<std::byte> bytes) {
    bytes.resize(bytes.size() / 2);
    return bytes;
  };
  using enum ConnectionState;
  add("no request", kIdle, connect());
  add("half a request", kRequest, with(half(current)));
  add("a request byte by byte", kRequest, connect(), dripping(current));
  const std::vector<std::byte> piece(wire::kModelDataBytes);
  const auto push = wire::encode_message(
      wire::Push{.model = model, .worker = 1, .number = 1, .bytes = kManyElements * sizeof(float)});
  const auto unknown = wire::encode_message(wire::Push{.model = 1, .bytes = uint64_t{64} << 20});
  const auto query = wire::encode_message(
      wire::ModelQuery{.kind = wire::ModelQueryKind::kCreate, .name = "n", .bytes = 1 << 20});
  for (const auto& [name, request] :
       {std::pair{"PUSH", push}, {"PUSH to nobody", unknown}, {"MODEL_QUERY", query}}) {
    add(std::string(name) + " without its body", kReceiving, with(request));
    auto began = with(request);
    began.send_bytes(half(frame_of_data(0, piece)));
    add(std::string(name) + " with half a frame", kReceiving, std::move(began));
    add(std::string(name) + " with a body byte by byte", kReceiving, with(request),
        dripping(frame_of_data(0, piece)));
  }
  // Each frame in time, and the body never.
  add("PUSH frame by frame", kReceiving, with(unknown), [&piece, at = uint64_t{0}](auto& c) mutable {
    c.send_bytes(frame_of_data(at, piece));
    at += piece.size();
  });
  // Peers that read nothing, or little.
  const auto pull = wire::encode_message(wire::Pull{.model = model});
  const auto small_buffer = [&] {
    auto c = connect();
    EXPECT_TRUE(transport::tcp::set_option(c.fd(), SOL_SOCKET, SO_RCVBUF, 4096));
    return c;
  };
  auto unread = small_buffer();
  unread.send_bytes(pull);
  add("PULL unread", kSending, std::move(unread));
  auto trickle = small_buffer();
  trickle.send_bytes(pull);
  add("PULL read byte by byte", kSending, std::move(trickle), [](auto& c) {
    std::array<char, 1> byte{};
    (void)::recv(c.fd(), byte.data(), 1, MSG_DONTWAIT);
  });
  add("answers unread", kAnswering, small_buffer(), [&current](auto& c) {
    for (int i = 0; i < 500; ++i)
      (void)::send(c.fd(), current.data(), current.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  expect_all_end();
}

// A request that waits for a version ends with an answer, and the connection is idle again.
TEST_F(StoreDeadlines, DoNotEndTheWaitOfARequest) {
  begin();
  auto c = connect();
  const uint64_t id = create(c);
  c.send(wire::Current{.model = id, .at_least = 9, .timeout_ms = 1500});
  EXPECT_EQ(c.expect<wire::CurrentAnswer>().version, 0U);
}

cli::StoreServiceOptions few_places() {
  cli::StoreServiceOptions options;
  options.budgets = store::BudgetOptions{.of_jobs = {.all = 6, .each = 3},
                                         .of_tenants = {.all = 6, .each = 4},
                                         .of_reducers = {.all = 2, .each = 2}};
  return options;
}

class StorePlaces : public StoreRequests {
 protected:
  StorePlaces() : StoreRequests(few_places()) {}
  void expect_refused(const std::string& job, const std::string& tenant, const std::string& text) {
    auto c = request(job, tenant);
    const auto refused = c.expect<wire::Refused>();
    EXPECT_EQ(refused.code, Errc::kTooMany);
    EXPECT_EQ(refused.text, text);
  }
};

TEST_F(StorePlaces, AreLimitedByJobAndTenantAndKeptForReducers) {
  start_with_models();
  std::vector<ScriptedConnection> held;
  for (int i = 0; i < 3; ++i) held.push_back(connect("a", "t"));
  expect_refused(
      "a", "t",
      R"(job "a" has 3 of the 3 connections to models that a job may have on this reducer, and needs )"
      "one more");
  held.push_back(connect("b", "t"));
  expect_refused(
      "b", "t",
      R"(tenant "t" has 4 of the 4 connections to models that a tenant may have on this reducer, and )"
      "needs one more");
  for (int i = 0; i < 2; ++i) held.push_back(connect("c", "u"));
  expect_refused(
      "d", "v",
      R"(all jobs have 6 of the 6 connections to models of this reducer, and job "d" needs one more)");
  // Reducers have places of their own.
  for (int i = 0; i < 2; ++i) held.push_back(connect(wire::kReducerJob));
  const auto now = status();
  EXPECT_EQ(now["store"]["clients"], 6);
  EXPECT_EQ(now["store"]["budgets"]["connections"],
            nlohmann::json::parse(R"({"used": 6, "limit": 6, "of_job": 3, "of_tenant": 4, "refused": 3})"));
  EXPECT_EQ(now["refused"]["too_many"], 3);
  held.front().close();
  EXPECT_TRUE(eventually([](const nlohmann::json& j) { return j["store"]["clients"] == 5; }));
  (void)connect("d", "v");
}

}  // namespace
}  // namespace sluice::test
