// An endpoint and a peer that uses advertised buffers rightly or wrongly. The test controls the peer's queue
// pair.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "core/arena.h"
#include "core/clock.h"
#include "tests/conformance/transport/frames.h"
#include "tests/conformance/transport/rdma_test_bed.h"
#include "tests/conformance/transport/transport_fixture.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::test {
namespace {

constexpr uint32_t kBufferBytes = 16 * kKiB;
constexpr uint64_t kBuffers = 4;

// Advertises one buffer for each of the first frames, and receives into these buffers.
class AdvertisingHandler final : public Handler {
 public:
  explicit AdvertisingHandler(std::byte* memory) : buffers(memory) {}
  ReceiveTarget on_header(Endpoint& /*ep*/, const wire::FrameHeader& header,
                          std::span<const std::byte> /*extensions*/) noexcept override {
    const bool advertised = header.sequence < kBuffers && !receive_elsewhere;
    return {Errc::kOk, advertised ? buffers + header.sequence * kBufferBytes : other_buffer.data()};
  }
  void on_frame(Endpoint& /*ep*/, const wire::FrameHeader& /*header*/,
                std::span<const std::byte> /*extensions*/, std::span<std::byte> payload) noexcept override {
    last.assign(payload.begin(), payload.end());
    ++received;
  }
  RemoteBuffer advertise(Endpoint& /*ep*/) noexcept override {
    if (next == kBuffers) return {};
    const uint64_t sequence = next++;
    return {buffers + sequence * kBufferBytes, kBufferBytes, 0, sequence};
  }
  void on_sent(Endpoint& /*ep*/, Cookie /*cookie*/, Status /*status*/) noexcept override {}
  void on_closed(Endpoint& /*ep*/, Errc reason) noexcept override { closed = reason; }

  std::byte* const buffers;
  Bytes other_buffer = Bytes(kBufferBytes), last;
  bool receive_elsewhere = false;  // on_header() returns other memory than was advertised
  uint64_t next = 0;
  size_t received = 0;
  std::optional<Errc> closed;
};

class AdvertisedBuffersFixture : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(register_advertised().has_value());
    const auto [one, other] = rdma_addresses();
    auto [near, far] = connected_rdma_pair(one, other, {.memory = memory_}, {.memory = memory_});
    context_ = rdma::make_context().value();
    endpoint_ = context_->adopt(std::move(near), handler_, {}).value();
    peer_.reset(static_cast<rdma::QueuePair*>(far.release_channel().release()));
    peer_socket_ = std::move(far);
    ASSERT_TRUE(poll_until([&] { return advertisements_.size() == kBuffers; }));
  }
  [[nodiscard]] virtual Result<void> register_advertised() const {
    return memory_->add(advertised(), rdma::Memory::Use::kSendAndAdvertise);
  }
  [[nodiscard]] std::span<std::byte> advertised() const { return {arena_.data(), kBuffers * kBufferBytes}; }
  [[nodiscard]] std::span<std::byte> other_memory() const {
    return {arena_.data() + kBuffers * kBufferBytes, kBufferBytes};
  }
  bool poll_until(const std::function<bool()>& done) {
    const Nanos deadline = monotonic_now() + kTestTimeout;
    while (!done()) {
      if (monotonic_now() > deadline) return false;
      context_->poll(monotonic_now(), kBudget);
      if (!peer_->poll_completions().ok()) continue;
      while (peer_->has_received() && !peer_->is_at_end()) {
        const auto [bytes, info] = peer_->front_segment();
        for (size_t i = 0; i < info.buffers_in_front; ++i) {
          const auto encoded = bytes.subspan(i * rdma::kAdvertisedBufferBytes);
          advertisements_.push_back(
              rdma::decode_advertised_buffer(encoded.first<rdma::kAdvertisedBufferBytes>()));
        }
        recall_received_ |= info.recall;
        placed_ += info.placed ? 1 : 0;
        stream_bytes_ += bytes.size() - info.buffers_in_front * rdma::kAdvertisedBufferBytes;
        peer_->pop_segment();
      }
    }
    return true;
  }
  // The encoded header of frame `sequence` with this payload.
  static Bytes header_of(std::span<const std::byte> payload, uint64_t sequence) {
    Bytes frame = encode(header_for(payload, sequence), {}, payload);
    frame.resize(wire::kHeaderBytes);
    return frame;
  }
  void send_from_peer(const Bytes& bytes, const rdma::SegmentInfo& info) {
    std::ranges::copy(bytes, peer_->next_segment().begin());
    ASSERT_TRUE(peer_->send(bytes.size(), info).ok());
  }
  void write_from_peer(std::span<const std::byte> payload, const rdma::AdvertisedBuffer& to,
                       const Bytes& header) {
    std::ranges::copy(payload, other_memory().begin());
    ASSERT_TRUE(memory_->add(other_memory(), rdma::Memory::Use::kSend).has_value());
    const auto* const region = peer_->find_region(other_memory().data(), payload.size());
    ASSERT_NE(region, nullptr);
    std::ranges::copy(header, peer_->next_segment().begin());
    ASSERT_TRUE(
        peer_->send_placed(other_memory().first(payload.size()), region->local_key, to, header.size(), {})
            .ok());
  }
  void expect_closed(Errc reason) {
    ASSERT_TRUE(poll_until([&] { return handler_.closed.has_value(); }));
    EXPECT_EQ(*handler_.closed, reason) << to_string(*handler_.closed);
  }

  const Arena arena_ = *Arena::map((kBuffers + 1) * kBufferBytes);
  const std::shared_ptr<rdma::Memory> memory_ = rdma::Memory::make();
  AdvertisingHandler handler_{arena_.data()};
  std::unique_ptr<tcp::TcpContext> context_;
  Endpoint* endpoint_ = nullptr;
  std::unique_ptr<rdma::QueuePair> peer_;
  tcp::Socket peer_socket_;
  std::vector<rdma::AdvertisedBuffer> advertisements_;  // that the peer has received
  bool recall_received_ = false;
  size_t placed_ = 0;  // frames whose payload was written to a buffer
  size_t stream_bytes_ = 0;
};

