#include "gpu_client/engine/mender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <latch>
#include <memory>
#include <utility>

#include "core/clock.h"
#include "tests/unit/gpu_client/answering_reducer.h"

namespace sluice::engine {
namespace {

using test::AnsweringReducer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Connection = AnsweringReducer::Connection;

constexpr uint64_t kId = 77;
constexpr uint64_t kIncarnation = 4711;
constexpr uint64_t kViewHash = 0x1234;
constexpr uint32_t kHandle = 9;
constexpr uint32_t kSlots = 5;
constexpr Nanos kLong = 3600 * kSecond;  // ctest ends what waits for this

class MenderTest : public ::testing::Test, protected Mender::Listener {
 protected:
  // Times are such that nothing ends by itself.
  static MenderOptions patient(uint16_t port) {
    MenderOptions o;
    o.name = "reducer x";
    o.address = {.host = "127.0.0.1", .port = port, .weight = 1};
    o.who.rank = 1;
    o.who.ranks = 2;
    o.who.survives = true;
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
  void begin(const MenderOptions& options) {
    mender_ = std::make_unique<Mender>(options, static_cast<Mender::Listener&>(*this));
  }
  void TearDown() override { mender_.reset(); }

  // A connection that goes right: what HELLO and ATTACH must say is checked.
  static AnsweringReducer::Step mends(wire::Purpose purpose, uint32_t lane = 0) {
    return [=](Connection& c) {
      const wire::Hello hello = AnsweringReducer::welcome(c, kId);
      EXPECT_EQ(hello.purpose, purpose);
      EXPECT_EQ(hello.lane, lane);
      EXPECT_EQ(hello.rank, 1u);
      EXPECT_EQ(hello.incarnation, kIncarnation);
      EXPECT_EQ(hello.features, wire::kFeaturesSurvive);
      const auto attach = c.expect<wire::Attach>();
      EXPECT_EQ(attach.handle, kHandle);
      EXPECT_EQ(attach.view_hash, kViewHash);
      c.send(wire::Attached{.slots = purpose == wire::Purpose::kControl ? 0 : kSlots}, kHandle);
    };
  }
  static AnsweringReducer::Step refuses(Errc code, const char* text) {
    return [=](Connection& c) {
      static_cast<void>(AnsweringReducer::welcome(c, kId));
      static_cast<void>(c.expect<wire::Attach>());
      wire::Refused refused;
      refused.code = code;
      refused.text = text;
      c.send(refused);
    };
  }
  static void hangs_up(Connection& c) { c.close(); }

  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }
  bool gone() {
    return wait([&] { return gone_ != Errc::kOk; });
  }
  void set(const std::function<void()>& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  void on_control_mended(uint64_t reducer, ControlLink link) noexcept override {
    EXPECT_EQ(reducer, kId);
    set([&] { controls_.push_back(std::move(link)); });
  }
  void on_lane_mended(uint64_t reducer, uint32_t lane, transport::tcp::Socket socket) noexcept override {
    EXPECT_EQ(reducer, kId);
    if (again_ > 0) {
      --again_;
      EXPECT_TRUE(mender_->request(false, uint64_t{1} << lane).has_value());
    }
    set([&] { lanes_.push_back(lane), sockets_.push_back(std::move(socket)); });
  }
  void on_reducer_gone(uint64_t reducer, Errc code, std::string text) noexcept override {
    EXPECT_EQ(reducer, kId);
    set([&] { ++endings_, gone_ = code, text_ = std::move(text); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ControlLink> controls_;
  std::vector<uint32_t> lanes_;
  std::vector<transport::tcp::Socket> sockets_;
  int endings_ = 0;
  Errc gone_ = Errc::kOk;
  std::string text_;
  int again_ = 0;  // how many times a lane breaks as soon as it is mended
  std::unique_ptr<Mender> mender_;
};

TEST_F(MenderTest, MendsAtOnceTheControlConnectionFirst) {
  AnsweringReducer reducer;
  reducer.play({mends(wire::Purpose::kControl), mends(wire::Purpose::kLane, 0), [](Connection& c) {
                  mends(wire::Purpose::kLane, 63)(c);
                  EXPECT_EQ(c.expect<wire::Resume>().results_held, 3u);
                }});
  begin(patient(reducer.port()));
  ASSERT_TRUE(mender_->request(true, 1 | uint64_t{1} << 63).has_value());
  ASSERT_TRUE(wait([&] { return lanes_.size() == 2; }));
  EXPECT_EQ(controls_.size(), 1u);
  EXPECT_EQ(controls_[0].name(), "reducer x");
  EXPECT_THAT(lanes_, ElementsAre(0, 63));
  // The socket is as ATTACHED left it.
  const auto resume = wire::encode_message(wire::Resume{.results_held = 3}, kHandle);
  EXPECT_TRUE(transport::tcp::write_all(sockets_[1].fd(), resume, monotonic_now() + kSecond).ok());
  reducer.finish();
  EXPECT_EQ(endings_, 0);
}

TEST_F(MenderTest, MendsAtTheThirdTry) {
  AnsweringReducer reducer;
  reducer.play({hangs_up,
                [](Connection& c) {
                  static_cast<void>(AnsweringReducer::welcome(c, kId));
                  c.close();
                },
                mends(wire::Purpose::kControl)});
  begin(patient(reducer.port()));
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  EXPECT_TRUE(wait([&] { return controls_.size() == 1; }));
}

TEST_F(MenderTest, TriesAnotherTimeWhenOneIsNotAnswered) {
  AnsweringReducer reducer;
  reducer.play(
      {[](Connection& c) { static_cast<void>(c.expect<wire::Hello>()); }, mends(wire::Purpose::kControl)});
  MenderOptions o = patient(reducer.port());
  o.try_timeout = 50 * kMillisecond;
  begin(o);
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  EXPECT_TRUE(wait([&] { return controls_.size() == 1; }));
}

TEST_F(MenderTest, TriesAnotherOneAfterOneThatFailed) {
  AnsweringReducer reducer;
  reducer.play({mends(wire::Purpose::kLane, 0), hangs_up, mends(wire::Purpose::kLane, 2),
                mends(wire::Purpose::kLane, 1)});
  begin(patient(reducer.port()));
  ASSERT_TRUE(mender_->request(false, 0b111).has_value());
  ASSERT_TRUE(wait([&] { return lanes_.size() == 3; }));
  EXPECT_THAT(lanes_, ElementsAre(0, 2, 1));
}

TEST_F(MenderTest, TakesMoreWhileItWorks) {
  AnsweringReducer reducer;
  std::latch working(1), asked(1);
  reducer.play({[&](Connection& c) {
                  working.count_down();
                  asked.wait();
                  mends(wire::Purpose::kLane, 1)(c);
                },
                mends(wire::Purpose::kLane, 4)});
  begin(patient(reducer.port()));
  ASSERT_TRUE(mender_->request(false, 0b10).has_value());
  working.wait();
  ASSERT_TRUE(mender_->request(false, 0b10010).has_value());
  asked.count_down();
  ASSERT_TRUE(wait([&] { return lanes_.size() == 2; }));
  reducer.finish();
  mender_->stop();
  EXPECT_THAT(lanes_, ElementsAre(1, 4)) << "lane 1 once";
  EXPECT_FALSE(reducer.called());
}

TEST_F(MenderTest, TakesMoreFromItsOwnThreadAndAfterARest) {
  AnsweringReducer reducer;
  reducer.play({mends(wire::Purpose::kLane, 3), mends(wire::Purpose::kLane, 3),
                mends(wire::Purpose::kLane, 0), mends(wire::Purpose::kControl)});
  begin(patient(reducer.port()));
  again_ = 1;
  ASSERT_TRUE(mender_->request(false, 0b1000).has_value());
  ASSERT_TRUE(wait([&] { return lanes_.size() == 2; }));
  ASSERT_TRUE(mender_->request(false, 0b1).has_value());
  ASSERT_TRUE(wait([&] { return lanes_.size() == 3; }));
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  ASSERT_TRUE(wait([&] { return controls_.size() == 1; }));
  EXPECT_THAT(lanes_, ElementsAre(3, 3, 0));
}

TEST_F(MenderTest, GivesUpWhereNobodyListensOnceTheGraceIsOver) {
  // Bound, so that nobody else gets the port, but not listening.
  const transport::tcp::Socket bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(bound.fd(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  MenderOptions o = patient(transport::tcp::bound_port(bound.fd()).value());
  o.refusal_grace = 30 * kMillisecond;
  begin(o);
  ASSERT_TRUE(mender_->request(true, 1).has_value());
  ASSERT_TRUE(gone());
  EXPECT_EQ(gone_, Errc::kReset);
  EXPECT_THAT(text_, HasSubstr("reducer x: "));
  EXPECT_THAT(text_, HasSubstr("connection refused"));
}

TEST_F(MenderTest, GivesUpWhereTheSessionIsUnknownOnceTheGraceIsOver) {
  AnsweringReducer reducer;
  reducer.play({refuses(Errc::kUnknownSession, "no such session")});
  MenderOptions o = patient(reducer.port());
  o.refusal_grace = 0;
  begin(o);
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  ASSERT_TRUE(gone());
  EXPECT_EQ(gone_, Errc::kUnknownSession);
  EXPECT_THAT(text_, HasSubstr("no such session"));
}

TEST_F(MenderTest, TriesAgainWithinTheGrace) {
  AnsweringReducer reducer;
  reducer.play({refuses(Errc::kUnknownSession, "not committed"),
                refuses(Errc::kUnknownSession, "not committed"), mends(wire::Purpose::kControl)});
  begin(patient(reducer.port()));
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  EXPECT_TRUE(wait([&] { return controls_.size() == 1; }));
  EXPECT_EQ(endings_, 0);
}

TEST_F(MenderTest, TakesOtherRefusalsForPassing) {
  AnsweringReducer reducer;
  reducer.play({refuses(Errc::kTooMany, "busy"), mends(wire::Purpose::kControl)});
  MenderOptions o = patient(reducer.port());
  o.refusal_grace = 0;
  begin(o);
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  EXPECT_TRUE(wait([&] { return controls_.size() == 1; }));
}

TEST_F(MenderTest, TakesNoOtherProcess) {
  AnsweringReducer reducer;
  reducer.play({[](Connection& c) { static_cast<void>(AnsweringReducer::welcome(c, kId + 1)); }});
  begin(patient(reducer.port()));
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  ASSERT_TRUE(gone());
  EXPECT_EQ(gone_, Errc::kReducerLost);
  EXPECT_THAT(text_, HasSubstr("another process"));
}

TEST_F(MenderTest, DoesNothingMoreOnceTheReducerIsGone) {
  AnsweringReducer reducer;
  reducer.play({[](Connection& c) { static_cast<void>(AnsweringReducer::welcome(c, kId + 1)); }});
  begin(patient(reducer.port()));
  ASSERT_TRUE(mender_->request(true, 0b11).has_value());
  ASSERT_TRUE(gone());
  reducer.finish();
  ASSERT_TRUE(mender_->request(true, 0b11).has_value());
  EXPECT_FALSE(reducer.called(100));
  mender_->stop();
  EXPECT_EQ(endings_, 1);
}

TEST_F(MenderTest, GivesUpAtTheDeadlineWhenNothingIsAnswered) {
  AnsweringReducer reducer;
  reducer.play({[](Connection& c) { static_cast<void>(c.expect<wire::Hello>()); }});
  MenderOptions o = patient(reducer.port());
  o.resume_timeout = 100 * kMillisecond;
  begin(o);
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  ASSERT_TRUE(gone());
  EXPECT_EQ(gone_, Errc::kTimeout);
  EXPECT_THAT(text_, HasSubstr("not reached again within 100 ms: reducer x: no answer in time"));
}

TEST_F(MenderTest, AskingAgainDoesNotPutTheDeadlineOff) {
  const AnsweringReducer reducer;  // lets connect, says nothing
  MenderOptions o = patient(reducer.port());
  o.resume_timeout = 100 * kMillisecond;
  o.try_timeout = 10 * kMillisecond;
  begin(o);
  const auto is_gone = [&] {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(1), [&] { return gone_ != Errc::kOk; });
  };
  for (const Nanos deadline = monotonic_now() + 20 * kSecond; !is_gone() && monotonic_now() < deadline;)
    ASSERT_TRUE(mender_->request(true, 1).has_value());
  EXPECT_EQ(gone_, Errc::kTimeout);
}

// What is opened and breaks at once was not mended: it is tried with pauses, until the deadline of the first
// break.
TEST_F(MenderTest, ConnectionsThatBreakAsSoonAsTheyAreOpenedPutNothingOff) {
  const AnsweringReducer reducer;
  MenderOptions o = patient(reducer.port());
  o.resume_timeout = kSecond;
  o.first_pause = 20 * kMillisecond;
  o.longest_pause = 200 * kMillisecond;
  begin(o);
  std::vector<Connection> connections;
  const auto is_gone = [&] {
    const std::lock_guard lock(mutex_);
    return gone_ != Errc::kOk;
  };
  // Each time by another thread of the mender: it has said that it is done when the break is heard of.
  for (const Nanos deadline = monotonic_now() + 20 * kSecond; !is_gone() && monotonic_now() < deadline;) {
    ASSERT_TRUE(mender_->request(false, 0b1).has_value());
    while (!is_gone() && !reducer.called(5)) continue;
    if (is_gone()) break;
    connections.push_back(reducer.accept());
    try {
      mends(wire::Purpose::kLane)(connections.back());
    } catch (const std::exception&) {
      break;  // its deadline came in the middle
    }
    ASSERT_TRUE(wait([&] { return lanes_.size() == connections.size() || gone_ != Errc::kOk; }));
  }
  ASSERT_TRUE(gone());
  EXPECT_EQ(gone_, Errc::kTimeout);
  // Pauses of at least 10, 20, 40, 80, 100, 100, ... ms.
  EXPECT_LT(connections.size(), 24u);
}

// A listener whose queue is full lets SYNs fall, as a host that is gone does.
class BlackHole {
 public:
  BlackHole() {
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
  AnsweringReducer reducer_{0};
  std::vector<transport::tcp::Socket> queue_;
  bool full_ = true;
};

// Until the kernel has a connection to that port whose SYN is not answered.
bool wait_for_syn(uint16_t port) {
  std::array<char, 32> wanted{};
  std::snprintf(wanted.data(), wanted.size(), " 0100007F:%04X 02 ", port);
  for (const Nanos deadline = monotonic_now() + 20 * kSecond; monotonic_now() < deadline;) {
    std::ifstream table("/proc/self/net/tcp");
    for (std::string line; std::getline(table, line);) {
      if (line.find(wanted.data()) != std::string::npos) return true;
    }
    std::this_thread::yield();
  }
  return false;
}

TEST_F(MenderTest, GivesUpAtTheDeadlineWhenNobodyIsThere) {
  const BlackHole hole;
  if (!hole.full()) GTEST_SKIP() << "needs accept-queue: this kernel queues more connections than asked";
  MenderOptions o = patient(hole.port());
  o.resume_timeout = 100 * kMillisecond;
  begin(o);
  ASSERT_TRUE(mender_->request(false, 1).has_value());
  ASSERT_TRUE(gone());
  EXPECT_EQ(gone_, Errc::kTimeout);
}

// In the following four nothing but stop() ends the wait: where it does not, ctest does.
TEST_F(MenderTest, StopsWhileNobodyIsThere) {
  const BlackHole hole;
  if (!hole.full()) GTEST_SKIP() << "needs accept-queue: this kernel queues more connections than asked";
  begin(patient(hole.port()));
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  ASSERT_TRUE(wait_for_syn(hole.port()));
  mender_->stop();
  EXPECT_EQ(endings_, 0);
}

TEST_F(MenderTest, StopsWhileNothingIsAnswered) {
  AnsweringReducer reducer;
  std::latch asked(1);
  reducer.play({[&](Connection& c) {
    static_cast<void>(c.expect<wire::Hello>());
    asked.count_down();
  }});
  begin(patient(reducer.port()));
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  asked.wait();
  mender_->stop();
  EXPECT_EQ(endings_, 0);
}

TEST_F(MenderTest, StopsBetweenTries) {
  AnsweringReducer reducer;
  std::latch hung_up(1);
  reducer.play({[&](Connection& c) {
    c.close();
    hung_up.count_down();
  }});
  MenderOptions o = patient(reducer.port());
  o.first_pause = o.longest_pause = kLong;
  begin(o);
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  hung_up.wait();
  mender_->stop();
  EXPECT_EQ(endings_, 0);
}

TEST_F(MenderTest, StopsWhileItIsRefused) {
  AnsweringReducer reducer;
  std::latch refused(1);
  reducer.play({[&](Connection& c) {
    refuses(Errc::kUnknownSession, "no")(c);
    refused.count_down();
  }});
  MenderOptions o = patient(reducer.port());
  o.first_pause = o.longest_pause = kLong;
  begin(o);
  ASSERT_TRUE(mender_->request(true, 0).has_value());
  refused.wait();
  mender_->stop();
  EXPECT_EQ(endings_, 0);
}

TEST_F(MenderTest, StopsWhereNothingIsToBeMended) {
  AnsweringReducer reducer;
  begin(patient(reducer.port()));
  ASSERT_TRUE(mender_->request(false, 0).has_value());
  mender_->stop();
  ASSERT_TRUE(mender_->request(true, 1).has_value());
  mender_->stop();
  EXPECT_FALSE(reducer.called());
  EXPECT_THAT(lanes_, IsEmpty());
}

}  // namespace
}  // namespace sluice::engine
