// Delivery: every frame arrives once, in order and unchanged, in the memory of on_header().
#include <algorithm>
#include <numeric>
#include <string>

#include "tests/conformance/transport/transport_fixture.h"

namespace sluice::transport::test {
namespace {

class TransportDelivery : public TransportFixture {
 protected:
  // Sends one frame per size, as the queue has space, and checks the received frames.
  void exchange(const std::vector<size_t>& sizes, size_t extension_bytes = 0) {
    size_t next = 0;
    const bool finished = poll_until([&] {
      while (next < sizes.size() && left.put_pattern(sizes[next], next, extension_bytes).ok()) ++next;
      return right.received.size() == sizes.size() && left.all_completed();
    });
    ASSERT_TRUE(finished) << right.received.size() << " of " << sizes.size() << " frames arrived";
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Bytes payload = pattern(sizes[i], i);
      const auto& frame = right.received[i];
      ASSERT_EQ(frame.header, header_for(payload, i, extension_bytes)) << "frame " << i;
      ASSERT_EQ(frame.payload, payload) << "frame " << i << " of " << sizes[i] << " bytes";
      ASSERT_EQ(frame.extensions, extension_area(extension_bytes, i)) << "frame " << i;
    }
    EXPECT_TRUE(std::ranges::all_of(left.sent, [](Status s) { return s.ok(); }));
    EXPECT_EQ(left.endpoint->counters().frames_out, sizes.size());
    EXPECT_EQ(right.endpoint->counters().frames_in, sizes.size());
    const size_t bytes = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
    EXPECT_EQ(left.endpoint->counters().payload_bytes_out, bytes);
    EXPECT_EQ(right.endpoint->counters().payload_bytes_in, bytes);
    const size_t on_wire = bytes + sizes.size() * (wire::kHeaderBytes + extension_bytes);
    const bool in_memory = std::string(GetParam()).find("memory") != std::string::npos;
    const uint64_t expected = in_memory ? 0 : on_wire;  // memory is no wire
    EXPECT_EQ(left.endpoint->counters().wire_bytes_out, expected);
    EXPECT_EQ(right.endpoint->counters().wire_bytes_in, expected);
  }
};

TEST_P(TransportDelivery, CarriesEverySize) {
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, 4 * kKiB, 256 * kKiB, kMiB, 4 * kMiB}) {
    SCOPED_TRACE(size);
    reconnect();
    exchange({size});
  }
}

TEST_P(TransportDelivery, CarriesTheSameSizeManyTimes) {
  exchange(std::vector<size_t>(20, 256 * kKiB));
}

TEST_P(TransportDelivery, CarriesMixedSizes) {
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 5; ++i) {
    for (const size_t size :
         {size_t{0}, size_t{1}, 4 * kKiB, size_t{64}, 256 * kKiB, size_t{65}, 3967 + i, kMiB - i})
      sizes.push_back(size);
  }
  exchange(sizes, 16);
}

TEST_P(TransportDelivery, CarriesManySmallFrames) {
  std::vector<size_t> sizes(2000);
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = i * 7 % 300;
  exchange(sizes);
}

TEST_P(TransportDelivery, CarriesExtensionsOfEverySize) {
  for (size_t size = 0; size <= kMaxExtensionBytes; size += 8) {
    SCOPED_TRACE(size);
    reconnect();
    exchange({0, 1000, 100'000, 0}, size);
  }
}

TEST_P(TransportDelivery, CopiesExtensionsInsidePut) {
  Bytes area = extension_area(24, 1);
  const Bytes payload = pattern(100, 0);
  ASSERT_TRUE(left.put(header_for(payload, 0, 24), area, payload).ok());
  std::ranges::fill(area, std::byte{0xEE});
  ASSERT_TRUE(poll_until([&] { return right.received.size() == 1; }));
  EXPECT_EQ(right.received[0].extensions, extension_area(24, 1));
}

TEST_P(TransportDelivery, AcceptsAFrameWithoutPayloadCrc) {
  const Bytes payload = pattern(10'000, 0);
  auto header = header_for(payload, 0);
  header.flags = 0;
  header.payload_crc = 0;
  ASSERT_TRUE(left.put(header, {}, payload).ok());
  ASSERT_TRUE(poll_until([&] { return right.received.size() == 1; }));
  EXPECT_EQ(right.received[0].payload, payload);
}

TEST_P(TransportDelivery, KeepsTheDirectionsSeparate) {
  constexpr size_t kFrames = 100;
  size_t from_left = 0, from_right = 0;
  ASSERT_TRUE(poll_until([&] {
    while (from_left < kFrames && left.put_pattern(100'000, from_left).ok()) ++from_left;
    while (from_right < kFrames && right.put_pattern(70'000, 10'000 + from_right).ok()) ++from_right;
    return right.received.size() == kFrames && left.received.size() == kFrames;
  }));
  for (size_t i = 0; i < kFrames; ++i) {
    ASSERT_EQ(right.received[i].payload, pattern(100'000, i));
    ASSERT_EQ(left.received[i].payload, pattern(70'000, 10'000 + i));
  }
}

TEST_P(TransportDelivery, AnswersFromWithinCallbacksTenThousandTimes) {
  constexpr size_t kRounds = 10'000;
  left.keep_payload = right.keep_payload = false;
  size_t rounds = 0;
  right.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte>) {
    EXPECT_TRUE(right.put_pattern(128, h.sequence).ok());
  };
  left.at_frame = [&](const wire::FrameHeader& h, std::span<std::byte>) {
    EXPECT_EQ(h.sequence, rounds);
    if (++rounds < kRounds) {
      EXPECT_TRUE(left.put_pattern(128, rounds).ok());
    }
  };
  ASSERT_TRUE(left.put_pattern(128, 0).ok());
  EXPECT_TRUE(poll_until([&] { return rounds == kRounds; }));
}

TEST_P(TransportDelivery, ReportsThePeer) {
  EXPECT_FALSE(left.endpoint->peer().empty());
  EXPECT_FALSE(right.endpoint->peer().empty());
}

SLUICE_OVER_ALL_TRANSPORTS(TransportDelivery);

}  // namespace
}  // namespace sluice::transport::test
