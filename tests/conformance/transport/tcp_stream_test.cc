// What a TCP endpoint does with bytes that no endpoint of ours would send: a raw socket is the peer.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>

#include "core/bytes.h"
#include "core/clock.h"
#include "tests/conformance/transport/fixture.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::transport::test {
namespace {

class TcpStream : public PairTest {
 protected:
  void SetUp() override {
    build(make_bed("tcp"));
    meet();
  }

  // A fresh endpoint `victim` in context b whose peer is `raw_`.
  void meet(const EndpointOptions& options = {}) {
    const auto [raw, ours] = tcp_pair("127.0.0.1");
    raw_ = tcp::Socket(raw);
    ours_ = ours;
    victim = &recorders_.emplace_back();
    victim->endpoint = static_cast<tcp::TcpContext&>(*bed_.b).adopt(ours, *victim, options).value();
  }

  void send(std::span<const std::byte> bytes) {
    ASSERT_TRUE(tcp::write_all(raw_.fd(), bytes, monotonic_now() + kPatience).ok());
  }

  void expect_closed(Errc reason) {
    ASSERT_TRUE(drive_until([&] { return victim->closed.has_value(); }))
        << "still open, want " << to_string(reason);
    EXPECT_EQ(*victim->closed, reason) << to_string(*victim->closed) << ", want " << to_string(reason);
    // And the peer is told.
    std::byte b{};
    const Status end = tcp::read_exact(raw_.fd(), {&b, 1}, monotonic_now() + kPatience);
    EXPECT_TRUE(end == Errc::kClosed || end == Errc::kReset);
  }

  // Polls the victim's context until nothing more is in the socket.
  void drain(Nanos now) {
    for (int quiet = 0; quiet < 20;) quiet = bed_.b->poll(now, kBudget) == 0 ? quiet + 1 : 0;
  }

  Bytes frame(size_t size, uint64_t sequence, size_t extensions = 0) {
    const Bytes payload = pattern(size, sequence);
    return encode(header_for(payload, sequence, extensions), extension_area(extensions, sequence), payload);
  }

  // What the peer sees next, when that is no byte.
  Status end_at_peer() {
    std::byte b{};
    return tcp::read_exact(raw_.fd(), {&b, 1}, monotonic_now() + 5 * kSecond);
  }

  tcp::Socket raw_;
  int ours_ = -1;                   // the victim's own
  std::deque<Recorder> recorders_;  // those of earlier victims, whose endpoints may still be there

 public:
  Recorder* victim = nullptr;
};

TEST_F(TcpStream, ClosesOnRandomBytes) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    meet();
    send(pattern(200 + seed * 40, seed));
    expect_closed(Errc::kBadMagic);
    EXPECT_EQ(victim->headers, 0U);
  }
}

TEST_F(TcpStream, ClosesOnAHttpRequest) {
  const std::string request =
      "GET / HTTP/1.1\r\nHost: reducer\r\nUser-Agent: a scanner of some kind, long enough\r\n\r\n";
  send(std::as_bytes(std::span(request)));
  expect_closed(Errc::kBadMagic);
}

TEST_F(TcpStream, ClosesOnEachSpoiledByteOfAHeader) {
  const Bytes good = frame(100, 0, 16);
  for (size_t i = 0; i < wire::kHeaderBytes + 16; ++i) {
    SCOPED_TRACE(i);
    meet();
    Bytes bad = good;
    bad[i] ^= std::byte{0x10};
    send(bad);
    // A longer extension area or a shorter one may leave it waiting for bytes: then the end comes in the
    // middle of a frame.
    ::shutdown(raw_.fd(), SHUT_WR);
    ASSERT_TRUE(drive_until([&] { return victim->closed.has_value(); }));
    EXPECT_NE(*victim->closed, Errc::kClosed);
    EXPECT_EQ(victim->headers, 0U);
  }
}

TEST_F(TcpStream, NamesTheSpoiledField) {
  struct Case {
    size_t offset;
    uint8_t value;
    Errc reason;
  };
  // Offsets of PROTOCOL.md section 2.
  const std::vector<Case> cases{
      {0, 'X', Errc::kBadMagic},  {4, 99, Errc::kBadVersion},    {5, 200, Errc::kBadType},
      {7, 0x80, Errc::kBadField}, {8, 200, Errc::kBadExtension}, {9, 3, Errc::kBadEncoding},
      {22, 77, Errc::kBadKind},   {23, 5, Errc::kBadEncoding},   {44, 66, Errc::kBadDType},
      {47, 55, Errc::kBadOp},     {51, 0x7F, Errc::kBadLength},  {60, 0, Errc::kBadHeaderCrc}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.offset);
    meet();
    Bytes bytes = frame(100, 0);
    bytes[c.offset] = c.offset == 60 ? ~bytes[60] : std::byte{c.value};
    send(bytes);
    expect_closed(c.reason);
    EXPECT_EQ(victim->headers, 0U);
  }
}

