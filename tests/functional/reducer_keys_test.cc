// A reducer's pool keys: which of two keys a client proves, what a reload changes, and what the reducer
// counts and logs about its clients.
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "config/secret_file.h"
#include "core/log.h"
#include "gpu_client/engine/join/handshake.h"
#include "tests/functional/reducer_fixture.h"
#include "tests/support/temporary_file.h"

namespace sluice::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::mutex log_mutex;
std::vector<std::string> log_lines;  // guarded by log_mutex

class ReducerKeys : public ReducerTest {
 protected:
  using Shape = ScriptedMember::Shape;

  ReducerKeys() {
    log_lines.clear();
    log::set_sink([](log::Level /*level*/, std::string_view line) noexcept {
      const std::scoped_lock lock(log_mutex);
      log_lines.emplace_back(line);
    });
  }
  ~ReducerKeys() override {
    reducer.reset();
    log::set_sink(nullptr);
  }

  static config::Secret key(uint8_t first) {
    config::Secret out{};
    out[0] = first;
    return out;
  }
  static wire::Digest token(uint8_t first, const std::string& job = "train-7") {
    const config::Secret of = key(first);
    return wire::job_token(std::as_bytes(std::span(of)), job);
  }
  void write_keys(const std::vector<uint8_t>& keys) {
    std::string text;
    for (const uint8_t first : keys) text += config::secret_text(key(first));
    file_.emplace(text);
    options_.key_file = file_->path();
  }
  void rewrite_keys(const std::vector<uint8_t>& keys) {
    std::string text;
    for (const uint8_t first : keys) text += config::secret_text(key(first));
    std::ofstream(file_->path(), std::ios::trunc) << text;
  }
  void start_with_keys(const std::vector<uint8_t>& keys) {
    write_keys(keys);
    start(options_);
  }
  static Shape member(uint8_t session, uint8_t key, bool sends_key_id = true) {
    return {.session = session_id(session),
            .ranks = 2,
            .token = token(key),
            .sends_key_id = sends_key_id,
            .job = "train-7",
            .tenant = "acme"};
  }
  // The answer to HELLO: WELCOME proves this key.
  [[nodiscard]] bool proves(uint8_t proven, const wire::Hello& hello) const {
    ScriptedConnection c(port());
    const auto welcome = c.handshake(hello);
    return welcome.mac == wire::server_proof(token(proven), hello, welcome);
  }
  static wire::Hello query_of(std::optional<uint8_t> key) {
    wire::Hello hello{.purpose = wire::Purpose::kStatus, .job = "train-7"};
    hello.nonce[5] = 9;
    if (key) hello.key_id = wire::key_id(token(*key), hello.nonce);
    return hello;
  }
  static std::vector<std::string> lines_with(const std::string& text) {
    const std::scoped_lock lock(log_mutex);
    std::vector<std::string> out;
    for (const std::string& line : log_lines) {
      if (line.find(text) != std::string::npos) out.push_back(line);
    }
    return out;
  }
  [[nodiscard]] bool eventually_logged(const std::string& text, size_t count = 1) const {
    return eventually([&](const nlohmann::json&) { return lines_with(text).size() >= count; });
  }
  [[nodiscard]] uint64_t unauthenticated() const {
    return status()["refused"].value("unauthenticated", uint64_t{0});
  }

  std::optional<TemporaryFile> file_;
  reducer::ReducerOptions options_ = test_options();
};

