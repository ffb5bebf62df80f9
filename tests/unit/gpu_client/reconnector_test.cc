#include "gpu_client/engine/recovery/reconnector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <latch>
#include <memory>
#include <utility>

#include "core/clock.h"
#include "tests/support/reserved_port.h"
#include "tests/unit/gpu_client/scripted_listener.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"

namespace sluice::engine {
namespace {

using test::ScriptedListener;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Connection = ScriptedListener::Connection;

constexpr uint64_t kId = 77;
constexpr uint64_t kIncarnation = 4711;
constexpr uint64_t kViewHash = 0x1234;
constexpr uint32_t kHandle = 9;
constexpr uint32_t kSlots = 5;
constexpr Nanos kLong = 3600 * kSecond;  // longer than ctest's timeout

class ReconnectorTest : public ::testing::Test, protected Reconnector::Listener {
 protected:
  // Options whose timeouts never expire.
  static ReconnectorOptions options_without_timeouts(uint16_t port) {
    ReconnectorOptions o;
    o.name = "reducer x";
    o.address = {.host = "127.0.0.1", .port = port, .weight = 1};
    o.identity.rank = 1;
    o.identity.ranks = 2;
    o.identity.fault_tolerant = true;
    o.incarnation = kIncarnation;
    o.view_hash = kViewHash;
    o.reducer = kId;
    o.handle = kHandle;
    o.slots = kSlots;
    o.resume_timeout = kLong;
    o.refusal_grace = kLong;
    o.try_timeout = kLong;
    o.first_pause = kMillisecond;
    o.longest_pause = 5 * kMillisecond;
    return o;
  }
  void begin(const ReconnectorOptions& options) {
    reconnector_ = std::make_unique<Reconnector>(options, static_cast<Reconnector::Listener&>(*this));
  }
  void TearDown() override { reconnector_.reset(); }