TEST_F(TcpStream, ClosesOnALengthAboveItsLimitBeforeThePayloadIsThere) {
  meet({.max_payload = 4096});
  const Bytes payload = pattern(5000, 0);
  send(encode(header_for(payload, 0), {}, {}));
  expect_closed(Errc::kBadLength);
}

TEST_F(TcpStream, DeliversTheGoodFramesBeforeABadOne) {
  Bytes stream = frame(3000, 0);
  for (const Bytes& more : {frame(10, 1), frame(0, 2), pattern(500, 9)})
    stream.insert(stream.end(), more.begin(), more.end());
  send(stream);
  expect_closed(Errc::kBadMagic);
  EXPECT_EQ(victim->received.size(), 3U);
}

TEST_F(TcpStream, TimesOutOnHalfAHeaderThenSilence) {
  meet({.frame_deadline = 10 * kSecond});
  const Bytes bytes = frame(100, 0);
  send(std::span(bytes).first(30));
  const Nanos begin = monotonic_now();
  drain(begin);
  drain(begin + 9 * kSecond);
  EXPECT_FALSE(victim->closed.has_value());
  drain(begin + 10 * kSecond + kSecond);
  ASSERT_TRUE(victim->closed.has_value());
  EXPECT_EQ(*victim->closed, Errc::kTimeout);
}

