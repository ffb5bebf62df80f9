#include "transport/tcp/send_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/conformance/transport/frames.h"

namespace sluice::transport::tcp {
namespace {

using test::Bytes;

struct SendQueueFixture {
  explicit SendQueueFixture(size_t capacity) : queue(capacity) {}
  void push(size_t size, uint64_t number, size_t extensions) {
    payloads.push_back(test::pattern(size, number));
    const auto header = test::header_for(payloads.back(), number, extensions);
    const Bytes area = test::extension_area(extensions, number);
    queue.push(header, area, payloads.back(), number);
    const Bytes frame = test::encode(header, area, payloads.back());
    expected.insert(expected.end(), frame.begin(), frame.end());
  }
  // Sends at most `most` bytes, like a socket.
  void send(size_t most, size_t blocks = 32) {
    std::vector<iovec> out(blocks);
    size_t bytes = 0;
    const size_t used = queue.gather(out, bytes);
    size_t left = most, sum = 0;
    for (size_t i = 0; i < used; ++i) {
      const size_t take = std::min(left, out[i].iov_len);
      const auto* data = static_cast<const std::byte*>(out[i].iov_base);
      stream.insert(stream.end(), data, data + take);
      left -= take;
      sum += out[i].iov_len;
    }
    EXPECT_EQ(sum, bytes);
    queue.advance(most - left);
    while (const auto* frame = queue.pop_sent()) cookies.push_back(frame->cookie);
  }
  SendQueue queue;
  std::deque<Bytes> payloads;
  Bytes expected, stream;
  std::vector<Cookie> cookies;
};

TEST(SendQueue, ProducesTheSameStreamForAnySplit) {
  for (const size_t step : {1, 2, 63, 64, 65, 100, 1000, 100'000}) {
    SCOPED_TRACE(step);
    SendQueueFixture s(4);
    uint64_t number = 0;
    while (number < 20 || !s.queue.empty()) {
      while (number < 20 && !s.queue.full()) {
        s.push(number % 3 == 0 ? 0 : number * 37, number, number % 4 * 8);
        ++number;
      }
      s.send(step);
    }
    EXPECT_EQ(s.stream, s.expected);
    EXPECT_TRUE(std::ranges::is_sorted(s.cookies));
    EXPECT_EQ(s.cookies.size(), 20U);
  }
}

TEST(SendQueue, FillsAtMostTheGivenBlocks) {
  SendQueueFixture s(64);
  for (uint64_t i = 0; i < 64; ++i) s.push(10, i, 0);
  s.send(100'000, 7);
  EXPECT_EQ(s.cookies.size(), 3U);
}

TEST(SendQueue, IsFullAtItsCapacity) {
  SendQueueFixture s(3);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(s.queue.full());
    s.push(0, i, 0);
  }
  EXPECT_TRUE(s.queue.full());
  EXPECT_EQ(s.queue.pop()->cookie, 0U);
  EXPECT_FALSE(s.queue.full());
}

}  // namespace
}  // namespace sluice::transport::tcp