TEST_F(ReducerKeys, OnlyAHolderOfAPoolKeyDrainsTheReducer) {
  start_with_keys({2, 1});
  const auto request = [&](const char* job, const wire::Digest& secret, bool sends_key_id, auto answer) {
    wire::Hello hello{.purpose = wire::Purpose::kDrain, .job = job};
    if (sends_key_id) hello.key_id = wire::key_id(secret, hello.nonce);
    ScriptedConnection c(port());
    EXPECT_NE(c.handshake(hello).features & wire::kFeatureDrain, 0u);
    c.send(wire::StatusQuery{.mac = c.proof(secret, 0)});
    return c.expect<decltype(answer)>();
  };
  const auto of_job = request("train-7", token(1), true, wire::Refused{});
  EXPECT_EQ(of_job.code, Errc::kUnauthenticated);
  EXPECT_THAT(of_job.text, HasSubstr("a job token is not enough"));
  EXPECT_EQ(request(wire::kReducerJob, token(2), false, wire::Refused{}).code, Errc::kUnauthenticated);
  EXPECT_EQ(request(wire::kReducerJob, wire::Digest{}, false, wire::Refused{}).code, Errc::kUnauthenticated);
  EXPECT_EQ(unauthenticated(), 3u);
  EXPECT_FALSE(status()["draining"]);

  auto ranks = start_session(port(), member(1, 1));
  for (const uint8_t held : {uint8_t{1}, uint8_t{2}}) {  // a second request changes nothing
    (void)request(wire::kReducerJob, token(held, wire::kReducerJob), true, wire::StatusReply{});
    EXPECT_TRUE(eventually([](const nlohmann::json& j) { return j["draining"] == true; }));
  }
  EXPECT_EQ(lines_with("draining: 1 sessions left").size(), 1u);
  expect_sums(ranks, 0);
  for (auto& rank : ranks) rank.leave();
  EXPECT_EQ(reducer->wait(), reducer::ExitReason::kDrained);
}

TEST_F(ReducerKeys, TheKeyIdSelectsTheKey) {
  start_with_keys({2, 1});
  EXPECT_TRUE(proves(2, query_of(2)));
  EXPECT_TRUE(proves(1, query_of(1)));
  EXPECT_TRUE(proves(2, query_of(std::nullopt))) << "an earlier client gets the proof of the first key";
  for (const uint8_t held : {uint8_t{1}, uint8_t{2}}) {
    auto ranks = start_session(port(), member(held, held));
    expect_sums(ranks, 0);
    for (auto& rank : ranks) rank.leave();
  }
  auto earlier = start_session(port(), member(3, 2, false));
  expect_sums(earlier, 0);
  EXPECT_THROW((void)start_session(port(), member(4, 1, false)), std::runtime_error);
}

// As a reducer connects to another one of its pool, which has reread its keys earlier or later.
TEST_F(ReducerKeys, AHolderOfBothKeysIsServedWithEither) {
  engine::Identity identity;
  identity.job = "train-7";
  identity.token = token(2);
  identity.old_token = token(1);
  for (const std::vector<uint8_t>& keys : {std::vector<uint8_t>{1}, {2, 1}, {2}}) {
    start_with_keys(keys);
    const Nanos deadline = monotonic_now() + 10 * kSecond;
    const auto c = engine::connect_and_handshake({.host = "127.0.0.1", .port = port()}, identity,
                                                 wire::Purpose::kStatus, 0, 0, deadline);
    ASSERT_TRUE(c) << c.error().text;
    EXPECT_EQ(c->token, token(keys.front()));
    const wire::StatusQuery query{.mac = engine::client_proof(*c, 0)};
    EXPECT_TRUE(engine::send_request<wire::StatusReply>(*c, query, deadline));
    EXPECT_EQ(unauthenticated(), 0u);
  }
  start_with_keys({3});
  const auto refused =
      engine::connect_and_handshake({.host = "127.0.0.1", .port = port()}, identity, wire::Purpose::kStatus,
                                    0, 0, monotonic_now() + 10 * kSecond);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kUnauthenticated);
  EXPECT_TRUE(eventually_counted("refused", "unauthenticated"));
}

TEST_F(ReducerKeys, ATokenOfNoKeyIsRefusedAtItsHello) {
  start_with_keys({2, 1});
  ScriptedConnection c(port());
  c.send(query_of(3));
  const auto refused = c.expect<wire::Refused>();
  EXPECT_EQ(refused.code, Errc::kUnauthenticated);
  EXPECT_THAT(refused.text, HasSubstr("wrong token for job \"train-7\""));
  wire::Hello other_job = query_of(1);
  other_job.job = "train-8";
  ScriptedConnection d(port());
  d.send(other_job);
  EXPECT_EQ(d.expect<wire::Refused>().code, Errc::kUnauthenticated);
  EXPECT_EQ(unauthenticated(), 2u);
  EXPECT_THAT(lines_with("unauthenticated: 127.0.0.1:"),
              ElementsAre(HasSubstr("as job \"train-7\": wrong token"), HasSubstr("as job \"train-8\"")));
}

