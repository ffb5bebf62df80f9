// Buffers that a receiver advertises (Handler::advertise). Transports without remote writes carry the same
// frames.
#include <algorithm>
#include <cstring>

#include "core/arena.h"
#include "core/clock.h"
#include "tests/conformance/transport/transport_fixture.h"

namespace sluice::transport::test {
namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kSlotBytes = 64 * kKiB;

// Receives frame s in slot s mod kSlots, answers each frame, and advertises `slots` slots. A slot is
// advertised together with the answer that frees it, so a sender that waits for answers always has the
// advertisement in time.
class AdvertisingHandler final : public Handler {
 public:
  ReceiveTarget on_header(Endpoint& /*ep*/, const wire::FrameHeader& header,
                          std::span<const std::byte> /*extensions*/) noexcept override {
    if (!wire::is_data(header.type)) return {};
    EXPECT_LE(header.length, kSlotBytes);
    return {Errc::kOk, uses_other_buffer ? other_buffer.data() : slot(header.sequence)};
  }
  void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> /*extensions*/,
                std::span<std::byte> payload) noexcept override {
    if (!wire::is_data(header.type)) return;
    EXPECT_EQ(header.sequence, received);
    const Bytes expected = pattern(payload.size(), header.sequence);
    EXPECT_TRUE(std::ranges::equal(payload, expected)) << "frame " << header.sequence;
    ++received;
    if (sends_answers) {
      EXPECT_TRUE(ep.put(header_for({}, 0), {}, {}, 0).ok());
    }
  }
  RemoteBuffer advertise(Endpoint& /*ep*/) noexcept override {
    next = std::max(next, received);
    if (next >= received + slots) return {};
    const uint64_t sequence = next++;
    return {.payload = slot(sequence), .capacity = capacity, .view_version = 0, .sequence = sequence};
  }
  void on_sent(Endpoint& /*ep*/, Cookie /*cookie*/, Status /*status*/) noexcept override {}
  void on_closed(Endpoint& ep, Errc reason) noexcept override {
    last_counters = ep.counters();
    closed = reason;
    endpoint = nullptr;
    std::ranges::fill(std::span(arena.data(), arena.size()), std::byte{0xEE});
  }
  [[nodiscard]] std::byte* slot(uint64_t sequence) const {
    return arena.data() + sequence % kSlots * kSlotBytes;
  }

  Arena arena = *Arena::map(size_t{kSlots} * kSlotBytes);
  Bytes other_buffer = Bytes(kSlotBytes);
  Endpoint* endpoint = nullptr;
  bool sends_answers = true;
  bool uses_other_buffer = false;
  uint32_t slots = 0;  // number of advertised slots
  uint32_t capacity = kSlotBytes;
  uint64_t next = 0;
  uint64_t received = 0;
  std::optional<Errc> closed;
  EndpointCounters last_counters;
};

class TransportRemoteBuffers : public TransportFixture {
 protected:
  void SetUp() override {
    TransportFixture::SetUp();
    if (IsSkipped()) return;
    if (test_bed_.register_memory) {
      registrations_.push_back(test_bed_.register_memory({receiver.arena.data(), receiver.arena.size()}));
      registrations_.push_back(test_bed_.register_memory({source.data(), source.size()}));
    }
    EndpointOptions options;
    options.send_queue = kSlots + 1;
    std::tie(sender.endpoint, receiver.endpoint) = test_bed_.connect(sender, receiver, options);
  }
  void TearDown() override {
    TransportFixture::TearDown();
    test_bed_.a.reset();
    test_bed_.b.reset();
    registrations_.clear();
  }
  // Advertises `slots` slots and waits until the sender knows them.
  void advertise_slots(uint32_t slots) {
    receiver.slots = slots;
    const size_t before = sender.received.size();
    ASSERT_TRUE(poll_until([&] {
      return receiver.next >= receiver.received + slots || GetParam().find("rdma") == std::string::npos;
    }));
    const auto header = header_for({}, 0);
    ASSERT_TRUE(receiver.endpoint->put(header, {}, {}, 0).ok());
    ++extra_frames_;
    ASSERT_TRUE(poll_until([&] { return sender.received.size() > before; }));
  }
  Status put(size_t size) {
    std::byte* const place = source.data() + sent_ % kSlots * kSlotBytes;
    const Bytes payload = pattern(size, sent_);
    std::ranges::copy(payload, place);
    const Status s = sender.put(header_for(payload, sent_), {}, {place, size});
    if (s.ok()) ++sent_;
    return s;
  }
  // Sends one frame per size, each as soon as its slot is free.
  void exchange(const std::vector<size_t>& sizes) {
    size_t next = 0;
    ASSERT_TRUE(poll_until([&] {
      while (next < sizes.size() && sent_ < answered() + kSlots && put(sizes[next]).ok()) ++next;
      return next == sizes.size() && answered() == sent_ && sender.all_completed();
    })) << answered()
        << " answered";
  }
  [[nodiscard]] uint64_t answered() const { return sender.received.size() - extra_frames_; }
  [[nodiscard]] bool writes_remotely() const { return GetParam() == "rdma" || GetParam() == "fault(rdma)"; }
  [[nodiscard]] uint64_t copied() const {
    return receiver.endpoint->counters().bytes_copied + sender.endpoint->counters().bytes_copied_out;
  }

