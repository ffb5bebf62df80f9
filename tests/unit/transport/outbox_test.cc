#include "transport/rdma/outbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/conformance/transport/frames.h"

namespace sluice::transport::rdma {
namespace {

using test::Bytes;

struct Posting {
  explicit Posting(size_t capacity) : outbox(capacity) {}
  void push(size_t size, uint64_t number, size_t extensions) {
    payloads.push_back(test::pattern(size, number));
    const auto header = test::header_for(payloads.back(), number, extensions);
    const Bytes area = test::extension_area(extensions, number);
    outbox.push(header, area, payloads.back(), number);
    const Bytes frame = test::encode(header, area, payloads.back());
    expected.insert(expected.end(), frame.begin(), frame.end());
  }
  void give_back(uint64_t sends_done) {
    while (const auto* frame = outbox.pop_sent(sends_done)) cookies.push_back(frame->cookie);
  }
  Outbox outbox;
  std::deque<Bytes> payloads;
  Bytes expected, stream;
  std::vector<Cookie> cookies;
};

// Whoever reads a segment parses it by itself: no header, nor its extensions, goes on in the next.
TEST(Outbox, IsTakenInSegmentsWithoutCuttingAHeader) {
  for (const size_t room : {128, 129, 200, 1000, 16'384}) {
    SCOPED_TRACE(room);
    Posting p(4);
    uint64_t number = 0;
    size_t left_of_payload = 0;
    while (number < 20 || !p.outbox.empty()) {
      while (number < 20 && !p.outbox.full()) {
        p.push(number % 3 == 0 ? 0 : number * 37, number, number % 9 * 8);
        ++number;
      }
      Bytes buffer(room);
      size_t used = 0;
      while (const size_t taken = p.outbox.take(std::span(buffer).subspan(used))) used += taken;
      buffer.resize(used);
      ASSERT_FALSE(buffer.empty());
      p.stream.insert(p.stream.end(), buffer.begin(), buffer.end());
      p.give_back(0);
      for (size_t at = std::min(left_of_payload, buffer.size()); at < buffer.size();) {
        ASSERT_GE(buffer.size() - at, wire::kHeaderBytes);
        wire::FrameHeader h;
        ASSERT_TRUE(wire::decode_header(std::span(buffer).subspan(at).first<wire::kHeaderBytes>(), h).ok());
        ASSERT_GE(buffer.size() - at, wire::kHeaderBytes + h.extension_bytes());
        const size_t end = at + wire::kHeaderBytes + h.extension_bytes() + h.length;
        left_of_payload = end > buffer.size() ? end : 0;
        at = end;
      }
      left_of_payload -= std::min(left_of_payload, buffer.size());
    }
    EXPECT_EQ(p.stream, p.expected);
    EXPECT_EQ(p.cookies.size(), 20U);
  }
}

// The payload of a frame that was placed is the device's until its send is done; those behind it wait.
TEST(Outbox, KeepsWhatTheDeviceReads) {
  Posting p(4);
  for (uint64_t i = 0; i < 3; ++i) p.push(100, i, 0);
  Bytes room(1000);
  ASSERT_GT(p.outbox.take(room), 0U);
  EXPECT_EQ(p.outbox.at_start()->cookie, 1U);
  p.outbox.sent_until(5);
  ASSERT_GT(p.outbox.take(room), 0U);
  EXPECT_FALSE(p.outbox.unsent());
  EXPECT_EQ(p.outbox.bytes_copied(), 200U);
  p.give_back(4);
  EXPECT_EQ(p.cookies, std::vector<Cookie>{0});
  EXPECT_TRUE(p.outbox.reads_payload(4));
  EXPECT_FALSE(p.outbox.empty());
  p.give_back(5);
  EXPECT_EQ(p.cookies.size(), 3U);
  EXPECT_TRUE(p.outbox.empty());
  EXPECT_FALSE(p.outbox.reads_payload(4));
}

TEST(Outbox, GivesBackWhatWasNeverSent) {
  Posting p(3);
  for (uint64_t i = 0; i < 3; ++i) p.push(1000, i, 0);
  EXPECT_TRUE(p.outbox.full());
  Bytes room(200);
  ASSERT_EQ(p.outbox.take(room), 200U);  // within the first
  EXPECT_EQ(p.outbox.at_start(), nullptr);
  for (Cookie c = 0; c < 3; ++c) EXPECT_EQ(p.outbox.pop()->cookie, c);
  EXPECT_TRUE(p.outbox.empty());
  p.push(10, 3, 0);
  EXPECT_EQ(p.outbox.at_start()->cookie, 3U);
}

}  // namespace
}  // namespace sluice::transport::rdma
