// A TCP endpoint with a raw socket as its peer, which can send arbitrary bytes and stop at any point.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>

#include "core/bytes.h"
#include "core/clock.h"
#include "tests/conformance/transport/transport_fixture.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::transport::test {
namespace {

class TcpStreamFixture : public PairFixture {
 protected:
  void SetUp() override {
    build(make_test_bed("tcp"));
    open_endpoint();
  }

  // Opens a new endpoint in context b with `handler`. Its peer is `peer_socket_`.
  void open_endpoint(const EndpointOptions& options = {}) {
    auto [peer, socket] = tcp_pair("127.0.0.1");
    peer_socket_ = std::move(peer);
    endpoint_fd_ = socket.fd();
    handler = &recorders_.emplace_back();
    handler->endpoint = adopt(std::move(socket), *handler, options).value();
  }
  Result<Endpoint*> adopt(tcp::Socket socket, RecordingHandler& by, const EndpointOptions& options = {}) {
    return static_cast<tcp::TcpContext&>(*test_bed_.b).adopt(std::move(socket), by, options);
  }

  void send(std::span<const std::byte> bytes) {
    ASSERT_TRUE(tcp::write_all(peer_socket_, bytes, monotonic_now() + kTestTimeout).ok());
  }

  void expect_closed(Errc reason) {
    ASSERT_TRUE(poll_until([&] { return handler->closed.has_value(); }))
        << "still open, expected " << to_string(reason);
    EXPECT_EQ(*handler->closed, reason) << to_string(*handler->closed) << ", expected " << to_string(reason);
    // The peer sees an end or a reset.
    std::byte b{};
    const Status end = tcp::read_exact(peer_socket_, {&b, 1}, monotonic_now() + kTestTimeout);
    EXPECT_TRUE(end == Errc::kClosed || end == Errc::kReset);
  }

  // Polls context b until the socket is empty.
  void drain(Nanos now) {
    for (int quiet = 0; quiet < 20;) quiet = test_bed_.b->poll(now, kBudget) == 0 ? quiet + 1 : 0;
  }

  Bytes frame(size_t size, uint64_t sequence, size_t extensions = 0) {
    const Bytes payload = pattern(size, sequence);
    return encode(header_for(payload, sequence, extensions), extension_area(extensions, sequence), payload);
  }

  static Bytes joined(const std::vector<Bytes>& parts) {
    Bytes all;
    for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  // How the connection ends for the peer.
  Status end_at_peer() {
    std::byte b{};
    return tcp::read_exact(peer_socket_, {&b, 1}, monotonic_now() + 5 * kSecond);
  }

  tcp::Socket peer_socket_;
  int endpoint_fd_ = -1;                    // the descriptor of the endpoint
  std::deque<RecordingHandler> recorders_;  // earlier handlers stay, because their endpoints may still exist

 public:
  RecordingHandler* handler = nullptr;
};

TEST_F(TcpStreamFixture, ClosesOnRandomBytes) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    open_endpoint();
    send(pattern(200 + seed * 40, seed));
    expect_closed(Errc::kBadMagic);
    EXPECT_EQ(handler->headers, 0U);
  }
}

TEST_F(TcpStreamFixture, ClosesOnAHttpRequest) {
  const std::string request =
      "GET / HTTP/1.1\r\nHost: reducer\r\nUser-Agent: a scanner of some kind, long enough\r\n\r\n";
  send(std::as_bytes(std::span(request)));
  expect_closed(Errc::kBadMagic);
}

TEST_F(TcpStreamFixture, ClosesOnAChangeOfAnyHeaderByte) {
  const Bytes good = frame(100, 0, 16);
  for (size_t i = 0; i < wire::kHeaderBytes + 16; ++i) {
    SCOPED_TRACE(i);
    open_endpoint();
    Bytes bad = good;
    bad[i] ^= std::byte{0x10};
    send(bad);
    // A changed extension length may leave the endpoint waiting for bytes. Then the end falls within a frame.
    ::shutdown(peer_socket_.fd(), SHUT_WR);
    ASSERT_TRUE(poll_until([&] { return handler->closed.has_value(); }));
    EXPECT_NE(*handler->closed, Errc::kClosed);
    EXPECT_EQ(handler->headers, 0U);
  }
}

