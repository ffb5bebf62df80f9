// Places that a receiver lends (Handler::lend). Transports that make nothing of them carry the same frames.
#include <algorithm>
#include <cstring>

#include "core/arena.h"
#include "core/clock.h"
#include "tests/conformance/transport/fixture.h"

namespace sluice::transport::test {
namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kSlotBytes = 64 * kKiB;

// Receives frame s in slot s mod kSlots, and answers each; lends as many slots as `slots` says. A loan goes
// with the answer that makes its slot free, so whoever waits for answers has it in time.
class Lender final : public Handler {
 public:
  Placement on_header(Endpoint& /*ep*/, const wire::FrameHeader& header,
                      std::span<const std::byte> /*extensions*/) noexcept override {
    if (!wire::is_data(header.type)) return {};
    EXPECT_LE(header.length, kSlotBytes);
    return {Errc::kOk, elsewhere ? aside.data() : slot(header.sequence)};
  }
  void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> /*extensions*/,
                std::span<std::byte> payload) noexcept override {
    if (!wire::is_data(header.type)) return;
    EXPECT_EQ(header.sequence, received);
    const Bytes expected = pattern(payload.size(), header.sequence);
    EXPECT_TRUE(std::ranges::equal(payload, expected)) << "frame " << header.sequence;
    ++received;
    if (answers) {
      EXPECT_TRUE(ep.put(header_for({}, 0), {}, {}, 0).ok());
    }
  }
  Loan lend(Endpoint& /*ep*/) noexcept override {
    next = std::max(next, received);
    if (next >= received + slots) return {};
    const uint64_t sequence = next++;
    return {.place = slot(sequence), .capacity = capacity, .view_version = 0, .sequence = sequence};
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
  Bytes aside = Bytes(kSlotBytes);
  Endpoint* endpoint = nullptr;
  bool answers = true;
  bool elsewhere = false;
  uint32_t slots = 0;  // that it lends
  uint32_t capacity = kSlotBytes;
  uint64_t next = 0;
  uint64_t received = 0;
  std::optional<Errc> closed;
  EndpointCounters last_counters;
};

class TransportLoans : public TransportTest {
 protected:
  void SetUp() override {
    TransportTest::SetUp();
    if (IsSkipped()) return;
    if (bed_.know) {
      known_.push_back(bed_.know({lender.arena.data(), lender.arena.size()}));
      known_.push_back(bed_.know({source.data(), source.size()}));
    }
    EndpointOptions options;
    options.send_queue = kSlots + 1;
    std::tie(sender.endpoint, lender.endpoint) = bed_.connect(sender, lender, options);
  }
  void TearDown() override {
    TransportTest::TearDown();
    bed_.a.reset();
    bed_.b.reset();
    known_.clear();
  }
  // Everything that lend() gives by now is known to the sender's side.
  void tell_loans(uint32_t slots) {
    lender.slots = slots;
    const size_t before = sender.received.size();
    ASSERT_TRUE(drive_until([&] {
      return lender.next >= lender.received + slots || GetParam().find("rdma") == std::string::npos;
    }));
    const auto header = header_for({}, 0);
    ASSERT_TRUE(lender.endpoint->put(header, {}, {}, 0).ok());
    ++told_;
    ASSERT_TRUE(drive_until([&] { return sender.received.size() > before; }));
  }
  Status put(size_t size) {
    std::byte* const place = source.data() + sent_ % kSlots * kSlotBytes;
    const Bytes payload = pattern(size, sent_);
    std::ranges::copy(payload, place);
    const Status s = sender.put(header_for(payload, sent_), {}, {place, size});
    if (s.ok()) ++sent_;
    return s;
  }
  // As the slots are free, for all that the sender was told.
  void exchange(const std::vector<size_t>& sizes) {
    size_t next = 0;
    ASSERT_TRUE(drive_until([&] {
      while (next < sizes.size() && sent_ < answered() + kSlots && put(sizes[next]).ok()) ++next;
      return next == sizes.size() && answered() == sent_ && sender.all_given_back();
    })) << answered()
        << " answered";
  }
  [[nodiscard]] uint64_t answered() const { return sender.received.size() - told_; }
  [[nodiscard]] bool writes_by_itself() const { return GetParam() == "rdma" || GetParam() == "fault(rdma)"; }
  [[nodiscard]] uint64_t copied() const {
    return lender.endpoint->counters().bytes_copied + sender.endpoint->counters().bytes_copied_out;
  }