TEST_F(ReducerKeys, AClientThatLeavesWithoutAProofIsCounted) {
  start_with_keys({2, 1});
  ScriptedConnection stranger(port());
  (void)stranger.handshake(query_of(std::nullopt));
  stranger.close();
  EXPECT_TRUE(eventually_counted("refused", "unauthenticated"));
  EXPECT_TRUE(eventually_logged("left without proving a token"));
  EXPECT_THAT(lines_with("unauthenticated: ")[0],
              AllOf(HasSubstr("127.0.0.1:"), HasSubstr("as job \"train-7\"")));
  // A client with a key id holds the token. Its job may have ended for any reason.
  ScriptedConnection holder(port());
  (void)holder.handshake(query_of(1));
  const uint64_t closed = status()["closed"].value("closed", uint64_t{0});
  holder.close();
  EXPECT_TRUE(eventually_counted("closed", "closed", closed + 1));
  EXPECT_EQ(unauthenticated(), 1u);
}

TEST_F(ReducerKeys, AReducerWithoutAKeyCountsNothing) {
  start(options_);
  ScriptedConnection c(port());
  (void)c.handshake(query_of(1));
  c.close();
  EXPECT_TRUE(eventually_counted("closed", "closed"));
  EXPECT_EQ(unauthenticated(), 0u);
}

TEST_F(ReducerKeys, LinesAboutUnauthenticatedClientsAreBoundedAndCounted) {
  start_with_keys({1});
  for (int i = 0; i < 50; ++i) {
    ScriptedConnection c(port());
    wire::Hello hello = query_of(7);
    hello.job = "a\nlevel=error \"" + std::to_string(i);
    c.send(hello);
    (void)c.expect<wire::Refused>();
  }
  EXPECT_EQ(unauthenticated(), 50u);
  EXPECT_EQ(lines_with("unauthenticated: 127.0.0.1:").size(), 20u);
  engine::Identity elsewhere;  // must not be hidden by them
  elsewhere.token = token(7);
  elsewhere.interface_address = "127.0.0.2";
  EXPECT_FALSE(engine::connect_and_handshake({.host = "127.0.0.1", .port = port()}, elsewhere,
                                             wire::Purpose::kStatus, 0, 0, monotonic_now() + 10 * kSecond));
  EXPECT_EQ(lines_with("unauthenticated: 127.0.0.2:").size(), 1u);
  EXPECT_TRUE(lines_with("\n").empty()) << "a client chose the name of its job";
  reducer->stop();
  (void)reducer->wait();
  EXPECT_EQ(lines_with("unauthenticated: 30 more connections from 127.0.0.1 in the same minute").size(), 1u);
}

TEST_F(ReducerKeys, AReloadAddsAndDropsKeysForLaterConnections) {
  start_with_keys({1});
  auto old = start_session(port(), member(1, 1));
  rewrite_keys({2, 1});
  ASSERT_TRUE(reducer->reconfigure(options_));
  EXPECT_TRUE(eventually_logged("2 ranks joined with the old pool key"));
  EXPECT_TRUE(proves(2, query_of(std::nullopt)));
  auto added = start_session(port(), member(2, 2));
  auto still_old = start_session(port(), member(3, 1));
  expect_sums(old, 0);
  rewrite_keys({2});
  ASSERT_TRUE(reducer->reconfigure(options_));
  EXPECT_EQ(lines_with("4 ranks joined with a pool key that was removed").size(), 1u);
  // Sessions go on; new connections need a key that the reducer has.
  expect_sums(old, 1);
  expect_sums(still_old, 0);
  expect_sums(added, 0);
  const uint64_t before = unauthenticated();
  ScriptedMember late(port(), member(4, 1));
  EXPECT_THROW(late.join(), std::runtime_error);
  EXPECT_EQ(unauthenticated(), before + 1);
}