TEST_F(AdvertisedBuffersFixture, ReceivesAPlacedFrameWithoutACopy) {
  const Bytes payload = pattern(10'000, 2);
  write_from_peer(payload, advertisements_[2], header_of(payload, 2));
  ASSERT_TRUE(poll_until([&] { return handler_.received == 1; }));
  EXPECT_EQ(handler_.last, payload);
  EXPECT_EQ(endpoint_->counters().bytes_copied, 0U);
}

TEST_F(AdvertisedBuffersFixture, RefusesAPlacedFrameWithoutABuffer) {
  const Bytes payload = pattern(100, 9);
  send_from_peer(header_of(payload, 9), {.placed = true});
  expect_closed(Errc::kSlotNotGranted);
}

TEST_F(AdvertisedBuffersFixture, RefusesASecondFrameInOneBuffer) {
  const Bytes payload = pattern(100, 1);
  write_from_peer(payload, advertisements_[1], header_of(payload, 1));
  ASSERT_TRUE(poll_until([&] { return handler_.received == 1; }));
  send_from_peer(header_of(payload, 1), {.placed = true});
  expect_closed(Errc::kSlotNotGranted);
}

TEST_F(AdvertisedBuffersFixture, RefusesAFrameLongerThanItsBuffer) {
  send_from_peer(header_of(pattern(kBufferBytes + 1, 0), 0), {.placed = true});
  expect_closed(Errc::kSlotNotGranted);
}

TEST_F(AdvertisedBuffersFixture, RefusesBytesAfterTheHeaderOfAPlacedFrame) {
  Bytes header = header_of(pattern(100, 0), 0);
  header.resize(header.size() + 8);
  send_from_peer(header, {.placed = true});
  expect_closed(Errc::kBadLength);
}

TEST_F(AdvertisedBuffersFixture, ChecksThePayloadCrcOfAPlacedFrame) {
  write_from_peer(pattern(100, 1), advertisements_[0], header_of(pattern(100, 2), 0));
  expect_closed(Errc::kBadPayloadCrc);
}

TEST_F(AdvertisedBuffersFixture, RefusesFewerBuffersThanAnnounced) {
  send_from_peer(Bytes(2 * rdma::kAdvertisedBufferBytes - 1), {.buffers_in_front = 2});
  expect_closed(Errc::kBadLength);
}

TEST_F(AdvertisedBuffersFixture, RefusesBuffersOutOfOrder) {
  send_from_peer(Bytes(2 * rdma::kAdvertisedBufferBytes), {.buffers_in_front = 2});  // both for frame 0
  expect_closed(Errc::kBadField);
}

TEST_F(AdvertisedBuffersFixture, RefusesTooManyBuffers) {
  for (uint64_t sequence = 0; sequence <= rdma::kMaxAdvertisedBuffers; ++sequence) {
    Bytes bytes(rdma::kAdvertisedBufferBytes);
    rdma::encode({.frame = {.view_version = 0, .sequence = sequence}, .address = 0, .key = 0, .capacity = 1},
                 std::span(bytes).first<rdma::kAdvertisedBufferBytes>());
    ASSERT_TRUE(poll_until([&] { return !peer_->next_segment().empty() || handler_.closed; }));
    if (handler_.closed) break;
    send_from_peer(bytes, {.buffers_in_front = 1});
  }
  expect_closed(Errc::kBadField);
}

TEST_F(AdvertisedBuffersFixture, RefusesARecalledAnswerWithoutARecall) {
  send_from_peer({}, {.recalled = true});
  expect_closed(Errc::kUnexpectedMessage);
}

TEST_F(AdvertisedBuffersFixture, ARecallEndsWithItsAnswerOnly) {
  endpoint_->recall();
  ASSERT_TRUE(poll_until([&] { return recall_received_; }));
  EXPECT_TRUE(endpoint_->has_advertised_buffers());
  // A frame that was placed before the answer is valid.
  const Bytes payload = pattern(100, 0);
  write_from_peer(payload, advertisements_[0], header_of(payload, 0));
  ASSERT_TRUE(poll_until([&] { return handler_.received == 1; }));
  EXPECT_TRUE(endpoint_->has_advertised_buffers());
  send_from_peer({}, {.recalled = true});
  ASSERT_TRUE(poll_until([&] { return !endpoint_->has_advertised_buffers(); }));
  send_from_peer(header_of(payload, 1), {.placed = true});
  expect_closed(Errc::kSlotNotGranted);
}

// The advertised buffers are memory that the CPU must not access.
class DeviceBuffersFixture : public AdvertisedBuffersFixture {
 protected:
  [[nodiscard]] Result<void> register_advertised() const override {
    return memory_->add_device(advertised(), {});
  }
  [[nodiscard]] bool is_untouched() const {
    return std::ranges::all_of(advertised(), [](std::byte b) { return b == std::byte{0}; });
  }
};

TEST_F(DeviceBuffersFixture, AreAdvertisedAsInPlaceOnly) {
  EXPECT_TRUE(std::ranges::all_of(advertisements_, &rdma::AdvertisedBuffer::in_place_only));
}

TEST_F(DeviceBuffersFixture, ReceivesAPlacedFrameWithoutReadingIt) {
  const Bytes payload = pattern(10, 1);
  write_from_peer(payload, advertisements_[0], header_of(pattern(10, 2), 0));
  ASSERT_TRUE(poll_until([&] { return handler_.received == 1; }));
  EXPECT_EQ(handler_.last, payload) << "read by the test only";
}

TEST_F(DeviceBuffersFixture, RefusesAFrameInTheStream) {
  const Bytes payload = pattern(100, 0);
  send_from_peer(encode(header_for(payload, 0), {}, payload), {});
  expect_closed(Errc::kUnsupported);
  EXPECT_EQ(handler_.received, 0U);
  EXPECT_TRUE(is_untouched());
}

TEST_F(DeviceBuffersFixture, RefusesAFrameAfterARecall) {
  const Bytes payload = pattern(100, 0);
  endpoint_->recall();
  ASSERT_TRUE(poll_until([&] { return recall_received_; }));
  send_from_peer({}, {.recalled = true});
  ASSERT_TRUE(poll_until([&] { return !endpoint_->has_advertised_buffers(); }));
  send_from_peer(header_of(payload, 0), {.placed = true});
  expect_closed(Errc::kUnsupported);
  EXPECT_TRUE(is_untouched());
}

TEST_F(DeviceBuffersFixture, RefusesToCopyFromADeviceBuffer) {
  handler_.receive_elsewhere = true;
  const Bytes payload = pattern(100, 0);
  write_from_peer(payload, advertisements_[0], header_of(payload, 0));
  expect_closed(Errc::kUnsupported);
  EXPECT_EQ(handler_.received, 0U);
}

// The endpoint sends a payload that the CPU cannot read: a read would crash the process.
class DevicePayloadFixture : public AdvertisedBuffersFixture {
 protected:
  void SetUp() override {
    AdvertisedBuffersFixture::SetUp();
    ASSERT_TRUE(memory_->add_device(other_memory(), {}).has_value());
    std::ranges::copy(payload_, other_memory().begin());
    const auto header = header_for(payload_, 7);
    ASSERT_EQ(::mprotect(other_memory().data(), kBufferBytes, PROT_NONE), 0);
    ASSERT_TRUE(endpoint_->put(header, {}, other_memory().first(payload_.size()), 1).ok());
  }
  void advertise_from_peer(uint64_t sequence, uint32_t capacity) {
    rdma::AdvertisedBuffer buffer = advertisements_[3];
    buffer.frame.sequence = sequence;
    buffer.capacity = capacity;
    Bytes bytes(rdma::kAdvertisedBufferBytes);
    rdma::encode(buffer, std::span(bytes).first<rdma::kAdvertisedBufferBytes>());
    send_from_peer(bytes, {.buffers_in_front = 1});
  }
  const Bytes payload_ = pattern(100, 7);
};

TEST_F(DevicePayloadFixture, WaitsForABufferWhileRecallsGoOn) {
  endpoint_->recall();
  ASSERT_TRUE(poll_until([&] { return recall_received_; }));
  EXPECT_EQ(stream_bytes_, 0U);
  advertise_from_peer(6, kBufferBytes);  // for another frame
  send_from_peer({}, {.recalled = true});
  ASSERT_TRUE(poll_until([&] { return !endpoint_->has_advertised_buffers(); }));
  EXPECT_EQ(stream_bytes_, 0U);
  advertise_from_peer(7, 100);
  ASSERT_TRUE(poll_until([&] { return placed_ == 1; }));
  EXPECT_EQ(stream_bytes_, wire::kHeaderBytes);
  EXPECT_TRUE(std::ranges::equal(advertised().subspan(3 * kBufferBytes, 100), payload_));
  EXPECT_EQ(endpoint_->counters().bytes_copied_out, 0U);
}

TEST_F(DevicePayloadFixture, SleepsWhileItWaitsForABuffer) {
  constexpr Nanos kShortWait = 20 * kMillisecond;
  const auto wait_and_measure = [&](Nanos timeout) {
    const Nanos before = monotonic_now();
    context_->wait(timeout);
    return monotonic_now() - before;
  };
  ASSERT_TRUE(poll_until([&] { return wait_and_measure(kShortWait) >= kShortWait; })) << "wait() never slept";
  advertise_from_peer(7, kBufferBytes);
  EXPECT_LT(wait_and_measure(kTestTimeout), kTestTimeout / 2);
  ASSERT_TRUE(poll_until([&] { return placed_ == 1; }));
}

TEST_F(DevicePayloadFixture, ClosesAfterTheFrameDeadlineWithoutABuffer) {
  const Nanos now = monotonic_now();
  for (int i = 0; i < 3; ++i) context_->poll(now, kBudget);
  EXPECT_FALSE(handler_.closed);
  context_->poll(now + EndpointOptions().frame_deadline + 1, kBudget);
  ASSERT_TRUE(handler_.closed);
  EXPECT_EQ(*handler_.closed, Errc::kUnsupported);
}

TEST_F(DevicePayloadFixture, DoesNotUseABufferThatIsTooSmall) {
  advertise_from_peer(7, 99);
  const Bytes later_frame = pattern(10, 0);
  send_from_peer(encode(header_for(later_frame, 0), {}, later_frame), {});
  ASSERT_TRUE(poll_until([&] { return handler_.received == 1; }));
  const Nanos now = monotonic_now();
  for (int i = 0; i < 3; ++i) context_->poll(now, kBudget);
  context_->poll(now + EndpointOptions().frame_deadline + 1, kBudget);
  ASSERT_TRUE(handler_.closed);
  EXPECT_EQ(*handler_.closed, Errc::kUnsupported);
  EXPECT_EQ(placed_, 0U);
}

// The device refuses the write and does not change the memory.
TEST_F(AdvertisedBuffersFixture, ThePeerCannotWriteOutsideTheRegion) {
  std::ranges::fill(other_memory(), std::byte{0x42});
  const Bytes payload = pattern(100, 0);
  rdma::AdvertisedBuffer outside = advertisements_[3];
  outside.address += kBufferBytes;  // just after the region
  std::ranges::copy(header_of(payload, 3), peer_->next_segment().begin());
  const auto* const region = peer_->find_region(advertised().data(), 100);
  ASSERT_NE(region, nullptr);
  ASSERT_TRUE(
      peer_->send_placed(advertised().first(100), region->local_key, outside, wire::kHeaderBytes, {}).ok());
  ASSERT_TRUE(poll_until([&] { return !peer_->error().ok(); }));
  peer_socket_ = tcp::Socket();
  expect_closed(Errc::kReset);
  EXPECT_TRUE(std::ranges::all_of(other_memory(), [](std::byte b) { return b == std::byte{0x42}; }));
}

}  // namespace
}  // namespace sluice::transport::test