TEST_F(TcpStreamFixture, ReportsTheInvalidField) {
  struct Case {
    size_t offset;
    uint8_t value;
    Errc reason;
  };
  // Offsets of protocol.md section 2.
  const std::vector<Case> cases{
      {0, 'X', Errc::kBadMagic},  {4, 99, Errc::kBadVersion},    {5, 200, Errc::kBadType},
      {7, 0x80, Errc::kBadField}, {8, 200, Errc::kBadExtension}, {9, 3, Errc::kBadEncoding},
      {22, 77, Errc::kBadKind},   {23, 5, Errc::kBadEncoding},   {44, 66, Errc::kBadDType},
      {47, 55, Errc::kBadOp},     {51, 0x7F, Errc::kBadLength},  {60, 0, Errc::kBadHeaderCrc}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.offset);
    open_endpoint();
    Bytes bytes = frame(100, 0);
    bytes[c.offset] = c.offset == 60 ? ~bytes[60] : std::byte{c.value};
    send(bytes);
    expect_closed(c.reason);
    EXPECT_EQ(handler->headers, 0U);
  }
}

TEST_F(TcpStreamFixture, ClosesOnAnExcessiveLengthBeforeThePayloadArrives) {
  open_endpoint({.max_payload = 4096});
  const Bytes payload = pattern(5000, 0);
  send(encode(header_for(payload, 0), {}, {}));
  expect_closed(Errc::kBadLength);
}

TEST_F(TcpStreamFixture, DeliversValidFramesBeforeAnInvalidOne) {
  send(joined({frame(3000, 0), frame(10, 1), frame(0, 2), pattern(500, 9)}));
  expect_closed(Errc::kBadMagic);
  EXPECT_EQ(handler->received.size(), 3U);
}

TEST_F(TcpStreamFixture, TimesOutOnAPartialHeader) {
  open_endpoint({.frame_deadline = 10 * kSecond});
  const Bytes bytes = frame(100, 0);
  send(std::span(bytes).first(30));
  const Nanos begin = monotonic_now();
  drain(begin);
  drain(begin + 9 * kSecond);
  EXPECT_FALSE(handler->closed.has_value());
  drain(begin + 10 * kSecond + kSecond);
  ASSERT_TRUE(handler->closed.has_value());
  EXPECT_EQ(*handler->closed, Errc::kTimeout);
}

