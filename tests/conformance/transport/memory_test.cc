// What only transport/memory does: both ends in one context, ends without an endpoint, closes in the middle
// of a copy, and a peer that is not woken for each frame.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "core/clock.h"
#include "tests/conformance/transport/transport_fixture.h"
#include "transport/memory/context_waker.h"
#include "transport/memory/memory_context.h"
#include "transport/memory/pipe.h"
#include "transport/memory/pipe_endpoint.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::transport::test {
namespace {

// CountingWaker counts the calls of notify() and does nothing.
struct CountingWaker final : memory::Waker {
  void notify() noexcept override { calls.fetch_add(1); }
  std::atomic<int> calls{0};
};

// CountingContext counts the calls of wake().
struct CountingContext final : Context {
  unsigned poll(Nanos /*now*/, size_t /*budget_bytes*/) noexcept override { return 0; }
  void wait(Nanos /*timeout*/) noexcept override {}
  void wake() noexcept override { ++wakes; }
  size_t endpoint_count() const noexcept override { return 0; }
  int wakes = 0;
};

TEST(MemoryWaker, WakesASleepingThreadOnceForManyFrames) {
  CountingContext context;
  memory::ContextWaker waker(context);
  for (int i = 0; i < 10; ++i) waker.notify();
  EXPECT_EQ(context.wakes, 0) << "the thread is awake";
  EXPECT_FALSE(waker.may_sleep());
  waker.end_sleep();
  EXPECT_TRUE(waker.take_work());
  EXPECT_FALSE(waker.take_work());
  EXPECT_TRUE(waker.may_sleep());
  for (int i = 0; i < 10; ++i) waker.notify();
  EXPECT_EQ(context.wakes, 1);
  waker.end_sleep();
  EXPECT_TRUE(waker.take_work());
  EXPECT_TRUE(waker.may_sleep());
  waker.detach();
  waker.notify();
  EXPECT_EQ(context.wakes, 1) << "the context may be gone";
}

class MemoryTransport : public PairFixture {
 protected:
  void SetUp() override { build(make_test_bed("memory")); }
  [[nodiscard]] tcp::TcpContext& context() { return static_cast<tcp::TcpContext&>(*test_bed_.a); }
  [[nodiscard]] tcp::TcpContext& other_context() { return static_cast<tcp::TcpContext&>(*test_bed_.b); }
  // Before the handlers of a test end.
  void end(RecordingHandler& one, RecordingHandler& other) {
    one.shutdown();
    ASSERT_TRUE(poll_until([&] { return one.closed && other.closed; }));
    EXPECT_EQ(one.closed, Errc::kClosed);
    EXPECT_EQ(other.closed, Errc::kClosed);
  }
};

TEST_F(MemoryTransport, ConnectsTwoEndpointsOfOneContext) {
  RecordingHandler one, other;
  std::tie(one.endpoint, other.endpoint) =
      adopt_pair(memory_pair(), context(), one, context(), other, {.send_queue = 4});
  other.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte>) {
    EXPECT_TRUE(other.put_pattern(3000, h.sequence).ok());
  };
  uint64_t next = 0;
  ASSERT_TRUE(poll_until([&] {
    while (next < 100 && one.put_pattern(50'000, next).ok()) ++next;
    return one.received.size() == 100;
  }));
  EXPECT_EQ(one.received.back().payload, pattern(3000, 99));
  end(one, other);
}

TEST_F(MemoryTransport, ServesTcpInTheSameContext) {
  RecordingHandler tcp_left, tcp_right;
  std::tie(tcp_left.endpoint, tcp_right.endpoint) =
      adopt_pair(tcp_pair("127.0.0.1"), *test_bed_.a, tcp_left, *test_bed_.b, tcp_right, {});
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(tcp_left.put_pattern(10'000, i).ok());
    ASSERT_TRUE(left.put_pattern(10'000, i).ok());
  }
  EXPECT_TRUE(poll_until([&] { return tcp_right.received.size() == 20 && right.received.size() == 20; }));
  EXPECT_FALSE(tcp_left.endpoint->is_in_memory());
  EXPECT_TRUE(left.endpoint->is_in_memory());
  EXPECT_EQ(left.endpoint->counters().send_calls, 0U);
  EXPECT_EQ(right.endpoint->counters().receive_calls, 0U);
  end(tcp_left, tcp_right);
}

TEST_F(MemoryTransport, DeliversFramesThatWerePutBeforeThePeerHadAnEndpoint) {
  SocketPair sockets = memory_pair();
  RecordingHandler early, late;
  early.endpoint = context().adopt(std::move(sockets.first), early, {}).value();
  ASSERT_TRUE(early.put_pattern(1000, 0).ok());
  test_bed_.a->poll(monotonic_now(), kBudget);
  late.endpoint = other_context().adopt(std::move(sockets.second), late, {}).value();
  test_bed_.b->wait(kTestTimeout);
  test_bed_.b->poll(monotonic_now(), kBudget);
  EXPECT_EQ(late.received.size(), 1U);
  end(early, late);
}

TEST_F(MemoryTransport, BreaksWhenAnEndIsDroppedWithoutAnEndpoint) {
  for (const bool before : {true, false}) {
    SCOPED_TRACE(before);
    SocketPair sockets = memory_pair();
    RecordingHandler h;
    if (before) sockets.second = tcp::Socket();
    h.endpoint = context().adopt(std::move(sockets.first), h, {}).value();
    ASSERT_TRUE(h.put_pattern(1000, 0).ok());
    sockets.second = tcp::Socket();
    ASSERT_TRUE(poll_until([&] { return h.closed.has_value(); }));
    EXPECT_EQ(h.closed, Errc::kReset);
    EXPECT_EQ(h.sent, std::vector<Status>(1, Errc::kReset));
  }
}

TEST_F(MemoryTransport, NotifiesTheSenderOncePerPoll) {
  auto [sending, receiving] = memory::make_pipe_ends();
  const auto waker = std::make_shared<CountingWaker>(), other_waker = std::make_shared<CountingWaker>();
  RecordingHandler from, to;
  memory::PipeEndpoint sender(*sending, from, {.endpoint = {}, .peer = "one"}, waker);
  memory::PipeEndpoint receiver(*receiving, to, {.endpoint = {}, .peer = "other"}, other_waker);
  from.endpoint = &sender;
  to.endpoint = &receiver;
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(from.put_pattern(100, i).ok());
  EXPECT_EQ(other_waker->calls, 10);
  receiver.poll(kBudget);
  EXPECT_EQ(to.received.size(), 10U);
  EXPECT_EQ(waker->calls, 1);
}

// The law of pipe.h. A sender that closes while the receiver holds a claim completes nothing.
TEST_F(MemoryTransport, ACloseDuringACopyCompletesNothingUntilTheCopyEnds) {
  auto [sending, receiving] = memory::make_pipe_ends();
  const auto waker = std::make_shared<CountingWaker>();
  RecordingHandler from;
  memory::PipeEndpoint sender(*sending, from, {.endpoint = {}, .peer = "one"}, waker);
  from.endpoint = &sender;
  ASSERT_TRUE(from.put_pattern(100, 0).ok());
  ASSERT_TRUE(from.put_pattern(100, 1).ok());
  const auto connection = receiving->release_connection();
  memory::Pipe& pipe = connection->pipes[0];
  ASSERT_NE(pipe.claim(), nullptr);
  from.close(Errc::kAborted);
  EXPECT_FALSE(sender.can_finish());
  pipe.receive_claimed();
  EXPECT_EQ(pipe.claim(), nullptr) << "a payload may be read after its on_sent()";
  ASSERT_TRUE(sender.can_finish());
  sender.finish();
  EXPECT_EQ(from.sent, (std::vector<Status>{Errc::kOk, Errc::kAborted}));
}

// Writes to its payload as soon as on_sent() allows it, so that a copy that outlives on_sent() is a data race
// and a damaged frame.
class ReusingSender final : public Handler {
 public:
  ReceiveTarget on_header(Endpoint& /*ep*/, const wire::FrameHeader& /*header*/,
                          std::span<const std::byte> /*extensions*/) noexcept override {
    return {.status = Errc::kUnexpectedMessage};
  }
  void on_frame(Endpoint& /*ep*/, const wire::FrameHeader& /*header*/, std::span<const std::byte> /*ext*/,
                std::span<std::byte> /*payload*/) noexcept override {}
  void on_sent(Endpoint& /*ep*/, Cookie cookie, Status status) noexcept override {
    EXPECT_EQ(cookie, completed);
    ++completed;
    delivered += status.ok() ? 1 : 0;
    std::ranges::fill(buffers[cookie % kBuffers], std::byte{0xEE});
  }
  void on_closed(Endpoint& /*ep*/, Errc /*reason*/) noexcept override { closed = true; }
  void put_all(Endpoint& ep) {
    for (; put < completed + kBuffers; ++put) {
      Bytes& payload = buffers[put % kBuffers];
      std::ranges::fill(payload, static_cast<std::byte>(put & 0x7F));
      if (!ep.put(header_for(payload, put), {}, payload, put).ok()) return;
    }
  }

  static constexpr size_t kBuffers = 4;
  std::array<Bytes, kBuffers> buffers{Bytes(20'000), Bytes(20'000), Bytes(20'000), Bytes(20'000)};
  uint64_t put = 0, completed = 0, delivered = 0;
  bool closed = false;
};

TEST_F(MemoryTransport, ClosesAtAnyMomentInTwoThreads) {
  constexpr int kConnections = 60;
  for (int i = 0; i < kConnections; ++i) {
    SocketPair sockets = memory_pair();
    RecordingHandler receiver;
    receiver.keep_payload = false;
    uint64_t damaged = 0;
    receiver.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte> payload) {
      const auto expected = static_cast<std::byte>(h.sequence & 0x7F);
      damaged += std::ranges::count(payload, expected) == std::ssize(payload) ? 0 : 1;
    };
    receiver.endpoint = other_context().adopt(std::move(sockets.second), receiver, {}).value();
    std::thread thread([&] {
      const Nanos limit = monotonic_now() + kTestTimeout;
      while (!receiver.closed && monotonic_now() < limit) {
        if (test_bed_.b->poll(monotonic_now(), kBudget) == 0) test_bed_.b->wait(kTestTimeout);
      }
    });
    ReusingSender sender;
    Endpoint* const ep =
        context().adopt(std::move(sockets.first), sender, {.send_queue = ReusingSender::kBuffers}).value();
    const Nanos limit = monotonic_now() + kTestTimeout;
    while (!sender.closed && monotonic_now() < limit) {
      // Closes after a number of frames that differs from round to round, at once after a put.
      if (sender.completed < static_cast<uint64_t>(i)) {
        sender.put_all(*ep);
      } else {
        sender.put_all(*ep);
        ep->close(i % 2 == 0 ? Errc::kReset : Errc::kAborted);
      }
      test_bed_.a->poll(monotonic_now(), kBudget);
    }
    thread.join();
    ASSERT_TRUE(sender.closed && receiver.closed);
    EXPECT_EQ(receiver.closed, i % 2 == 0 ? Errc::kReset : Errc::kClosed);
    EXPECT_EQ(sender.completed, sender.put);
    EXPECT_EQ(sender.delivered, receiver.last_counters.frames_in);
    EXPECT_EQ(damaged, 0U);
  }
}

TEST_F(MemoryTransport, DestroyingAContextWhileThePeerReceivesIsSafe) {
  for (int i = 0; i < 20; ++i) {
    SocketPair sockets = memory_pair();
    RecordingHandler receiver;
    receiver.keep_payload = false;
    receiver.endpoint = other_context().adopt(std::move(sockets.second), receiver, {}).value();
    std::thread thread([&] {
      const Nanos limit = monotonic_now() + kTestTimeout;
      while (!receiver.closed && monotonic_now() < limit) {
        if (test_bed_.b->poll(monotonic_now(), kBudget) == 0) test_bed_.b->wait(kTestTimeout);
      }
    });
    ReusingSender sender;
    auto own = memory::make_context().value();
    Endpoint* const ep = own->adopt(std::move(sockets.first), sender, {}).value();
    sender.put_all(*ep);
    own.reset();
    for (Bytes& buffer : sender.buffers) std::ranges::fill(buffer, std::byte{0xDD});
    thread.join();
    EXPECT_EQ(receiver.closed, Errc::kClosed) << "not kBadPayloadCrc";
  }
}

}  // namespace
}  // namespace sluice::transport::test
