// Malformed bytes and unauthorized clients at a reducer. A valid session runs beside each test and must be
// unaffected.
#include <random>

#include "core/log.h"
#include "tests/functional/reducer_fixture.h"
#include "tests/support/temporary_file.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;
using Shape = ScriptedMember::Shape;

class BadInput : public ReducerTest {
 protected:
  void SetUp() override { begin(test_options()); }
  void begin(const reducer::ReducerOptions& options) {
    start(options);
    healthy = start_session(port(), {.session = session_id(1), .ranks = 2});
  }
  void TearDown() override {
    if (HasFatalFailure()) return;
    expect_sums(healthy, 0);
    for (auto& r : healthy) r.leave();
  }
  std::vector<ScriptedMember> healthy;
};

std::vector<std::byte> noise(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST_F(BadInput, HttpAndRandomBytesCloseTheConnectionAndAreCounted) {
  ScriptedConnection http(port());
  http.send_text(
      "GET /metrics HTTP/1.1\r\nHost: reducer\r\nUser-Agent: a scanner with a long enough name\r\n\r\n");
  EXPECT_TRUE(http.closed_within(5 * kSecond));
  ScriptedConnection random(port());
  random.send_bytes(noise(100000, 1));
  EXPECT_TRUE(random.closed_within(5 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "bad_magic", 2));
}

TEST_F(BadInput, ASilentConnectionAndAPartialFrameAreClosedAtTheDeadline) {
  auto options = test_options();
  options.handshake_timeout = 500 * kMillisecond;
  begin(options);
  ScriptedConnection silent(port());
  ScriptedConnection partial(port());
  const auto hello = wire::encode_message(wire::Hello{});
  partial.send_bytes(std::span(hello).first(hello.size() / 2));
  ScriptedConnection scanner(port());
  scanner.close();
  EXPECT_TRUE(silent.closed_within(10 * kSecond));
  EXPECT_TRUE(partial.closed_within(10 * kSecond));
  EXPECT_TRUE(eventually_counted("closed", "timeout", 2));
}

TEST_F(BadInput, InvalidHandshakeFramesAreCountedByReason) {
  const auto with = [](auto change) {
    auto bytes = wire::encode_message(wire::Hello{});
    change(bytes);
    return bytes;
  };
  const std::pair<const char*, std::vector<std::byte>> cases[] = {
      {"bad_type", with([](auto& b) { b[5] = std::byte{99}; })},
      {"bad_version", with([](auto& b) { b[4] = std::byte{0}; })},
      {"bad_length", with([](auto& b) { b[50] = std::byte{0xff}; })},
      {"bad_header_crc", with([](auto& b) { b[60] ^= std::byte{1}; })},
      {"bad_payload_crc", with([](auto& b) { b[70] ^= std::byte{1}; })},
      {"bad_field", with([](auto& b) { b[7] = std::byte{0x80}; })},
      {"unexpected_message", wire::encode_message(wire::Leave{})},
  };
  for (const auto& [reason, bytes] : cases) {
    ScriptedConnection c(port());
    c.send_bytes(bytes);
    EXPECT_TRUE(c.closed_within(5 * kSecond)) << reason;
    EXPECT_TRUE(eventually_counted("closed", reason)) << reason;
  }
  // A valid header with a payload that is too short.
  ScriptedConnection c(port());
  c.send_bytes(wire::frame_control(wire::FrameType::kHello, noise(10, 2), 0, wire::kVersionMax));
  EXPECT_TRUE(c.closed_within(5 * kSecond));
}

TEST_F(BadInput, RandomBytesOnALaneEndItsSessionAndNameTheRank) {
  auto ranks = start_session(port(), {.session = session_id(2), .ranks = 2});
  ranks[1].lanes[0].send_bytes(noise(5000, 3));
  const auto abort = ranks[0].control.expect<wire::Abort>();
  EXPECT_EQ(abort.code, Errc::kBadMagic);
  EXPECT_EQ(abort.rank, 1u);
  EXPECT_THAT(abort.text, HasSubstr("bad frame on its lane connection: bad_magic"));
}

TEST_F(BadInput, AFrameLargerThanTheSlotEndsItsSession) {
  auto ranks = start_session(port(), {.session = session_id(3), .ranks = 2});
  ranks[0].contribute(0, std::vector<float>(8192, 1.0f));  // 32 KiB, slots are 16 KiB
  EXPECT_EQ(ranks[1].control.expect<wire::Abort>().code, Errc::kBadLength);
}

TEST_F(BadInput, ACorruptContributionEndsItsSession) {
  auto ranks = start_session(port(), {.session = session_id(4), .ranks = 2});
  // The frame of contribute() with a payload that does not match its CRC.
  wire::FrameHeader h;
  h.type = wire::FrameType::kContribution;
  h.flags = wire::kFlagPayloadCrc;
  h.session = ranks[0].joined.handle;
  h.view_hash = 42;
  h.kind = wire::Kind::kAllreduce;
  h.wire_dtype = h.acc_dtype = h.result_dtype = wire::DType::kF32;
  h.length = 64;
  std::vector<std::byte> frame(wire::kHeaderBytes + 64);
  wire::encode_header(h, {}, wire::HeaderBytes(frame.data(), wire::kHeaderBytes));
  ranks[0].lanes[0].send_bytes(frame);
  EXPECT_EQ(ranks[1].control.expect<wire::Abort>().code, Errc::kBadPayloadCrc);
}

TEST_F(BadInput, APartialContributionEndsItsSessionAtTheDeadline) {
  auto options = test_options();
  options.frame_timeout = 500 * kMillisecond;
  begin(options);
  auto ranks = start_session(port(), {.session = session_id(5), .ranks = 2});
  ranks[0].lanes[0].send_bytes(noise(0, 0));
  const auto commit = wire::encode_message(wire::Commit{.incarnation = 1});
  ranks[0].lanes[0].send_bytes(std::span(commit).first(30));
  EXPECT_EQ(ranks[1].control.expect<wire::Abort>().rank, 0U);
  EXPECT_TRUE(eventually_counted("closed", "timeout"));
}

TEST_F(BadInput, AJoinOutOfRangeIsRefusedWithTheRange) {
  const std::pair<const char*, Shape> cases[] = {
      {"rank 7 is out of range: expected 0 to 1", {.session = session_id(6), .rank = 7, .ranks = 2}},
      {"number of ranks", {.session = session_id(6), .rank = 0, .ranks = 1000000}},
      {"slot bytes", {.session = session_id(6), .rank = 0, .ranks = 1, .slot_bytes = 1000}},
      {"slot bytes",
       {.session = session_id(6), .rank = 0, .ranks = 1, .window_bytes = 64 * kMiB, .slot_bytes = 32 * kMiB}},
      {"window bytes", {.session = session_id(6), .rank = 0, .ranks = 1, .window_bytes = 0xffffffff}},
      {"lanes", {.session = session_id(6), .rank = 0, .ranks = 1, .lanes = 60}},
  };
  for (const auto& [text, shape] : cases) {
    ScriptedMember m(port(), shape);
    m.join();
    EXPECT_THAT(m.control.expect<wire::Refused>().text, HasSubstr(text));
  }
  EXPECT_EQ(status()["sessions"]["open"], 1);
}

TEST_F(BadInput, AttachesThatMatchNoJoinAreRefused) {
  const auto attach = [&](wire::Hello hello, uint32_t handle, uint64_t view_hash) {
    ScriptedConnection c(port());
    hello.purpose = wire::Purpose::kLane;
    c.handshake(hello);
    c.send(wire::Attach{.handle = handle, .view_hash = view_hash, .mac = {}});
    return c.expect<wire::Refused>();
  };
  EXPECT_EQ(attach({.session = session_id(77)}, 1, 42).code, Errc::kUnknownSession);
  EXPECT_EQ(attach({.session = session_id(1)}, healthy[0].joined.handle, 42).code,
            Errc::kUnknownSession);  // no longer joining
  ScriptedMember joining(port(), {.session = session_id(8), .rank = 0, .ranks = 2});
  joining.join();
  joining.expect_joined();
  const uint32_t handle = joining.joined.handle;
  EXPECT_EQ(attach({.rank = 1, .ranks = 2, .session = session_id(8)}, handle, 42).code,
            Errc::kUnexpectedMessage);
  EXPECT_EQ(attach({.rank = 9, .ranks = 2, .session = session_id(8)}, handle, 42).code,
            Errc::kUnexpectedMessage);
  EXPECT_EQ(attach({.rank = 0, .ranks = 2, .lane = 5, .session = session_id(8)}, handle, 42).code,
            Errc::kTooMany);
  EXPECT_EQ(attach({.rank = 0, .ranks = 2, .session = session_id(8)}, handle, 41).code, Errc::kBadView);
  EXPECT_EQ(attach({.rank = 0, .ranks = 2, .session = session_id(8)}, handle + 1, 42).code,
            Errc::kUnknownSession);
}

class Authentication : public ReducerTest {
 protected:
  void SetUp() override {
    auto options = test_options();
    options.key_file = key_file_.path();
    start(options);
    for (int i = 0; i < 32; ++i) key_.push_back(static_cast<std::byte>(i));
  }
  const TemporaryFile key_file_{"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"};
  std::vector<std::byte> key_;
};

TEST_F(Authentication, AcceptsAClientWithTheTokenOfItsJob) {
  auto ranks = start_session(
      port(), {.session = session_id(1), .ranks = 2, .token = wire::job_token(key_, "a"), .job = "a"});
  expect_sums(ranks, 0);
}

TEST_F(Authentication, TheReducerProvesItsKeyToTheClient) {
  ScriptedConnection c(port());
  wire::Hello hello;
  hello.job = "a";
  const auto& welcome = c.handshake(hello);
  EXPECT_EQ(welcome.proof, 1);
  EXPECT_EQ(welcome.mac, wire::server_proof(wire::job_token(key_, "a"), hello, welcome));
}

TEST_F(Authentication, RefusesWrongAndMissingTokensWithoutAReservation) {
  std::vector<std::byte> other_key = key_;
  other_key[0] ^= std::byte{1};
  const std::optional<wire::Digest> tokens[] = {std::nullopt, wire::job_token(key_, "b"),
                                                wire::job_token(other_key, "a")};
  for (const auto& token : tokens) {
    ScriptedMember m(port(), {.session = session_id(2), .rank = 0, .ranks = 1, .token = token, .job = "a"});
    m.join();
    const auto refused = m.control.expect<wire::Refused>();
    EXPECT_EQ(refused.code, Errc::kUnauthenticated);
    EXPECT_THAT(refused.text, HasSubstr("token for job \"a\""));
  }
  EXPECT_EQ(status()["sessions"]["begun"], 0);
  EXPECT_EQ(status()["memory"]["reserved_bytes"], 0);
  EXPECT_TRUE(eventually_counted("refused", "unauthenticated", 3));
}

TEST_F(Authentication, CountsAClientThatSendsSomethingElseThanItsProof) {
  ScriptedConnection c(port());
  wire::Hello hello;
  hello.job = "a";
  c.handshake(hello);
  c.send(wire::LeaveAck{});
  EXPECT_TRUE(eventually_counted("refused", "unauthenticated", 1));
}

TEST_F(Authentication, RequiresAProofOnEveryConnection) {
  const auto token = wire::job_token(key_, "a");
  ScriptedMember m(port(), {.session = session_id(3), .rank = 0, .ranks = 1, .token = token, .job = "a"});
  m.join();
  m.expect_joined();
  ScriptedConnection lane(port());
  wire::Hello hello{
      .purpose = wire::Purpose::kLane, .rank = 0, .ranks = 1, .session = session_id(3), .job = "a"};
  lane.handshake(hello);
  lane.send(wire::Attach{.handle = m.joined.handle, .view_hash = 42, .mac = {}});
  EXPECT_EQ(lane.expect<wire::Refused>().code, Errc::kUnauthenticated);
  ScriptedConnection query(port());
  hello.purpose = wire::Purpose::kStatus;
  query.handshake(hello);
  query.send(wire::StatusQuery{});
  EXPECT_EQ(query.expect<wire::Refused>().code, Errc::kUnauthenticated);
}

// `sluice status` shows session ids, so a token must open only sessions of its own job.
TEST_F(Authentication, ATokenCannotJoinASessionOfAnotherJob) {
  const Shape own{.session = session_id(4), .ranks = 2, .token = wire::job_token(key_, "a"), .job = "a"};
  Shape foreign = own;
  foreign.token = wire::job_token(key_, "b");
  foreign.job = "b";
  const auto join_as_stranger = [&](uint32_t rank) {
    foreign.rank = rank;
    ScriptedMember stranger(port(), foreign);
    stranger.join();
    return stranger.control.expect<wire::Refused>();
  };

  ScriptedMember first(port(), own);
  first.join();
  first.expect_joined();
  const auto refused = join_as_stranger(1);
  EXPECT_EQ(refused.code, Errc::kUnauthenticated);
  EXPECT_THAT(refused.text, HasSubstr("does not belong to job \"b\""));
  foreign.window_bytes *= 2;  // a mismatch must not end the join of the others
  EXPECT_EQ(join_as_stranger(1).code, Errc::kUnauthenticated);

  ScriptedConnection lane(port());
  wire::Hello hello{
      .purpose = wire::Purpose::kLane, .rank = 0, .ranks = 2, .session = session_id(4), .job = "b"};
  lane.handshake(hello);
  wire::Attach attach{.handle = first.joined.handle, .view_hash = own.view_hash, .mac = {}};
  attach.mac = lane.proof(*foreign.token, attach.view_hash);
  lane.send(attach);
  EXPECT_EQ(lane.expect<wire::Refused>().code, Errc::kUnauthenticated);

  // The session is unaffected.
  std::vector<ScriptedMember> ranks;
  ranks.push_back(std::move(first));
  Shape second = own;
  second.rank = 1;
  ranks.emplace_back(port(), second);
  ranks[1].join();
  ranks[1].expect_joined();
  for (auto& r : ranks) r.attach();
  for (auto& r : ranks) r.vote_yes();
  for (auto& r : ranks) r.commit();
  expect_sums(ranks, 0);
  EXPECT_EQ(join_as_stranger(0).code, Errc::kUnauthenticated);

  const auto query_verdict = [&](const Shape& shape) {
    ScriptedConnection query(port());
    query.handshake({.purpose = wire::Purpose::kVerdict, .session = session_id(4), .job = shape.job});
    query.send(wire::VerdictQuery{.mac = query.proof(*shape.token, 0)});
    return query.expect<wire::Verdict>();
  };
  EXPECT_EQ(query_verdict(foreign).reason.code, Errc::kUnknownSession);
  EXPECT_EQ(query_verdict(own).incarnation, ranks[0].incarnation);
  expect_sums(ranks, 1);
}

TEST(ReducerStart, RefusesANonLoopbackAddressWithoutAKey) {
  reducer::ReducerOptions options;
  options.listen_host = "0.0.0.0";
  options.listen_port = 0;
  const auto refused = reducer::Reducer::start(options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("needs a key file"));
}

class ConnectionLimit : public ReducerTest {};

TEST_F(ConnectionLimit, IsToldToClientsBeyondIt) {
  auto options = test_options();
  options.max_connections = 2;
  start(options);
  std::vector<ScriptedConnection> served, refused;
  for (uint32_t rank = 0; rank < 2; ++rank) {  // they wait for a third rank
    served.emplace_back(port()).handshake({.purpose = wire::Purpose::kGather, .rank = rank, .ranks = 3});
    served.back().send(wire::Gather{.round = 1, .timeout_ms = 20'000, .data = {}, .mac = {}});
  }
  ASSERT_TRUE(eventually([](const nlohmann::json& j) {
    return j["connections"]["open"] == 2 && j["connections"]["unproved"] == 0;
  }));
  for (int i = 0; i < 40; ++i) refused.emplace_back(port());
  const auto first = refused.front().expect<wire::Refused>();
  EXPECT_EQ(first.code, Errc::kTooMany);
  EXPECT_EQ(first.text,
            "the reducer serves its maximum of 2 connections in the handshake and control connections");
  // No more than the reserve are kept until they have read the reason; all are closed.
  EXPECT_TRUE(eventually_counted("refused", "too_many", 40));
  for (auto& c : refused) EXPECT_TRUE(c.closed_within(10 * kSecond));
  served.clear();
  EXPECT_TRUE(eventually([this](const nlohmann::json&) {
    ScriptedConnection c(port());
    c.send(wire::Hello{.purpose = wire::Purpose::kStatus});
    const auto answer = c.receive();
    return answer && answer->header.type == wire::FrameType::kWelcome;
  }));
}

std::string last_warning;  // global, because a log sink is a plain function

TEST(ReducerStart, ReportsRefusedSocketOptions) {
  reducer::ReducerOptions options;
  options.listen_port = 0;
  options.lanes = 1;
  options.congestion_control = "carrier_pigeon";
  const auto refused = reducer::Reducer::start(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
  EXPECT_THAT(refused.error().text, HasSubstr("cannot set congestion control \"carrier_pigeon\""));

  options.congestion_control.clear();
  options.socket_buffer = size_t{1} << 40;  // more than any host allows
  log::set_sink([](log::Level level, std::string_view line) noexcept {
    if (level == log::Level::kWarn) last_warning = line;
  });
  const auto started = reducer::Reducer::start(options);
  log::set_sink(nullptr);
  EXPECT_TRUE(started);
  EXPECT_THAT(last_warning, HasSubstr("net.core.rmem_max"));
}

TEST(ReducerStart, ReportsAPortInUseAndAMissingKeyFile) {
  reducer::ReducerOptions options;
  options.listen_port = 0;
  options.lanes = 1;
  auto first = reducer::Reducer::start(options);
  ASSERT_TRUE(first);
  options.listen_port = (*first)->port();
  const auto second = reducer::Reducer::start(options);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().text, HasSubstr("in use"));
  options.key_file = "/nonexistent/key";
  const auto third = reducer::Reducer::start(options);
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().text, HasSubstr("/nonexistent/key"));
}

}  // namespace
}  // namespace sluice::test