TEST_F(TcpStreamFixture, TimesOutOnAPartialPayload) {
  open_endpoint({.frame_deadline = 2 * kSecond});
  const Bytes bytes = frame(10'000, 0);
  send(std::span(bytes).first(5000));
  const Nanos begin = monotonic_now();
  drain(begin);
  EXPECT_EQ(handler->headers, 1U);
  drain(begin + 3 * kSecond);
  EXPECT_EQ(handler->closed, Errc::kTimeout);
}

TEST_F(TcpStreamFixture, EveryByteRestartsTheFrameDeadline) {
  open_endpoint({.frame_deadline = 2 * kSecond});
  const Bytes bytes = frame(10, 0);
  Nanos now = monotonic_now();
  for (size_t i = 0; i < bytes.size(); ++i, now += 1900 * kMillisecond) {
    send(std::span(bytes).subspan(i, 1));
    while (handler->endpoint->counters().wire_bytes_in <= i) test_bed_.b->poll(now, kBudget);
    ASSERT_FALSE(handler->closed.has_value());
  }
  EXPECT_EQ(handler->received.size(), 1U);
}

TEST_F(TcpStreamFixture, NeverTimesOutBetweenFrames) {
  open_endpoint({.frame_deadline = kSecond});
  send(frame(10, 0));
  ASSERT_TRUE(poll_until([&] { return handler->received.size() == 1; }));
  drain(monotonic_now() + 3600 * kSecond);
  EXPECT_FALSE(handler->closed.has_value());
}

TEST_F(TcpStreamFixture, ReadsAvailableBytesBeforeItTimesOut) {
  open_endpoint({.frame_deadline = kSecond});
  const Bytes bytes = frame(1000, 0);
  send(std::span(bytes).first(100));
  const Nanos begin = monotonic_now();
  drain(begin);
  send(std::span(bytes).subspan(100));
  // The owner did not poll for an hour, while the rest of the frame was in the socket.
  drain(begin + 3600 * kSecond);
  EXPECT_EQ(handler->received.size(), 1U);
  EXPECT_FALSE(handler->closed.has_value());
}

// With a busy endpoint the context polls several times without an epoll call. The deadline check may run in
// one of these polls.
TEST_F(TcpStreamFixture, ReadsAvailableBytesBeforeItTimesOutBesideABusyEndpoint) {
  const Bytes bytes = frame(1000, 0);
  for (int phase = 0; phase < 4; ++phase) {
    SCOPED_TRACE(phase);
    open_endpoint({.frame_deadline = kSecond});
    send(std::span(bytes).first(100));
    const Nanos begin = monotonic_now();
    while (handler->endpoint->counters().wire_bytes_in == 0) test_bed_.b->poll(begin, kBudget);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(healthy_left.put_pattern(kMiB, i).ok());
    test_bed_.a->poll(begin, kBudget);
    // With such a small budget the busy endpoint always has more to read.
    for (int i = 0; i <= phase; ++i) test_bed_.b->poll(begin, 1);
    send(std::span(bytes).subspan(100));
    test_bed_.b->poll(begin + 3600 * kSecond, 1);
    ASSERT_TRUE(poll_until([&] { return healthy_left.all_completed() && !handler->received.empty(); }));
  }
}

TEST_F(TcpStreamFixture, WakesItsOwnerForAFrameDeadline) {
  open_endpoint({.frame_deadline = 20 * kMillisecond});
  const Bytes bytes = frame(1000, 0);
  send(std::span(bytes).first(100));
  const Nanos begin = monotonic_now();
  while (!handler->closed && monotonic_now() - begin < kTestTimeout) {
    test_bed_.b->poll(monotonic_now(), kBudget);
    if (!handler->closed) test_bed_.b->wait(kTestTimeout);
  }
  EXPECT_EQ(handler->closed, Errc::kTimeout);
  EXPECT_LT(monotonic_now() - begin, kTestTimeout / 2);
}

TEST_F(TcpStreamFixture, EndWithinAHeaderIsAReset) {
  const Bytes bytes = frame(100, 0);
  send(std::span(bytes).first(63));
  ::shutdown(peer_socket_.fd(), SHUT_WR);
  expect_closed(Errc::kReset);
}

TEST_F(TcpStreamFixture, EndWithinAPayloadIsAReset) {
  const Bytes bytes = frame(100'000, 0);
  send(std::span(bytes).first(50'000));
  ::shutdown(peer_socket_.fd(), SHUT_WR);
  expect_closed(Errc::kReset);
  EXPECT_EQ(handler->headers, 1U);
  EXPECT_TRUE(handler->received.empty());
}

TEST_F(TcpStreamFixture, EndBetweenFramesIsOrderly) {
  send(frame(100'000, 0));
  ::shutdown(peer_socket_.fd(), SHUT_WR);
  expect_closed(Errc::kClosed);
  EXPECT_EQ(handler->received.size(), 1U);
}

TEST_F(TcpStreamFixture, AbortedConnectionIsAReset) {
  const linger abort{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(peer_socket_.fd(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  peer_socket_ = tcp::Socket();
  ASSERT_TRUE(poll_until([&] { return handler->closed.has_value(); }));
  EXPECT_EQ(*handler->closed, Errc::kReset);
}

TEST_F(TcpStreamFixture, DeliversFramesReceivedBeforeAReset) {
  send(frame(500, 0));
  // Closing the peer socket with unread bytes resets the connection during the next send of the endpoint.
  ASSERT_TRUE(handler->put_pattern(1000, 1).ok());
  ASSERT_TRUE(handler->put_pattern(1000, 2).ok());
  const size_t before = handler->received.size();
  test_bed_.b->poll(monotonic_now(), 1);
  peer_socket_ = tcp::Socket();
  for (uint64_t i = 3; i < 40 && handler->endpoint != nullptr; ++i) {
    if (handler->put_pattern(kMiB, i) != Errc::kOk) break;
  }
  ASSERT_TRUE(poll_until([&] { return handler->closed.has_value(); }));
  EXPECT_EQ(before + handler->received.size(), 1U);
  EXPECT_TRUE(handler->all_completed());
}

TEST_F(TcpStreamFixture, TimesOutOnAPeerThatEndedAndDoesNotRead) {
  open_endpoint({.frame_deadline = 5 * kSecond});
  for (uint64_t i = 0; i < 30; ++i) ASSERT_TRUE(handler->put_pattern(4 * kMiB, i).ok());
  ::shutdown(peer_socket_.fd(), SHUT_WR);
  const Nanos begin = monotonic_now();
  drain(begin);
  EXPECT_EQ(handler->put_pattern(1, 30), Errc::kClosed);
  drain(begin + 4 * kSecond);
  EXPECT_FALSE(handler->closed.has_value());
  drain(begin + 20 * kSecond);
  EXPECT_EQ(handler->closed, Errc::kTimeout);
}

// Splits a stream of two frames at every position.
TEST_F(TcpStreamFixture, ReadsTheSameFramesForAnySplitOfTheStream) {
  const Bytes stream = joined({frame(200, 0, 24), frame(77, 1, 8)});
  for (size_t cut = 1; cut < stream.size(); ++cut) {
    SCOPED_TRACE(cut);
    send(std::span(stream).first(cut));
    const uint64_t target = handler->endpoint->counters().wire_bytes_in + cut;
    ASSERT_TRUE(poll_until([&] { return handler->endpoint->counters().wire_bytes_in >= target; }));
    send(std::span(stream).subspan(cut));
    ASSERT_TRUE(poll_until([&] { return handler->received.size() == 2 || handler->closed; }));
    ASSERT_EQ(handler->received.size(), 2U);
    EXPECT_EQ(handler->received[0].payload, pattern(200, 0));
    EXPECT_EQ(handler->received[1].payload, pattern(77, 1));
    EXPECT_EQ(handler->received[1].extensions, extension_area(8, 1));
    handler->received.clear();
  }
}

TEST_F(TcpStreamFixture, ReadsAStreamThatArrivesByteByByte) {
  const Bytes stream = joined({frame(200, 0, 24), frame(77, 1, 8)});
  for (size_t i = 0; i < stream.size(); ++i) {
    send(std::span(stream).subspan(i, 1));
    ASSERT_TRUE(poll_until([&] { return handler->endpoint->counters().wire_bytes_in > i; }));
  }
  ASSERT_EQ(handler->received.size(), 2U);
  EXPECT_EQ(handler->received[0].payload, pattern(200, 0));
  EXPECT_EQ(handler->received[1].payload, pattern(77, 1));
}

TEST_F(TcpStreamFixture, SendsTheBytesOfTheCodec) {
  Bytes expected;
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(handler->put_pattern(i * 111, i, 16).ok());
    const Bytes one = frame(i * 111, i, 16);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  ASSERT_TRUE(poll_until([&] { return handler->all_completed(); }));
  Bytes got(expected.size());
  ASSERT_TRUE(tcp::read_exact(peer_socket_, got, monotonic_now() + kTestTimeout).ok());
  EXPECT_EQ(got, expected);
}

TEST_F(TcpStreamFixture, CountsTheTimeWhileThePeerDoesNotRead) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(handler->put_pattern(4 * kMiB, i).ok());
  const Nanos begin = monotonic_now();
  drain(begin);
  const auto blocked = [this] { return handler->endpoint->counters().send_blocked_ns; };
  EXPECT_EQ(blocked(), 0u);
  Bytes got(kMiB);
  while (blocked() == 0) {
    ASSERT_TRUE(tcp::read_exact(peer_socket_, got, monotonic_now() + kTestTimeout).ok());
    (void)test_bed_.b->poll(begin + 3 * kSecond, kBudget);
  }
  EXPECT_EQ(blocked(), 3u * kSecond);
}

TEST_F(TcpStreamFixture, WaitReturnsAtOnceWhileFramesAreQueued) {
  drain(monotonic_now());
  ASSERT_TRUE(handler->put_pattern(100, 0).ok());
  const Nanos begin = monotonic_now();
  test_bed_.b->wait(kTestTimeout);
  EXPECT_LT(monotonic_now() - begin, kTestTimeout / 2);
}

TEST_F(TcpStreamFixture, ReusesTheEntryOfAClosedEndpoint) {
  for (int round = 0; round < 50; ++round) {
    send(frame(10, 0));
    ASSERT_TRUE(poll_until([&] { return handler->received.size() == 1; }));
    const size_t count = test_bed_.b->endpoint_count();
    handler->close(Errc::kClosed);
    ASSERT_TRUE(poll_until([&] { return handler->closed.has_value(); }));
    EXPECT_EQ(test_bed_.b->endpoint_count(), count - 1);
    open_endpoint();
  }
}

TEST_F(TcpStreamFixture, AdoptsFromWithinACallback) {
  SocketPair pair = tcp_pair("127.0.0.1");
  RecordingHandler& late = recorders_.emplace_back();
  handler->at_frame = [&](const wire::FrameHeader&, std::span<std::byte>) {
    late.endpoint = adopt(std::move(pair.second), late).value();
  };
  send(frame(10, 0));
  const Bytes bytes = frame(20, 1);
  ASSERT_TRUE(tcp::write_all(pair.first, bytes, monotonic_now() + kTestTimeout).ok());
  EXPECT_TRUE(poll_until([&] { return late.received.size() == 1; }));
}

TEST_F(TcpStreamFixture, EnablesKeepaliveButNoUserTimeout) {
  const auto option = [this](int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    ::getsockopt(endpoint_fd_, level, name, &value, &size);
    return value;
  };
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 60);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 10);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 6);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
}

// A child process that the training process forked holds copies of its descriptors.
TEST_F(TcpStreamFixture, CloseReachesThePeerDespiteACopyOfTheDescriptor) {
  for (const Errc reason : {Errc::kReset, Errc::kClosed}) {
    SCOPED_TRACE(to_string(reason));
    open_endpoint();
    const tcp::Socket copy(::dup(endpoint_fd_));
    handler->close(reason);
    ASSERT_TRUE(poll_until([&] { return handler->closed.has_value(); }));
    EXPECT_EQ(end_at_peer(), reason);
  }
}

TEST_F(TcpStreamFixture, DestructionReachesThePeerDespiteACopyOfTheDescriptor) {
  const tcp::Socket copy(::dup(endpoint_fd_));
  test_bed_.b.reset();
  EXPECT_EQ(end_at_peer(), Errc::kClosed);
}

TEST_F(TcpStreamFixture, RefusesToAdoptAnInvalidDescriptor) {
  RecordingHandler none;
  const int file = ::dup(STDIN_FILENO);
  ::close(file);
  EXPECT_FALSE(adopt(tcp::Socket(file), none).has_value());
}

}  // namespace
}  // namespace sluice::transport::test
