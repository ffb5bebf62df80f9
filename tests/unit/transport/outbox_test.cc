#include "transport/rdma/outbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/conformance/transport/frames.h"

namespace sluice::transport::rdma {
namespace {

using test::Bytes;

struct OutboxWithPayloads {
  explicit OutboxWithPayloads(size_t capacity) : outbox(capacity) {}
  void push(size_t size, uint64_t number, size_t extensions) {
    payloads.push_back(test::pattern(size, number));
    const auto header = test::header_for(payloads.back(), number, extensions);
    const Bytes area = test::extension_area(extensions, number);
    outbox.push(header, area, payloads.back(), number);
    const Bytes frame = test::encode(header, area, payloads.back());
    expected.insert(expected.end(), frame.begin(), frame.end());
  }
  void complete(uint64_t sends_done) {
    while (const auto* frame = outbox.pop_completed(sends_done)) cookies.push_back(frame->cookie);
  }
  Outbox outbox;
  std::deque<Bytes> payloads;
  Bytes expected, stream;
  std::vector<Cookie> cookies;
};

// The receiver parses each segment on its own, so no header with its extensions may continue in the next
// segment.
TEST(Outbox, CopiesIntoSegmentsWithoutSplittingAHeader) {
  for (const size_t room : {128, 129, 200, 1000, 16'384}) {
    SCOPED_TRACE(room);
    OutboxWithPayloads p(4);
    uint64_t number = 0;
    size_t payload_left = 0;
    while (number < 20 || !p.outbox.empty()) {
      while (number < 20 && !p.outbox.full()) {
        p.push(number % 3 == 0 ? 0 : number * 37, number, number % 9 * 8);
        ++number;
      }
      Bytes buffer(room);
      size_t used = 0;
      while (const size_t taken = p.outbox.copy_next(std::span(buffer).subspan(used))) used += taken;
      buffer.resize(used);
      ASSERT_FALSE(buffer.empty());
      p.stream.insert(p.stream.end(), buffer.begin(), buffer.end());
      p.complete(0);
      for (size_t at = std::min(payload_left, buffer.size()); at < buffer.size();) {
        ASSERT_GE(buffer.size() - at, wire::kHeaderBytes);
        wire::FrameHeader h;
        ASSERT_TRUE(wire::decode_header(std::span(buffer).subspan(at).first<wire::kHeaderBytes>(), h).ok());
        ASSERT_GE(buffer.size() - at, wire::kHeaderBytes + h.extension_bytes());
        const size_t end = at + wire::kHeaderBytes + h.extension_bytes() + h.length;
        payload_left = end > buffer.size() ? end : 0;
        at = end;
      }
      payload_left -= std::min(payload_left, buffer.size());
    }
    EXPECT_EQ(p.stream, p.expected);
    EXPECT_EQ(p.cookies.size(), 20U);
  }
}

// The device reads the payload of a placed frame until its send is done. Later frames wait for that frame.
TEST(Outbox, KeepsAPayloadWhileTheDeviceReadsIt) {
  OutboxWithPayloads p(4);
  for (uint64_t i = 0; i < 3; ++i) p.push(100, i, 0);
  Bytes room(1000);
  ASSERT_GT(p.outbox.copy_next(room), 0U);
  EXPECT_EQ(p.outbox.next_unstarted()->cookie, 1U);
  p.outbox.mark_sent(5);
  ASSERT_GT(p.outbox.copy_next(room), 0U);
  EXPECT_FALSE(p.outbox.has_unsent());
  EXPECT_EQ(p.outbox.bytes_copied(), 200U);
  p.complete(4);
  EXPECT_EQ(p.cookies, std::vector<Cookie>{0});
  EXPECT_TRUE(p.outbox.device_reads_payload(4));
  EXPECT_FALSE(p.outbox.empty());
  p.complete(5);
  EXPECT_EQ(p.cookies.size(), 3U);
  EXPECT_TRUE(p.outbox.empty());
  EXPECT_FALSE(p.outbox.device_reads_payload(4));
}

TEST(Outbox, PopsUnsentFrames) {
  OutboxWithPayloads p(3);
  for (uint64_t i = 0; i < 3; ++i) p.push(1000, i, 0);
  EXPECT_TRUE(p.outbox.full());
  Bytes room(200);
  ASSERT_EQ(p.outbox.copy_next(room), 200U);  // a part of the first frame
  EXPECT_EQ(p.outbox.next_unstarted(), nullptr);
  for (Cookie c = 0; c < 3; ++c) EXPECT_EQ(p.outbox.pop()->cookie, c);
  EXPECT_TRUE(p.outbox.empty());
  p.push(10, 3, 0);
  EXPECT_EQ(p.outbox.next_unstarted()->cookie, 3U);
}

}  // namespace
}  // namespace sluice::transport::rdma