TEST_F(ReducerKeys, AReconnectNeedsAKeyThatTheReducerHas) {
  start_with_keys({1});
  auto shape = member(1, 1);
  shape.features = wire::kFaultToleranceFeatures;
  auto ranks = start_session(port(), shape);
  rewrite_keys({2});
  ASSERT_TRUE(reducer->reconfigure(options_));
  EXPECT_EQ(lines_with("2 ranks joined with a pool key that was removed").size(), 1u);
  EXPECT_THROW((void)ranks[0].request_resume(), std::runtime_error);
  rewrite_keys({2, 1});
  ASSERT_TRUE(reducer->reconfigure(options_));
  EXPECT_TRUE(eventually([&](const nlohmann::json&) {
    ScriptedConnection c(port());
    c.send(query_of(1));
    return c.receive()->header.type == wire::FrameType::kWelcome;
  }));
  (void)ranks[0].resume();
}

TEST_F(ReducerKeys, AReloadReadsTheOtherFileIfItExists) {
  write_keys({1});
  TemporaryFile reloaded(config::secret_text(key(2)));
  options_.reload_key_file = reloaded.path() + ".absent";
  start(options_);
  rewrite_keys({3});
  ASSERT_TRUE(reducer->reconfigure(options_));
  EXPECT_TRUE(eventually([&](const nlohmann::json&) { return proves(3, query_of(std::nullopt)); }));
  std::filesystem::copy(reloaded.path(), options_.reload_key_file);
  ASSERT_TRUE(reducer->reconfigure(options_));
  EXPECT_TRUE(eventually([&](const nlohmann::json&) { return proves(2, query_of(std::nullopt)); }));
  std::ofstream(options_.reload_key_file, std::ios::trunc) << "no key\n";
  const auto refused = reducer->reconfigure(options_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr(options_.reload_key_file + ": expected 64 hex digits"));
  EXPECT_TRUE(proves(2, query_of(2)));
  std::filesystem::remove(options_.reload_key_file);
}

TEST_F(ReducerKeys, OneAuditLineForEachSession) {
  start_with_keys({2, 1});
  auto first = start_session(port(), member(1, 1));
  EXPECT_TRUE(eventually_logged("audit: "));
  EXPECT_THAT(
      lines_with("audit: "),
      ElementsAre("audit: session of job \"train-7\", tenant \"acme\", 2 of 2 ranks from 127.0.0.1 (2), 2 "
                  "of them with the old key: started"));
  for (auto& rank : first) rank.leave();
  // A session that does not start has its line too.
  auto alone = member(2, 2);
  alone.join_timeout_ms = 1;
  auto waiting = join(alone);
  EXPECT_TRUE(eventually_logged("audit: ", 2));
  EXPECT_THAT(lines_with("audit: ")[1], HasSubstr("1 of 2 ranks from 127.0.0.1: did not start"));
  const std::scoped_lock lock(log_mutex);
  for (const uint8_t session : {uint8_t{1}, uint8_t{2}})
    EXPECT_THAT(log_lines, Not(Contains(HasSubstr(to_string(session_id(session)))))) << "a secret";
}

TEST_F(ReducerKeys, TheAuditLineTellsTheKeysAsTheyAreThen) {
  start_with_keys({1});
  auto shape = member(1, 1);
  auto first = join(shape);
  rewrite_keys({2, 1});
  ASSERT_TRUE(reducer->reconfigure(options_));
  EXPECT_TRUE(eventually_logged("1 ranks joined with the old pool key"));
  shape.rank = 1;
  auto second = join(shape);
  disconnect(second);
  EXPECT_TRUE(eventually_logged("audit: "));
  EXPECT_THAT(lines_with("audit: ")[0], HasSubstr("1 of them with the old key"));
}

TEST_F(ReducerKeys, AuditLinesAreBoundedForEachJobAndCounted) {
  start(options_);
  for (uint8_t i = 1; i <= 40; ++i) {
    auto ranks = start_session(port(), {.session = session_id(i), .job = "loop"});
    ranks[0].leave();
  }
  auto other = start_session(port(), {.session = session_id(99), .job = "other"});
  EXPECT_TRUE(eventually_logged("audit: session of job \"other\""));
  EXPECT_EQ(lines_with("audit: session of job \"loop\"").size(), 30u);
  reducer->stop();
  (void)reducer->wait();
  EXPECT_THAT(lines_with("more sessions"),
              ElementsAre(HasSubstr("audit: 10 more sessions and connections to models "
                                    "of job \"loop\"")));
}

}  // namespace
}  // namespace sluice::test