  // Accepts the connection and checks HELLO and ATTACH.
  static ScriptedListener::Step accepts(wire::Purpose purpose, uint32_t lane = 0) {
    return [=](Connection& c) {
      const wire::Hello hello = ScriptedListener::welcome(c, kId);
      EXPECT_EQ(hello.purpose, purpose);
      EXPECT_EQ(hello.lane, lane);
      EXPECT_EQ(hello.rank, 1u);
      EXPECT_EQ(hello.incarnation, kIncarnation);
      EXPECT_EQ(hello.features, wire::kFaultToleranceFeatures | wire::kFeatureTreeOrder);
      const auto attach = c.expect<wire::Attach>();
      EXPECT_EQ(attach.handle, kHandle);
      EXPECT_EQ(attach.view_hash, kViewHash);
      c.send(wire::Attached{.slots = purpose == wire::Purpose::kControl ? 0 : kSlots}, kHandle);
    };
  }
  static ScriptedListener::Step refuses(Errc code, const char* text) {
    return [=](Connection& c) {
      static_cast<void>(ScriptedListener::welcome(c, kId));
      static_cast<void>(c.expect<wire::Attach>());
      wire::Refused refused;
      refused.code = code;
      refused.text = text;
      c.send(refused);
    };
  }
  static void closes(Connection& c) { c.close(); }
  static void ignores(Connection& c) { static_cast<void>(c.expect<wire::Hello>()); }
  static void is_replaced(Connection& c) { static_cast<void>(ScriptedListener::welcome(c, kId + 1)); }

  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }
  bool wait_for_failure() {
    return wait([&] { return failure_ != Errc::kOk; });
  }
  void set(const std::function<void()>& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  void on_control_reconnected(uint64_t reducer, ControlConnection connection) noexcept override {
    EXPECT_EQ(reducer, kId);
    set([&] { controls_.push_back(std::move(connection)); });
  }
  void on_lane_reconnected(uint64_t reducer, uint32_t lane, transport::tcp::Socket socket) noexcept override {
    EXPECT_EQ(reducer, kId);
    if (repeats_ > 0) {
      --repeats_;
      EXPECT_TRUE(reconnector_->request(false, uint64_t{1} << lane).has_value());
    }
    set([&] { lanes_.push_back(lane), sockets_.push_back(std::move(socket)); });
  }
  void on_reconnect_failed(uint64_t reducer, Errc code, std::string text) noexcept override {
    EXPECT_EQ(reducer, kId);
    set([&] { ++failures_, failure_ = code, text_ = std::move(text); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ControlConnection> controls_;
  std::vector<uint32_t> lanes_;
  std::vector<transport::tcp::Socket> sockets_;
  int failures_ = 0;
  Errc failure_ = Errc::kOk;
  std::string text_;
  int repeats_ = 0;  // how many more times a lane connection breaks as soon as it is opened
  std::unique_ptr<Reconnector> reconnector_;
};

TEST_F(ReconnectorTest, ReopensTheControlConnectionFirst) {
  ScriptedListener reducer;
  reducer.serve({accepts(wire::Purpose::kControl), accepts(wire::Purpose::kLane, 0), [](Connection& c) {
                   accepts(wire::Purpose::kLane, 63)(c);
                   EXPECT_EQ(c.expect<wire::Resume>().results_held, 3u);
                 }});
  begin(options_without_timeouts(reducer.port()));
  ASSERT_TRUE(reconnector_->request(true, 1 | uint64_t{1} << 63).has_value());
  ASSERT_TRUE(wait([&] { return lanes_.size() == 2; }));
  EXPECT_EQ(controls_.size(), 1u);
  EXPECT_EQ(controls_[0].name(), "reducer x");
  EXPECT_THAT(lanes_, ElementsAre(0, 63));
  // Nothing was sent on the socket after ATTACHED.
  const auto resume = wire::encode_message(wire::Resume{.results_held = 3}, kHandle);
  EXPECT_TRUE(transport::tcp::write_all(sockets_[1], resume, monotonic_now() + kSecond).ok());
  reducer.finish();
  EXPECT_EQ(failures_, 0);
}

TEST_F(ReconnectorTest, RetriesFailedAttempts) {
  const auto closes_after_welcome = [](Connection& c) {
    static_cast<void>(ScriptedListener::welcome(c, kId));
    c.close();
  };
  const auto is_unknown = refuses(Errc::kUnknownSession, "not committed");
  const struct {
    const char* name;
    std::vector<ScriptedListener::Step> failures;
    Nanos try_timeout;
    Nanos refusal_grace;
  } cases[] = {{"two closed connections", {closes, closes_after_welcome}, kLong, kLong},
               {"no answer", {ignores}, kSecond, kLong},
               {"refusals within the grace period", {is_unknown, is_unknown}, kLong, kLong},
               {"another refusal", {refuses(Errc::kTooMany, "busy")}, kLong, 0}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    ScriptedListener reducer;
    std::vector<ScriptedListener::Step> steps = c.failures;
    steps.push_back(accepts(wire::Purpose::kControl));
    reducer.serve(std::move(steps));
    ReconnectorOptions o = options_without_timeouts(reducer.port());
    o.try_timeout = c.try_timeout;
    o.refusal_grace = c.refusal_grace;
    begin(o);
    ASSERT_TRUE(reconnector_->request(true, 0).has_value());
    EXPECT_TRUE(wait([&] { return controls_.size() == 1; }));
    EXPECT_EQ(failures_, 0);
    reconnector_->stop();
    controls_.clear();
  }
}

TEST_F(ReconnectorTest, ReportsTheCauseOfAFailure) {
  const struct {
    const char* name;
    ScriptedListener::Step step;
    Nanos resume_timeout;
    Errc code;
    const char* text;
  } cases[] = {{"unknown session after the grace period", refuses(Errc::kUnknownSession, "no such session"),
                kLong, Errc::kUnknownSession, "no such session"},
               {"another process answers", is_replaced, kLong, Errc::kReducerLost, "another process"},
               {"no answer before the deadline", ignores, kSecond, Errc::kTimeout,
                "not reconnected within 1000 ms: reducer x: timed out"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    ScriptedListener reducer;
    reducer.serve({c.step});
    ReconnectorOptions o = options_without_timeouts(reducer.port());
    o.resume_timeout = c.resume_timeout;
    o.refusal_grace = 0;
    begin(o);
    ASSERT_TRUE(reconnector_->request(true, 0).has_value());
    ASSERT_TRUE(wait_for_failure());
    EXPECT_EQ(failure_, c.code);
    EXPECT_THAT(text_, HasSubstr(c.text));
    reconnector_->stop();
    failure_ = Errc::kOk;
  }
}

TEST_F(ReconnectorTest, TriesTheNextConnectionAfterAFailure) {
  ScriptedListener reducer;
  reducer.serve({accepts(wire::Purpose::kLane, 0), closes, accepts(wire::Purpose::kLane, 2),
                 accepts(wire::Purpose::kLane, 1)});
  begin(options_without_timeouts(reducer.port()));
  ASSERT_TRUE(reconnector_->request(false, 0b111).has_value());
  ASSERT_TRUE(wait([&] { return lanes_.size() == 3; }));
  EXPECT_THAT(lanes_, ElementsAre(0, 2, 1));
}

TEST_F(ReconnectorTest, AcceptsRequestsDuringAnAttempt) {
  ScriptedListener reducer;
  std::latch attempted(1), requested(1);
  reducer.serve({[&](Connection& c) {
                   attempted.count_down();
                   requested.wait();
                   accepts(wire::Purpose::kLane, 1)(c);
                 },
                 accepts(wire::Purpose::kLane, 4)});
  begin(options_without_timeouts(reducer.port()));
  ASSERT_TRUE(reconnector_->request(false, 0b10).has_value());
  attempted.wait();
  ASSERT_TRUE(reconnector_->request(false, 0b10010).has_value());
  requested.count_down();
  ASSERT_TRUE(wait([&] { return lanes_.size() == 2; }));
  reducer.finish();
  reconnector_->stop();
  EXPECT_THAT(lanes_, ElementsAre(1, 4)) << "lane 1 is reopened once";
  EXPECT_FALSE(reducer.has_connection());
}

TEST_F(ReconnectorTest, AcceptsRequestsFromItsThreadAndAfterThatHasEnded) {
  ScriptedListener reducer;
  reducer.serve({accepts(wire::Purpose::kLane, 3), accepts(wire::Purpose::kLane, 3),
                 accepts(wire::Purpose::kLane, 0), accepts(wire::Purpose::kControl)});
  begin(options_without_timeouts(reducer.port()));
  repeats_ = 1;
  ASSERT_TRUE(reconnector_->request(false, 0b1000).has_value());
  ASSERT_TRUE(wait([&] { return lanes_.size() == 2; }));
  ASSERT_TRUE(reconnector_->request(false, 0b1).has_value());
  ASSERT_TRUE(wait([&] { return lanes_.size() == 3; }));
  ASSERT_TRUE(reconnector_->request(true, 0).has_value());
  ASSERT_TRUE(wait([&] { return controls_.size() == 1; }));
  EXPECT_THAT(lanes_, ElementsAre(3, 3, 0));
}

TEST_F(ReconnectorTest, FailsWhenNothingListensAfterTheGracePeriod) {
  const sluice::test::ReservedPort closed;
  ReconnectorOptions o = options_without_timeouts(closed.number());
  o.refusal_grace = 30 * kMillisecond;
  begin(o);
  ASSERT_TRUE(reconnector_->request(true, 1).has_value());
  ASSERT_TRUE(wait_for_failure());
  EXPECT_EQ(failure_, Errc::kReset);
  EXPECT_THAT(text_, HasSubstr("reducer x: "));
  EXPECT_THAT(text_, HasSubstr("connection refused"));
}

TEST_F(ReconnectorTest, HasNoEffectAfterAFailure) {
  ScriptedListener reducer;
  reducer.serve({is_replaced});
  begin(options_without_timeouts(reducer.port()));
  ASSERT_TRUE(reconnector_->request(true, 0b11).has_value());
  ASSERT_TRUE(wait_for_failure());
  reducer.finish();
  ASSERT_TRUE(reconnector_->request(true, 0b11).has_value());
  EXPECT_FALSE(reducer.has_connection(100));
  reconnector_->stop();
  EXPECT_EQ(failures_, 1);
}

TEST_F(ReconnectorTest, RepeatedRequestsDoNotExtendTheDeadline) {
  const ScriptedListener reducer;  // accepts connections and sends nothing
  ReconnectorOptions o = options_without_timeouts(reducer.port());
  o.resume_timeout = 100 * kMillisecond;
  o.try_timeout = 10 * kMillisecond;
  begin(o);
  const auto has_failed = [&] {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(1), [&] { return failure_ != Errc::kOk; });
  };
  for (const Nanos deadline = monotonic_now() + 20 * kSecond; !has_failed() && monotonic_now() < deadline;)
    ASSERT_TRUE(reconnector_->request(true, 1).has_value());
  EXPECT_EQ(failure_, Errc::kTimeout);
}

// A connection that breaks at once counts as never opened. It is retried with pauses until the deadline of
// the first break.
TEST_F(ReconnectorTest, ConnectionsThatBreakAtOnceDoNotExtendTheDeadline) {
  const ScriptedListener reducer;
  ReconnectorOptions o = options_without_timeouts(reducer.port());
  o.resume_timeout = kSecond;
  o.first_pause = 20 * kMillisecond;
  o.longest_pause = 200 * kMillisecond;
  begin(o);
  std::vector<Connection> connections;
  const auto has_failed = [&] {
    const std::lock_guard lock(mutex_);
    return failure_ != Errc::kOk;
  };
  // Each attempt runs on another thread, because the previous one has ended before the break is requested.
  for (const Nanos deadline = monotonic_now() + 20 * kSecond; !has_failed() && monotonic_now() < deadline;) {
    ASSERT_TRUE(reconnector_->request(false, 0b1).has_value());
    while (!has_failed() && !reducer.has_connection(5)) continue;
    if (has_failed()) break;
    connections.push_back(reducer.accept());
    try {
      accepts(wire::Purpose::kLane)(connections.back());
    } catch (const std::exception&) {
      break;  // the deadline expired during the handshake
    }
    ASSERT_TRUE(wait([&] { return lanes_.size() == connections.size() || failure_ != Errc::kOk; }));
  }
  ASSERT_TRUE(wait_for_failure());
  EXPECT_EQ(failure_, Errc::kTimeout);
  // Pauses of at least 10, 20, 40, 80, 100, 100, ... ms.
  EXPECT_LT(connections.size(), 24u);
}

// A listener with a full accept queue drops SYN packets, as an absent host does.
class UnresponsiveListener {
 public:
  UnresponsiveListener() {
    for (int i = 0; i < 10; ++i) {
      auto s = transport::tcp::connect_to("127.0.0.1", port(), {}, monotonic_now() + 200 * kMillisecond);
      if (!s) return;
      queue_.push_back(std::move(*s));
    }
    full_ = false;
  }
  [[nodiscard]] bool full() const noexcept { return full_; }
  [[nodiscard]] uint16_t port() const noexcept { return reducer_.port(); }

 private:
  ScriptedListener reducer_{0};
  std::vector<transport::tcp::Socket> queue_;
  bool full_ = true;
};

// Waits until the kernel has a connection to the port in state SYN_SENT.
bool wait_for_syn(uint16_t port) {
  std::array<char, 32> entry{};
  std::snprintf(entry.data(), entry.size(), " 0100007F:%04X 02 ", port);
  for (const Nanos deadline = monotonic_now() + 20 * kSecond; monotonic_now() < deadline;) {
    std::ifstream table("/proc/self/net/tcp");
    for (std::string line; std::getline(table, line);) {
      if (line.find(entry.data()) != std::string::npos) return true;
    }
    std::this_thread::yield();
  }
  return false;
}

TEST_F(ReconnectorTest, FailsAtTheDeadlineWithoutAHost) {
  const UnresponsiveListener listener;
  if (!listener.full())
    GTEST_SKIP() << "needs accept-queue: this kernel queues more connections than the backlog";
  ReconnectorOptions o = options_without_timeouts(listener.port());
  o.resume_timeout = 100 * kMillisecond;
  begin(o);
  ASSERT_TRUE(reconnector_->request(false, 1).has_value());
  ASSERT_TRUE(wait_for_failure());
  EXPECT_EQ(failure_, Errc::kTimeout);
}

// In the following two tests only stop() can end the wait.
TEST_F(ReconnectorTest, StopsDuringConnect) {
  const UnresponsiveListener listener;
  if (!listener.full())
    GTEST_SKIP() << "needs accept-queue: this kernel queues more connections than the backlog";
  begin(options_without_timeouts(listener.port()));
  ASSERT_TRUE(reconnector_->request(true, 0).has_value());
  ASSERT_TRUE(wait_for_syn(listener.port()));
  reconnector_->stop();
  EXPECT_EQ(failures_, 0);
}

TEST_F(ReconnectorTest, StopsWhileItWaits) {
  const struct {
    const char* name;
    ScriptedListener::Step step;
    Nanos pause;
  } cases[] = {{"during the handshake", ignores, kMillisecond},
               {"between attempts", closes, kLong},
               {"during the grace period", refuses(Errc::kUnknownSession, "no"), kLong}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    ScriptedListener reducer;
    std::latch done(1);
    reducer.serve({[&](Connection& connection) {
      c.step(connection);
      done.count_down();
    }});
    ReconnectorOptions o = options_without_timeouts(reducer.port());
    o.first_pause = o.longest_pause = c.pause;
    begin(o);
    ASSERT_TRUE(reconnector_->request(true, 0).has_value());
    done.wait();
    reconnector_->stop();
    EXPECT_EQ(failures_, 0);
  }
}

TEST_F(ReconnectorTest, StopsWithoutBrokenConnections) {
  ScriptedListener reducer;
  begin(options_without_timeouts(reducer.port()));
  ASSERT_TRUE(reconnector_->request(false, 0).has_value());
  reconnector_->stop();
  ASSERT_TRUE(reconnector_->request(true, 1).has_value());
  reconnector_->stop();
  EXPECT_FALSE(reducer.has_connection());
  EXPECT_THAT(lanes_, IsEmpty());
}

}  // namespace
}  // namespace sluice::engine