TEST_F(TcpStream, TimesOutOnHalfAPayloadThenSilence) {
  meet({.frame_deadline = 2 * kSecond});
  const Bytes bytes = frame(10'000, 0);
  send(std::span(bytes).first(5000));
  const Nanos begin = monotonic_now();
  drain(begin);
  EXPECT_EQ(victim->headers, 1U);
  drain(begin + 3 * kSecond);
  EXPECT_EQ(victim->closed, Errc::kTimeout);
}

TEST_F(TcpStream, EveryByteRestartsTheFrameDeadline) {
  meet({.frame_deadline = 2 * kSecond});
  const Bytes bytes = frame(10, 0);
  Nanos now = monotonic_now();
  for (size_t i = 0; i < bytes.size(); ++i, now += 1900 * kMillisecond) {
    send(std::span(bytes).subspan(i, 1));
    while (victim->endpoint->counters().wire_bytes_in <= i) bed_.b->poll(now, kBudget);
    ASSERT_FALSE(victim->closed.has_value());
  }
  EXPECT_EQ(victim->received.size(), 1U);
}

TEST_F(TcpStream, NeverTimesOutBetweenFrames) {
  meet({.frame_deadline = kSecond});
  send(frame(10, 0));
  ASSERT_TRUE(drive_until([&] { return victim->received.size() == 1; }));
  drain(monotonic_now() + 3600 * kSecond);
  EXPECT_FALSE(victim->closed.has_value());
}

TEST_F(TcpStream, ReadsWhatIsThereBeforeItCallsAFrameLate) {
  meet({.frame_deadline = kSecond});
  const Bytes bytes = frame(1000, 0);
  send(std::span(bytes).first(100));
  const Nanos begin = monotonic_now();
  drain(begin);
  send(std::span(bytes).subspan(100));
  // The owner was away for an hour; the rest has long been in the socket.
  drain(begin + 3600 * kSecond);
  EXPECT_EQ(victim->received.size(), 1U);
  EXPECT_FALSE(victim->closed.has_value());
}

// A busy neighbour lets the context go some turns without asking epoll: lateness may be judged in one of
// those.
TEST_F(TcpStream, ReadsWhatIsThereBeforeItCallsAFrameLateBesideABusyNeighbour) {
  const Bytes bytes = frame(1000, 0);
  for (int phase = 0; phase < 4; ++phase) {
    SCOPED_TRACE(phase);
    meet({.frame_deadline = kSecond});
    send(std::span(bytes).first(100));
    const Nanos begin = monotonic_now();
    while (victim->endpoint->counters().wire_bytes_in == 0) bed_.b->poll(begin, kBudget);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(healthy_left.put_pattern(kMiB, i).ok());
    bed_.a->poll(begin, kBudget);
    // With a budget this small the neighbour always has more to read.
    for (int i = 0; i <= phase; ++i) bed_.b->poll(begin, 1);
    send(std::span(bytes).subspan(100));
    bed_.b->poll(begin + 3600 * kSecond, 1);
    ASSERT_TRUE(drive_until([&] { return healthy_left.all_given_back() && !victim->received.empty(); }));
  }
}

TEST_F(TcpStream, WakesItsOwnerForAFrameDeadline) {
  meet({.frame_deadline = 20 * kMillisecond});
  const Bytes bytes = frame(1000, 0);
  send(std::span(bytes).first(100));
  const Nanos begin = monotonic_now();
  while (!victim->closed && monotonic_now() - begin < kPatience) {
    bed_.b->poll(monotonic_now(), kBudget);
    if (!victim->closed) bed_.b->wait(kPatience);
  }
  EXPECT_EQ(victim->closed, Errc::kTimeout);
  EXPECT_LT(monotonic_now() - begin, kPatience / 2);
}

TEST_F(TcpStream, EndWithinAHeaderIsABreak) {
  const Bytes bytes = frame(100, 0);
  send(std::span(bytes).first(63));
  ::shutdown(raw_.fd(), SHUT_WR);
  expect_closed(Errc::kReset);
}

TEST_F(TcpStream, EndWithinAPayloadIsABreak) {
  const Bytes bytes = frame(100'000, 0);
  send(std::span(bytes).first(50'000));
  ::shutdown(raw_.fd(), SHUT_WR);
  expect_closed(Errc::kReset);
  EXPECT_EQ(victim->headers, 1U);
  EXPECT_TRUE(victim->received.empty());
}

TEST_F(TcpStream, EndBetweenFramesIsInOrder) {
  send(frame(100'000, 0));
  ::shutdown(raw_.fd(), SHUT_WR);
  expect_closed(Errc::kClosed);
  EXPECT_EQ(victim->received.size(), 1U);
}

TEST_F(TcpStream, AbortedConnectionIsABreak) {
  const linger abort{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(raw_.fd(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  raw_ = tcp::Socket();
  ASSERT_TRUE(drive_until([&] { return victim->closed.has_value(); }));
  EXPECT_EQ(*victim->closed, Errc::kReset);
}

TEST_F(TcpStream, DeliversWhatThePeerSaidBeforeItBrokeOff) {
  send(frame(500, 0));
  // With unread bytes in it, closing the raw socket breaks the connection under the victim's next send.
  ASSERT_TRUE(victim->put_pattern(1000, 1).ok());
  ASSERT_TRUE(victim->put_pattern(1000, 2).ok());
  const size_t before = victim->received.size();
  bed_.b->poll(monotonic_now(), 1);
  raw_ = tcp::Socket();
  for (uint64_t i = 3; i < 40 && victim->endpoint != nullptr; ++i) {
    if (victim->put_pattern(kMiB, i) != Errc::kOk) break;
  }
  ASSERT_TRUE(drive_until([&] { return victim->closed.has_value(); }));
  EXPECT_EQ(before + victim->received.size(), 1U);
  EXPECT_TRUE(victim->all_given_back());
}

TEST_F(TcpStream, GivesUpOnAPeerThatEndedAndDoesNotRead) {
  meet({.frame_deadline = 5 * kSecond});
  for (uint64_t i = 0; i < 30; ++i) ASSERT_TRUE(victim->put_pattern(4 * kMiB, i).ok());
  ::shutdown(raw_.fd(), SHUT_WR);
  const Nanos begin = monotonic_now();
  drain(begin);
  EXPECT_EQ(victim->put_pattern(1, 30), Errc::kClosed);
  drain(begin + 4 * kSecond);
  EXPECT_FALSE(victim->closed.has_value());
  drain(begin + 20 * kSecond);
  EXPECT_EQ(victim->closed, Errc::kTimeout);
}

// Every way in which the network may cut a stream of two frames in two.
TEST_F(TcpStream, ReadsTheSameFramesWhereverTheStreamIsCut) {
  Bytes stream = frame(200, 0, 24);
  const Bytes second = frame(77, 1, 8);
  stream.insert(stream.end(), second.begin(), second.end());
  for (size_t cut = 1; cut < stream.size(); ++cut) {
    SCOPED_TRACE(cut);
    send(std::span(stream).first(cut));
    const uint64_t target = victim->endpoint->counters().wire_bytes_in + cut;
    ASSERT_TRUE(drive_until([&] { return victim->endpoint->counters().wire_bytes_in >= target; }));
    send(std::span(stream).subspan(cut));
    ASSERT_TRUE(drive_until([&] { return victim->received.size() == 2 || victim->closed; }));
    ASSERT_EQ(victim->received.size(), 2U);
    EXPECT_EQ(victim->received[0].payload, pattern(200, 0));
    EXPECT_EQ(victim->received[1].payload, pattern(77, 1));
    EXPECT_EQ(victim->received[1].extensions, extension_area(8, 1));
    victim->received.clear();
  }
}

TEST_F(TcpStream, ReadsAStreamThatDribblesByteByByte) {
  Bytes stream = frame(200, 0, 24);
  const Bytes second = frame(77, 1, 8);
  stream.insert(stream.end(), second.begin(), second.end());
  for (size_t i = 0; i < stream.size(); ++i) {
    send(std::span(stream).subspan(i, 1));
    ASSERT_TRUE(drive_until([&] { return victim->endpoint->counters().wire_bytes_in > i; }));
  }
  ASSERT_EQ(victim->received.size(), 2U);
  EXPECT_EQ(victim->received[0].payload, pattern(200, 0));
  EXPECT_EQ(victim->received[1].payload, pattern(77, 1));
}

TEST_F(TcpStream, SendsWhatTheCodecSays) {
  Bytes expected;
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(victim->put_pattern(i * 111, i, 16).ok());
    const Bytes one = frame(i * 111, i, 16);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  ASSERT_TRUE(drive_until([&] { return victim->all_given_back(); }));
  Bytes got(expected.size());
  ASSERT_TRUE(tcp::read_exact(raw_.fd(), got, monotonic_now() + kPatience).ok());
  EXPECT_EQ(got, expected);
}

TEST_F(TcpStream, CountsTheTimeInWhichThePeerTakesNothing) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(victim->put_pattern(4 * kMiB, i).ok());
  const Nanos begin = monotonic_now();
  drain(begin);
  const auto blocked = [this] { return victim->endpoint->counters().send_blocked_ns; };
  EXPECT_EQ(blocked(), 0u);
  Bytes got(kMiB);
  while (blocked() == 0) {
    ASSERT_TRUE(tcp::read_exact(raw_.fd(), got, monotonic_now() + kPatience).ok());
    (void)bed_.b->poll(begin + 3 * kSecond, kBudget);
  }
  EXPECT_EQ(blocked(), 3u * kSecond);
}

TEST_F(TcpStream, WaitReturnsAtOnceWhileFramesAreQueued) {
  drain(monotonic_now());
  ASSERT_TRUE(victim->put_pattern(100, 0).ok());
  const Nanos begin = monotonic_now();
  bed_.b->wait(kPatience);
  EXPECT_LT(monotonic_now() - begin, kPatience / 2);
}

TEST_F(TcpStream, ReusesTheSeatOfAClosedEndpoint) {
  for (int round = 0; round < 50; ++round) {
    send(frame(10, 0));
    ASSERT_TRUE(drive_until([&] { return victim->received.size() == 1; }));
    const size_t count = bed_.b->endpoint_count();
    victim->close(Errc::kClosed);
    ASSERT_TRUE(drive_until([&] { return victim->closed.has_value(); }));
    EXPECT_EQ(bed_.b->endpoint_count(), count - 1);
    meet();
  }
}

TEST_F(TcpStream, AdoptsFromWithinACallback) {
  const auto [raw, ours] = tcp_pair("127.0.0.1");
  const tcp::Socket peer(raw);
  Recorder& late = recorders_.emplace_back();
  victim->at_frame = [&, fd = ours](const wire::FrameHeader&, std::span<std::byte>) {
    late.endpoint = static_cast<tcp::TcpContext&>(*bed_.b).adopt(fd, late, {}).value();
  };
  send(frame(10, 0));
  const Bytes bytes = frame(20, 1);
  ASSERT_TRUE(tcp::write_all(peer.fd(), bytes, monotonic_now() + kPatience).ok());
  EXPECT_TRUE(drive_until([&] { return late.received.size() == 1; }));
}

TEST_F(TcpStream, HasTheKernelProbeAnIdlePeerButNeverASlowOne) {
  const auto option = [this](int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    ::getsockopt(ours_, level, name, &value, &size);
    return value;
  };
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 60);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 10);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 6);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
}

// A child that the training process forked holds copies of its descriptors.
TEST_F(TcpStream, TellsThePeerOfItsEndWhereACopyOfTheDescriptorIsLeft) {
  for (const Errc reason : {Errc::kReset, Errc::kClosed}) {
    SCOPED_TRACE(to_string(reason));
    meet();
    const tcp::Socket copy(::dup(ours_));
    victim->close(reason);
    ASSERT_TRUE(drive_until([&] { return victim->closed.has_value(); }));
    EXPECT_EQ(end_at_peer(), reason);
  }
}

TEST_F(TcpStream, TellsThePeerOfTheContextsEndWhereACopyOfTheDescriptorIsLeft) {
  const tcp::Socket copy(::dup(ours_));
  bed_.b.reset();
  EXPECT_EQ(end_at_peer(), Errc::kClosed);
}

TEST_F(TcpStream, RefusesToAdoptWhatIsNoSocket) {
  Recorder none;
  const int file = ::dup(STDIN_FILENO);
  ::close(file);
  EXPECT_FALSE(static_cast<tcp::TcpContext&>(*bed_.b).adopt(file, none, {}).has_value());
}

}  // namespace
}  // namespace sluice::transport::test
