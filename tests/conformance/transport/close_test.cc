// Ends: by us, by the peer, by a breach; and what is given back then.
#include <algorithm>

#include "core/clock.h"
#include "tests/conformance/transport/fixture.h"

namespace sluice::transport::test {
namespace {

class TransportClose : public TransportTest {
 protected:
  // The pair under test ends, the receiving side with `reason`.
  void expect_breach(Errc reason) {
    ASSERT_TRUE(drive_until([&] { return over(); }));
    EXPECT_EQ(right.closed, reason);
    EXPECT_TRUE(left.closed == Errc::kClosed || left.closed == Errc::kReset);
  }
};

TEST_P(TransportClose, GivesBackQueuedFramesWithTheReason) {
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(left.put_pattern(1000, i).ok());
  left.close(Errc::kAborted);
  EXPECT_EQ(left.put_pattern(10, 10), Errc::kClosed);
  EXPECT_TRUE(left.sent.empty());
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_EQ(left.closed, Errc::kAborted);
  EXPECT_EQ(left.sent, std::vector<Status>(10, Errc::kAborted));
  EXPECT_EQ(right.closed, Errc::kClosed);
  EXPECT_EQ(right.received.size(), 0U);
}

TEST_P(TransportClose, GivesBackEverythingWhenFramesArePartlySent) {
  rebuild({.send_queue = 6});
  for (uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(left.put_pattern(4 * kMiB, i).ok());
  for (int i = 0; i < 3; ++i) bed_.a->poll(monotonic_now(), kBudget);
  left.close(Errc::kAborted);
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_EQ(left.sent.size(), 6U);
  EXPECT_EQ(left.sent.back(), Errc::kAborted);
  // Once one was not sent, none behind it was.
  EXPECT_TRUE(std::ranges::is_partitioned(left.sent, [](Status s) { return s.ok(); }));
}

TEST_P(TransportClose, IsSeenByAnIdlePeerAsAnEndInOrder) {
  left.close(Errc::kClosed);
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_EQ(left.closed, Errc::kClosed);
  EXPECT_EQ(right.closed, Errc::kClosed);
}

TEST_P(TransportClose, WithResetIsSeenByThePeerAsABreak) {
  left.close(Errc::kReset);
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_EQ(left.closed, Errc::kReset);
  EXPECT_EQ(right.closed, Errc::kReset);
}

TEST_P(TransportClose, CountsOnceHoweverOftenItIsCalled) {
  const size_t before = bed_.a->endpoint_count();
  left.close(Errc::kAborted);
  left.close(Errc::kTimeout);
  left.shutdown();
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_EQ(left.closed, Errc::kAborted);
  EXPECT_EQ(bed_.a->endpoint_count(), before - 1);
}

TEST_P(TransportClose, GivesBackThePeersQueueToo) {
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(right.put_pattern(kMiB, i).ok());
  left.close(Errc::kAborted);
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_EQ(right.sent.size(), 20U);
}

TEST_P(TransportClose, FollowsWhenThePeersContextIsDestroyed) {
  healthy_left.close(Errc::kClosed);
  ASSERT_TRUE(drive_until([&] { return healthy_left.closed && healthy_right.closed; }));
  ASSERT_TRUE(left.put_pattern(100, 0).ok());
  bed_.b.reset();
  ASSERT_TRUE(drive_until([&] { return left.closed.has_value(); }));
  bed_.a.reset();
}

TEST_P(TransportClose, OfAContextLosesNothingThatWasSent) {
  healthy_left.close(Errc::kClosed);
  ASSERT_TRUE(drive_until([&] { return healthy_left.closed && healthy_right.closed; }));
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(left.put_pattern(10'000, i).ok());
  ASSERT_TRUE(drive_until([&] { return left.all_given_back(); }));
  bed_.a.reset();
  ASSERT_TRUE(drive_until([&] { return right.closed.has_value(); }));
  EXPECT_EQ(right.received.size(), 3U);
  EXPECT_EQ(right.closed, Errc::kClosed);
  bed_.b.reset();
}

TEST_P(TransportClose, HappensWhenAHeaderIsRefused) {
  right.at_header = [](const wire::FrameHeader& h) {
    return h.sequence == 2 ? Status(Errc::kSlotNotGranted) : Status();
  };
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(left.put_pattern(1000, i).ok());
  expect_breach(Errc::kSlotNotGranted);
  EXPECT_EQ(right.received.size(), 2U);
  EXPECT_EQ(right.headers, 3U);
}

TEST_P(TransportClose, HappensWhenAPayloadIsGivenNoPlace) {
  right.no_place = true;
  ASSERT_TRUE(left.put_pattern(1000, 0).ok());
  expect_breach(Errc::kInternal);
  EXPECT_TRUE(right.received.empty());
}

TEST_P(TransportClose, HappensWhenThePayloadCrcIsWrong) {
  for (const size_t size : {size_t{1}, size_t{1000}, kMiB}) {
    SCOPED_TRACE(size);
    left = Recorder();
    right = Recorder();
    connect(left, right, {});
    const Bytes payload = pattern(size, 0);
    auto header = header_for(payload, 0);
    header.payload_crc ^= 1;
    ASSERT_TRUE(left.put(header, {}, payload).ok());
    expect_breach(Errc::kBadPayloadCrc);
    EXPECT_EQ(right.headers, 1U);
    EXPECT_TRUE(right.received.empty());
  }
}

TEST_P(TransportClose, HappensWhenAFrameIsLongerThanAllowed) {
  rebuild({.max_payload = 1000});
  ASSERT_TRUE(left.put_pattern(1000, 0).ok());
  ASSERT_TRUE(left.put_pattern(1001, 1).ok());
  expect_breach(Errc::kBadLength);
  EXPECT_EQ(right.headers, 1U);
}

TEST_P(TransportClose, HappensWhenTheHeaderIsWrong) {
  struct Case {
    Errc reason;
    std::function<void(wire::FrameHeader&)> spoil;
  };
  const std::vector<Case> cases{
      {Errc::kBadVersion, [](auto& h) { h.version = 200; }},
      {Errc::kBadType, [](auto& h) { h.type = static_cast<wire::FrameType>(250); }},
      {Errc::kBadField, [](auto& h) { h.flags = 0x8000; }},
      {Errc::kBadKind, [](auto& h) { h.kind = static_cast<wire::Kind>(9); }},
      {Errc::kBadDType, [](auto& h) { h.wire_dtype = static_cast<wire::DType>(99); }},
      {Errc::kBadOp, [](auto& h) { h.op = static_cast<wire::Op>(77); }},
      {Errc::kBadEncoding, [](auto& h) { h.encoding = static_cast<wire::Encoding>(3); }},
  };
  const Bytes payload = pattern(64, 0);
  for (const Case& c : cases) {
    SCOPED_TRACE(to_string(c.reason));
    left = Recorder();
    right = Recorder();
    connect(left, right, {});
    auto header = header_for(payload, 0);
    c.spoil(header);
    ASSERT_TRUE(left.put(header, {}, payload).ok());
    expect_breach(c.reason);
    EXPECT_EQ(right.headers, 0U);
  }
}

TEST_P(TransportClose, HappensWhenExtensionsAreNotWellFormed) {
  Bytes area = extension_area(16, 0);
  area[1] |= std::byte{0x80};  // an unknown type that is mandatory
  const Bytes payload = pattern(64, 0);
  ASSERT_TRUE(left.put(header_for(payload, 0, 16), area, payload).ok());
  expect_breach(Errc::kBadExtension);
  EXPECT_EQ(right.headers, 0U);
}

TEST_P(TransportClose, FromWithinOnHeader) {
  right.at_header = [&](const wire::FrameHeader&) {
    right.close(Errc::kDraining);
    return Status();
  };
  ASSERT_TRUE(left.put_pattern(50, 0).ok());
  ASSERT_TRUE(left.put_pattern(50, 1).ok());
  expect_breach(Errc::kDraining);
  EXPECT_EQ(right.headers, 1U);
  EXPECT_TRUE(right.received.empty());
}

TEST_P(TransportClose, OfTheSenderBetweenHeaderAndPayloadTakesTheBufferBack) {
  right.at_header = [&](const wire::FrameHeader&) {
    if (left.endpoint != nullptr) left.close(Errc::kAborted);
    while (!left.closed) bed_.a->poll(monotonic_now(), kBudget);  // the payload's memory goes with on_sent()
    return Status();
  };
  ASSERT_TRUE(left.put_pattern(100'000, 0).ok());
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_NE(right.closed, Errc::kBadPayloadCrc) << "read after it was given back";
  // Delivered or given back unsent, never both.
  EXPECT_LE(right.received.size(), static_cast<size_t>(std::ranges::count(left.sent, Status())));
}

TEST_P(TransportClose, FromWithinOnFrame) {
  right.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte>) {
    if (h.sequence == 1) right.close(Errc::kDraining);
  };
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(left.put_pattern(100, i).ok());
  expect_breach(Errc::kDraining);
  EXPECT_EQ(right.received.size(), 2U);
  EXPECT_EQ(right.headers, 2U);
}

TEST_P(TransportClose, FromWithinOnSent) {
  left.at_sent = [&](Cookie c, Status) {
    if (c == 1) left.close(Errc::kDraining);
    if (c >= 1) {
      EXPECT_EQ(left.put_pattern(1, 9), Errc::kClosed);
    }
  };
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(left.put_pattern(100, i).ok());
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_EQ(left.closed, Errc::kDraining);
  EXPECT_EQ(left.sent.size(), 5U);
}

TEST_P(TransportClose, FromWithinOnClosedChangesNothing) {
  left.at_closed = [&](Errc) {
    left.close(Errc::kInternal);
    left.shutdown();
    EXPECT_EQ(left.put_pattern(1, 0), Errc::kClosed);
  };
  left.close(Errc::kAborted);
  ASSERT_TRUE(drive_until([&] { return over(); }));
  EXPECT_EQ(left.closed, Errc::kAborted);
}

TEST_P(TransportClose, OfOtherEndpointsFromWithinACallback) {
  constexpr size_t kOthers = 8;
  std::vector<Recorder> others(kOthers), peers(kOthers);
  for (size_t i = 0; i < kOthers; ++i) connect(others[i], peers[i], {});
  // All have frames to receive in the same turn; whoever is first closes all the rest.
  for (auto& peer : peers) ASSERT_TRUE(peer.put_pattern(300, 0).ok());
  for (auto& other : others) {
    other.at_frame = [&](const wire::FrameHeader&, std::span<std::byte>) {
      for (auto& o : others) {
        if (&o != &other) o.close(Errc::kDraining);
      }
    };
  }
  for (int i = 0; i < 3; ++i) bed_.b->poll(monotonic_now(), kBudget);
  ASSERT_TRUE(drive_until([&] {
    const auto gone = [](const Recorder& r) { return r.closed.has_value(); };
    return std::ranges::count_if(others, gone) == kOthers - 1 &&
           std::ranges::count_if(peers, gone) == kOthers - 1;
  }));
  size_t frames = 0;
  for (auto& other : others) {
    frames += other.received.size();
    if (other.endpoint != nullptr) other.close(Errc::kClosed);
  }
  EXPECT_EQ(frames, 1U);
  EXPECT_TRUE(
      drive_until([&] { return std::ranges::all_of(peers, [](auto& p) { return p.closed.has_value(); }); }));
}

SLUICE_OVER_ALL_TRANSPORTS(TransportClose);

}  // namespace
}  // namespace sluice::transport::test