  Arena source = *Arena::map(size_t{kSlots} * kSlotBytes);
  RecordingHandler sender;
  AdvertisingHandler receiver;
  std::vector<std::shared_ptr<void>> registrations_;
  uint64_t sent_ = 0;
  uint64_t extra_frames_ = 0;  // received frames that are not answers
};

TEST_P(TransportRemoteBuffers, ReceiveFramesWithoutACopy) {
  advertise_slots(kSlots);
  exchange(std::vector<size_t>(100, kSlotBytes));
  if (writes_remotely()) {
    EXPECT_EQ(copied(), 0U);
    EXPECT_EQ(receiver.endpoint->counters().payload_bytes_in, 100 * kSlotBytes);
  }
}

TEST_P(TransportRemoteBuffers, ReceiveFramesOfAnySize) {
  advertise_slots(kSlots);
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 20; ++i) {
    for (const size_t size : {size_t{1}, size_t{2047}, size_t{2048}, 5000 + i, size_t{kSlotBytes}})
      sizes.push_back(size);
  }
  exchange(sizes);
}

TEST_P(TransportRemoteBuffers, AreOptional) {
  exchange(std::vector<size_t>(20, 30'000));
  advertise_slots(3);
  exchange(std::vector<size_t>(20, 30'000));
}

TEST_P(TransportRemoteBuffers, ThatAreTooSmallAreNotWritten) {
  receiver.capacity = 10'000;
  advertise_slots(kSlots);
  std::fill_n(receiver.slot(0), kSlotBytes, std::byte{0x77});
  exchange({20'000, 10'000, 20'000, 9'999});
  EXPECT_TRUE(std::all_of(receiver.slot(0) + 20'000, receiver.slot(1),
                          [](std::byte b) { return b == std::byte{0x77}; }));
}

TEST_P(TransportRemoteBuffers, WithADifferentReceiveTargetCostACopy) {
  receiver.uses_other_buffer = true;
  advertise_slots(kSlots);
  exchange(std::vector<size_t>(20, 30'000));
}

// Memory that is not registered with the device is copied, at one end or both.
TEST_P(TransportRemoteBuffers, InUnregisteredMemoryAreNotUsed) {
  if (!registrations_.empty()) registrations_.pop_back();
  advertise_slots(kSlots);
  exchange(std::vector<size_t>(20, 30'000));
  if (!registrations_.empty()) registrations_.pop_back();
  exchange(std::vector<size_t>(20, 30'000));
}

TEST_P(TransportRemoteBuffers, AreReturnedAfterARecall) {
  for (int round = 0; round < 3; ++round) {
    advertise_slots(kSlots);
    exchange(std::vector<size_t>(5, 30'000));
    // Recalls while frames are in flight.
    while (sent_ < receiver.received + kSlots && put(50'000).ok()) {
    }
    receiver.slots = 0;
    receiver.endpoint->recall();
    receiver.endpoint->recall();
    ASSERT_TRUE(poll_until([&] { return !receiver.endpoint->has_advertised_buffers(); }));
    ASSERT_TRUE(poll_until([&] { return receiver.received == sent_; }));
    std::ranges::fill(std::span(receiver.arena.data(), receiver.arena.size()), std::byte{0x33});
    exchange({100});
  }
}

TEST_P(TransportRemoteBuffers, AreNotWrittenAfterTheClose) {
  for (const Errc reason : {Errc::kClosed, Errc::kReset}) {
    SCOPED_TRACE(to_string(reason));
    advertise_slots(kSlots);
    exchange({30'000});
    while (sent_ < receiver.received + kSlots && put(kSlotBytes).ok()) {
    }
    (void)test_bed_.a->poll(monotonic_now(), kBudget);  // the frames are in flight
    receiver.endpoint->close(reason);
    ASSERT_TRUE(poll_until([&] { return receiver.closed && sender.closed; }));
    EXPECT_TRUE(std::ranges::all_of(std::span(receiver.arena.data(), receiver.arena.size()),
                                    [](std::byte b) { return b == std::byte{0xEE}; }));
    sender = RecordingHandler();
    receiver.closed.reset();
    receiver.next = receiver.received = sent_ = extra_frames_ = 0;
    std::tie(sender.endpoint, receiver.endpoint) = test_bed_.connect(sender, receiver, {});
  }
}

// After a sender has closed, the transport no longer reads its payload.
TEST_P(TransportRemoteBuffers, AreNotReadAfterTheSenderCloses) {
  advertise_slots(kSlots);
  while (sent_ < kSlots && put(kSlotBytes).ok()) {
  }
  (void)test_bed_.a->poll(monotonic_now(), kBudget);
  sender.close(Errc::kClosed);
  ASSERT_TRUE(poll_until([&] { return sender.closed.has_value(); }));
  EXPECT_TRUE(sender.all_completed());
  std::ranges::fill(std::span(source.data(), source.size()), std::byte{0x11});
  ASSERT_TRUE(poll_until([&] { return receiver.closed.has_value(); }));  // each complete frame was correct
}

SLUICE_OVER_ALL_TRANSPORTS(TransportRemoteBuffers);

}  // namespace
}  // namespace sluice::transport::test