  Arena source = *Arena::map(size_t{kSlots} * kSlotBytes);
  Recorder sender;
  Lender lender;
  std::vector<std::shared_ptr<void>> known_;
  uint64_t sent_ = 0;
  uint64_t told_ = 0;  // frames that are no answers
};

TEST_P(TransportLoans, TakeTheirFramesWithoutACopy) {
  tell_loans(kSlots);
  exchange(std::vector<size_t>(100, kSlotBytes));
  if (writes_by_itself()) {
    EXPECT_EQ(copied(), 0U);
    EXPECT_EQ(lender.endpoint->counters().payload_bytes_in, 100 * kSlotBytes);
  }
}

TEST_P(TransportLoans, TakeFramesOfAnySize) {
  tell_loans(kSlots);
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 20; ++i) {
    for (const size_t size : {size_t{1}, size_t{2047}, size_t{2048}, 5000 + i, size_t{kSlotBytes}})
      sizes.push_back(size);
  }
  exchange(sizes);
}

TEST_P(TransportLoans, AreNotNeeded) {
  exchange(std::vector<size_t>(20, 30'000));
  tell_loans(3);
  exchange(std::vector<size_t>(20, 30'000));
}

TEST_P(TransportLoans, OfTooLittleRoomAreLeftAlone) {
  lender.capacity = 10'000;
  tell_loans(kSlots);
  std::fill_n(lender.slot(0), kSlotBytes, std::byte{0x77});
  exchange({20'000, 10'000, 20'000, 9'999});
  EXPECT_TRUE(
      std::all_of(lender.slot(0) + 20'000, lender.slot(1), [](std::byte b) { return b == std::byte{0x77}; }));
}

TEST_P(TransportLoans, ThatTurnOutToBeWrongCostACopy) {
  lender.elsewhere = true;
  tell_loans(kSlots);
  exchange(std::vector<size_t>(20, 30'000));
}

// What is not known to devices is copied, at one end or both.
TEST_P(TransportLoans, AreNotForMemoryThatDevicesDoNotKnow) {
  if (!known_.empty()) known_.pop_back();
  tell_loans(kSlots);
  exchange(std::vector<size_t>(20, 30'000));
  if (!known_.empty()) known_.pop_back();
  exchange(std::vector<size_t>(20, 30'000));
}

TEST_P(TransportLoans, ComeBackWhenTheyAreRecalled) {
  for (int round = 0; round < 3; ++round) {
    tell_loans(kSlots);
    exchange(std::vector<size_t>(5, 30'000));
    // In the midst of frames.
    while (sent_ < lender.received + kSlots && put(50'000).ok()) {
    }
    lender.slots = 0;
    lender.endpoint->recall();
    lender.endpoint->recall();
    ASSERT_TRUE(drive_until([&] { return !lender.endpoint->lent(); }));
    ASSERT_TRUE(drive_until([&] { return lender.received == sent_; }));
    std::ranges::fill(std::span(lender.arena.data(), lender.arena.size()), std::byte{0x33});
    exchange({100});
  }
}

TEST_P(TransportLoans, AreNotWrittenToAfterTheEnd) {
  for (const Errc reason : {Errc::kClosed, Errc::kReset}) {
    SCOPED_TRACE(to_string(reason));
    tell_loans(kSlots);
    exchange({30'000});
    while (sent_ < lender.received + kSlots && put(kSlotBytes).ok()) {
    }
    (void)bed_.a->poll(monotonic_now(), kBudget);  // they are on their way
    lender.endpoint->close(reason);
    ASSERT_TRUE(drive_until([&] { return lender.closed && sender.closed; }));
    EXPECT_TRUE(std::ranges::all_of(std::span(lender.arena.data(), lender.arena.size()),
                                    [](std::byte b) { return b == std::byte{0xEE}; }));
    sender = Recorder();
    lender.closed.reset();
    lender.next = lender.received = sent_ = told_ = 0;
    std::tie(sender.endpoint, lender.endpoint) = bed_.connect(sender, lender, {});
  }
}

// A sender that closes gets its payload back at once, and nothing of it is read any more.
TEST_P(TransportLoans, LetTheSenderGo) {
  tell_loans(kSlots);
  while (sent_ < kSlots && put(kSlotBytes).ok()) {
  }
  (void)bed_.a->poll(monotonic_now(), kBudget);
  sender.close(Errc::kClosed);
  ASSERT_TRUE(drive_until([&] { return sender.closed.has_value(); }));
  EXPECT_TRUE(sender.all_given_back());
  std::ranges::fill(std::span(source.data(), source.size()), std::byte{0x11});
  ASSERT_TRUE(drive_until([&] { return lender.closed.has_value(); }));  // what came whole was right
}

SLUICE_OVER_ALL_TRANSPORTS(TransportLoans);

}  // namespace
}  // namespace sluice::transport::test
