// Closing by this end, by the peer and by a protocol violation, and the completion of the queued frames.
#include <algorithm>

#include "core/clock.h"
#include "tests/conformance/transport/transport_fixture.h"

namespace sluice::transport::test {
namespace {

class TransportClose : public TransportFixture {
 protected:
  // Expects that both ends close, the receiving end with `reason`.
  void expect_closed_with(Errc reason) {
    ASSERT_TRUE(poll_until([&] { return both_closed(); }));
    EXPECT_EQ(right.closed, reason);
    EXPECT_TRUE(left.closed == Errc::kClosed || left.closed == Errc::kReset);
  }
};

TEST_P(TransportClose, CompletesQueuedFramesWithTheReason) {
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(left.put_pattern(1000, i).ok());
  left.close(Errc::kAborted);
  EXPECT_EQ(left.put_pattern(10, 10), Errc::kClosed);
  EXPECT_TRUE(left.sent.empty());
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(left.closed, Errc::kAborted);
  EXPECT_EQ(left.sent, std::vector<Status>(10, Errc::kAborted));
  EXPECT_EQ(right.closed, Errc::kClosed);
  EXPECT_EQ(right.received.size(), 0U);
}

TEST_P(TransportClose, CompletesAllFramesWhenSomeArePartlySent) {
  rebuild({.send_queue = 6});
  for (uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(left.put_pattern(4 * kMiB, i).ok());
  for (int i = 0; i < 3; ++i) test_bed_.a->poll(monotonic_now(), kBudget);
  left.close(Errc::kAborted);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(left.sent.size(), 6U);
  EXPECT_EQ(left.sent.back(), Errc::kAborted);
  // No frame after an unsent frame was sent.
  EXPECT_TRUE(std::ranges::is_partitioned(left.sent, [](Status s) { return s.ok(); }));
}

TEST_P(TransportClose, AnIdlePeerSeesAnOrderlyEnd) {
  left.close(Errc::kClosed);
  expect_both_closed(Errc::kClosed, Errc::kClosed);
}

TEST_P(TransportClose, WithResetThePeerSeesAReset) {
  left.close(Errc::kReset);
  expect_both_closed(Errc::kReset, Errc::kReset);
}

TEST_P(TransportClose, RepeatedCallsHaveNoEffect) {
  const size_t before = test_bed_.a->endpoint_count();
  left.close(Errc::kAborted);
  left.close(Errc::kTimeout);
  left.shutdown();
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(left.closed, Errc::kAborted);
  EXPECT_EQ(test_bed_.a->endpoint_count(), before - 1);
}

TEST_P(TransportClose, CompletesTheQueueOfThePeerToo) {
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(right.put_pattern(kMiB, i).ok());
  left.close(Errc::kAborted);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(right.sent.size(), 20U);
}

TEST_P(TransportClose, FollowsWhenTheContextOfThePeerIsDestroyed) {
  healthy_left.close(Errc::kClosed);
  ASSERT_TRUE(poll_until([&] { return healthy_left.closed && healthy_right.closed; }));
  ASSERT_TRUE(left.put_pattern(100, 0).ok());
  test_bed_.b.reset();
  ASSERT_TRUE(poll_until([&] { return left.closed.has_value(); }));
  test_bed_.a.reset();
}

TEST_P(TransportClose, DestroyingAContextLosesNoSentFrame) {
  healthy_left.close(Errc::kClosed);
  ASSERT_TRUE(poll_until([&] { return healthy_left.closed && healthy_right.closed; }));
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(left.put_pattern(10'000, i).ok());
  ASSERT_TRUE(poll_until([&] { return left.all_completed(); }));
  test_bed_.a.reset();
  ASSERT_TRUE(poll_until([&] { return right.closed.has_value(); }));
  EXPECT_EQ(right.received.size(), 3U);
  EXPECT_EQ(right.closed, Errc::kClosed);
  test_bed_.b.reset();
}

TEST_P(TransportClose, FollowsARefusedHeader) {
  right.at_header = [](const wire::FrameHeader& h) {
    return h.sequence == 2 ? Status(Errc::kSlotNotGranted) : Status();
  };
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(left.put_pattern(1000, i).ok());
  expect_closed_with(Errc::kSlotNotGranted);
  EXPECT_EQ(right.received.size(), 2U);
  EXPECT_EQ(right.headers, 3U);
}

TEST_P(TransportClose, FollowsAMissingPayloadBuffer) {
  right.no_buffer = true;
  ASSERT_TRUE(left.put_pattern(1000, 0).ok());
  expect_closed_with(Errc::kInternal);
  EXPECT_TRUE(right.received.empty());
}

TEST_P(TransportClose, FollowsAWrongPayloadCrc) {
  for (const size_t size : {size_t{1}, size_t{1000}, kMiB}) {
    SCOPED_TRACE(size);
    reconnect();
    const Bytes payload = pattern(size, 0);
    auto header = header_for(payload, 0);
    header.payload_crc ^= 1;
    ASSERT_TRUE(left.put(header, {}, payload).ok());
    expect_closed_with(Errc::kBadPayloadCrc);
    EXPECT_EQ(right.headers, 1U);
    EXPECT_TRUE(right.received.empty());
  }
}

TEST_P(TransportClose, FollowsAFrameAboveTheLengthLimit) {
  rebuild({.max_payload = 1000});
  ASSERT_TRUE(left.put_pattern(1000, 0).ok());
  ASSERT_TRUE(left.put_pattern(1001, 1).ok());
  expect_closed_with(Errc::kBadLength);
  EXPECT_EQ(right.headers, 1U);
}

TEST_P(TransportClose, FollowsAnInvalidHeader) {
  struct Case {
    Errc reason;
    std::function<void(wire::FrameHeader&)> change;
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
    reconnect();
    auto header = header_for(payload, 0);
    c.change(header);
    ASSERT_TRUE(left.put(header, {}, payload).ok());
    expect_closed_with(c.reason);
    EXPECT_EQ(right.headers, 0U);
  }
}

TEST_P(TransportClose, FollowsMalformedExtensions) {
  Bytes area = extension_area(16, 0);
  area[1] |= std::byte{0x80};  // an unknown mandatory type
  const Bytes payload = pattern(64, 0);
  ASSERT_TRUE(left.put(header_for(payload, 0, 16), area, payload).ok());
  expect_closed_with(Errc::kBadExtension);
  EXPECT_EQ(right.headers, 0U);
}

TEST_P(TransportClose, FromWithinOnHeader) {
  right.at_header = [&](const wire::FrameHeader&) {
    right.close(Errc::kDraining);
    return Status();
  };
  ASSERT_TRUE(left.put_pattern(50, 0).ok());
  ASSERT_TRUE(left.put_pattern(50, 1).ok());
  expect_closed_with(Errc::kDraining);
  EXPECT_EQ(right.headers, 1U);
  EXPECT_TRUE(right.received.empty());
}

TEST_P(TransportClose, OfTheSenderBetweenHeaderAndPayloadReleasesTheBuffer) {
  right.at_header = [&](const wire::FrameHeader&) {
    if (left.endpoint != nullptr) left.close(Errc::kAborted);
    while (!left.closed) test_bed_.a->poll(monotonic_now(), kBudget);  // on_sent() frees the payload
    return Status();
  };
  ASSERT_TRUE(left.put_pattern(100'000, 0).ok());
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_NE(right.closed, Errc::kBadPayloadCrc) << "payload was read after on_sent()";
  // Each frame is either delivered or completed as unsent.
  EXPECT_LE(right.received.size(), static_cast<size_t>(std::ranges::count(left.sent, Status())));
}

TEST_P(TransportClose, FromWithinOnFrame) {
  right.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte>) {
    if (h.sequence == 1) right.close(Errc::kDraining);
  };
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(left.put_pattern(100, i).ok());
  expect_closed_with(Errc::kDraining);
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
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(left.closed, Errc::kDraining);
  EXPECT_EQ(left.sent.size(), 5U);
}

TEST_P(TransportClose, FromWithinOnClosedHasNoEffect) {
  left.at_closed = [&](Errc) {
    left.close(Errc::kInternal);
    left.shutdown();
    EXPECT_EQ(left.put_pattern(1, 0), Errc::kClosed);
  };
  left.close(Errc::kAborted);
  ASSERT_TRUE(poll_until([&] { return both_closed(); }));
  EXPECT_EQ(left.closed, Errc::kAborted);
}

TEST_P(TransportClose, OfOtherEndpointsFromWithinACallback) {
  constexpr size_t kOthers = 8;
  std::vector<RecordingHandler> others(kOthers), peers(kOthers);
  for (size_t i = 0; i < kOthers; ++i) connect(others[i], peers[i], {});
  // All endpoints receive a frame in the same poll. The first callback closes all other endpoints.
  for (auto& peer : peers) ASSERT_TRUE(peer.put_pattern(300, 0).ok());
  for (auto& other : others) {
    other.at_frame = [&](const wire::FrameHeader&, std::span<std::byte>) {
      for (auto& o : others) {
        if (&o != &other) o.close(Errc::kDraining);
      }
    };
  }
  for (int i = 0; i < 3; ++i) test_bed_.b->poll(monotonic_now(), kBudget);
  ASSERT_TRUE(poll_until([&] {
    const auto is_closed = [](const RecordingHandler& r) { return r.closed.has_value(); };
    return std::ranges::count_if(others, is_closed) == kOthers - 1 &&
           std::ranges::count_if(peers, is_closed) == kOthers - 1;
  }));
  size_t frames = 0;
  for (auto& other : others) {
    frames += other.received.size();
    if (other.endpoint != nullptr) other.close(Errc::kClosed);
  }
  EXPECT_EQ(frames, 1U);
  EXPECT_TRUE(
      poll_until([&] { return std::ranges::all_of(peers, [](auto& p) { return p.closed.has_value(); }); }));
}

SLUICE_OVER_ALL_TRANSPORTS(TransportClose);

}  // namespace
}  // namespace sluice::transport::test
