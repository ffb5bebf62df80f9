// What a peer may say of lent places, and do with them: the peer is a queue pair in the test's hands.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "core/arena.h"
#include "core/clock.h"
#include "tests/conformance/transport/fixture.h"
#include "tests/conformance/transport/frames.h"
#include "tests/conformance/transport/rdma_bed.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::test {
namespace {

constexpr uint32_t kPlace = 16 * kKiB;
constexpr uint64_t kPlaces = 4;

class Prey final : public Handler {
 public:
  explicit Prey(std::byte* memory) : places(memory) {}
  Placement on_header(Endpoint& /*ep*/, const wire::FrameHeader& header,
                      std::span<const std::byte> /*extensions*/) noexcept override {
    const bool there = header.sequence < kPlaces && !elsewhere;
    return {Errc::kOk, there ? places + header.sequence * kPlace : aside.data()};
  }
  void on_frame(Endpoint& /*ep*/, const wire::FrameHeader& /*header*/,
                std::span<const std::byte> /*extensions*/, std::span<std::byte> payload) noexcept override {
    last.assign(payload.begin(), payload.end());
    ++received;
  }
  Loan lend(Endpoint& /*ep*/) noexcept override {
    if (next == kPlaces) return {};
    const uint64_t sequence = next++;
    return {places + sequence * kPlace, kPlace, 0, sequence};
  }
  void on_sent(Endpoint& /*ep*/, Cookie /*cookie*/, Status /*status*/) noexcept override {}
  void on_closed(Endpoint& /*ep*/, Errc reason) noexcept override { closed = reason; }

  std::byte* const places;
  Bytes aside = Bytes(kPlace), last;
  bool elsewhere = false;  // names other places than it has lent
  uint64_t next = 0;
  size_t received = 0;
  std::optional<Errc> closed;
};

class LoanWords : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(add_lent().has_value());
    const auto [one, other] = rdma_addresses();
    auto [near, far] = joined(one, other, {.memory = memory_}, {.memory = memory_});
    context_ = rdma::make_context().value();
    endpoint_ = context_->adopt(std::move(near), prey_, {}).value();
    peer_.reset(static_cast<rdma::QueuePair*>(far.take_companion().release()));
    lifeline_ = std::move(far);
    ASSERT_TRUE(drive_until([&] { return loans_.size() == kPlaces; }));
  }
  [[nodiscard]] virtual Result<void> add_lent() const {
    return memory_->add(lent(), rdma::Memory::Use::kSendAndLend);
  }
  [[nodiscard]] std::span<std::byte> lent() const { return {arena_.data(), kPlaces * kPlace}; }
  [[nodiscard]] std::span<std::byte> other_memory() const {
    return {arena_.data() + kPlaces * kPlace, kPlace};
  }
  bool drive_until(const std::function<bool()>& done) {
    const Nanos deadline = monotonic_now() + kPatience;
    while (!done()) {
      if (monotonic_now() > deadline) return false;
      context_->poll(monotonic_now(), kBudget);
      if (!peer_->collect().ok()) continue;
      while (peer_->has_arrived() && !peer_->at_end()) {
        const auto [bytes, note] = peer_->front();
        for (size_t i = 0; i < note.loans; ++i)
          loans_.push_back(rdma::decode_loan(bytes.subspan(i * rdma::kLoanBytes).first<rdma::kLoanBytes>()));
        recalled_ |= note.recall;
        placed_ += note.placed ? 1 : 0;
        stream_bytes_ += bytes.size() - note.loans * rdma::kLoanBytes;
        peer_->take();
      }
    }
    return true;
  }
  // The head of frame `sequence`, with the payload that `payload` has.
  static Bytes head_of(std::span<const std::byte> payload, uint64_t sequence) {
    Bytes frame = encode(header_for(payload, sequence), {}, payload);
    frame.resize(wire::kHeaderBytes);
    return frame;
  }
  void say(const Bytes& bytes, const rdma::SegmentNote& note) {
    std::ranges::copy(bytes, peer_->room().begin());
    ASSERT_TRUE(peer_->send(bytes.size(), note).ok());
  }
  // From memory that the peer may send from.
  void place(std::span<const std::byte> payload, const rdma::LentPlace& to, const Bytes& head) {
    std::ranges::copy(payload, other_memory().begin());
    ASSERT_TRUE(memory_->add(other_memory(), rdma::Memory::Use::kSend).has_value());
    const auto* const region = peer_->region_of(other_memory().data(), payload.size());
    ASSERT_NE(region, nullptr);
    std::ranges::copy(head, peer_->room().begin());
    ASSERT_TRUE(
        peer_->send_placed(other_memory().first(payload.size()), region->local_key, to, head.size(), {})
            .ok());
  }
  void ends_with(Errc reason) {
    ASSERT_TRUE(drive_until([&] { return prey_.closed.has_value(); }));
    EXPECT_EQ(*prey_.closed, reason) << to_string(*prey_.closed);
  }

  const Arena arena_ = *Arena::map((kPlaces + 1) * kPlace);
  const std::shared_ptr<rdma::Memory> memory_ = rdma::Memory::make();
  Prey prey_{arena_.data()};
  std::unique_ptr<tcp::TcpContext> context_;
  Endpoint* endpoint_ = nullptr;
  std::unique_ptr<rdma::QueuePair> peer_;
  tcp::Socket lifeline_;
  std::vector<rdma::LentPlace> loans_;
  bool recalled_ = false;
  size_t placed_ = 0;  // frames whose payload came beside the segments
  size_t stream_bytes_ = 0;
};

TEST_F(LoanWords, APlaceIsUsedAsItWasLent) {
  const Bytes payload = pattern(10'000, 2);
  place(payload, loans_[2], head_of(payload, 2));
  ASSERT_TRUE(drive_until([&] { return prey_.received == 1; }));
  EXPECT_EQ(prey_.last, payload);
  EXPECT_EQ(endpoint_->counters().bytes_copied, 0U);
}

TEST_F(LoanWords, AFrameIsPlacedWhereNothingIsLentForIt) {
  const Bytes payload = pattern(100, 9);
  say(head_of(payload, 9), {.placed = true});
  ends_with(Errc::kSlotNotGranted);
}

TEST_F(LoanWords, APlaceIsUsedTwice) {
  const Bytes payload = pattern(100, 1);
  place(payload, loans_[1], head_of(payload, 1));
  ASSERT_TRUE(drive_until([&] { return prey_.received == 1; }));
  say(head_of(payload, 1), {.placed = true});
  ends_with(Errc::kSlotNotGranted);
}

TEST_F(LoanWords, AFrameIsLongerThanItsPlace) {
  say(head_of(pattern(kPlace + 1, 0), 0), {.placed = true});
  ends_with(Errc::kSlotNotGranted);
}

TEST_F(LoanWords, APlacedFrameHasSomethingBehindItsHead) {
  Bytes head = head_of(pattern(100, 0), 0);
  head.resize(head.size() + 8);
  say(head, {.placed = true});
  ends_with(Errc::kBadLength);
}

TEST_F(LoanWords, WhatWasPlacedIsNotWhatItsHeaderSays) {
  place(pattern(100, 1), loans_[0], head_of(pattern(100, 2), 0));
  ends_with(Errc::kBadPayloadCrc);
}

TEST_F(LoanWords, ThereAreFewerLoansThanTheSegmentTells) {
  say(Bytes(2 * rdma::kLoanBytes - 1), {.loans = 2});
  ends_with(Errc::kBadLength);
}

TEST_F(LoanWords, LoansAreOutOfOrder) {
  say(Bytes(2 * rdma::kLoanBytes), {.loans = 2});  // both for frame 0
  ends_with(Errc::kBadField);
}

TEST_F(LoanWords, ThereAreMoreLoansThanAllowed) {
  for (uint64_t sequence = 0; sequence <= rdma::kMostLoans; ++sequence) {
    Bytes bytes(rdma::kLoanBytes);
    rdma::encode({.frame = {.view_version = 0, .sequence = sequence}, .address = 0, .key = 0, .capacity = 1},
                 std::span(bytes).first<rdma::kLoanBytes>());
    ASSERT_TRUE(drive_until([&] { return !peer_->room().empty() || prey_.closed; }));
    if (prey_.closed) break;
    say(bytes, {.loans = 1});
  }
  ends_with(Errc::kBadField);
}

TEST_F(LoanWords, NobodyHasRecalledAnything) {
  say({}, {.recalled = true});
  ends_with(Errc::kUnexpectedMessage);
}

TEST_F(LoanWords, ARecallIsWaitedForAndNothingIsTakenForItsAnswer) {
  endpoint_->recall();
  ASSERT_TRUE(drive_until([&] { return recalled_; }));
  EXPECT_TRUE(endpoint_->lent());
  // What was on its way before the answer is right.
  const Bytes payload = pattern(100, 0);
  place(payload, loans_[0], head_of(payload, 0));
  ASSERT_TRUE(drive_until([&] { return prey_.received == 1; }));
  EXPECT_TRUE(endpoint_->lent());
  say({}, {.recalled = true});
  ASSERT_TRUE(drive_until([&] { return !endpoint_->lent(); }));
  say(head_of(payload, 1), {.placed = true});
  ends_with(Errc::kSlotNotGranted);
}

// What is lent is where only devices may write.
class OnlyHere : public LoanWords {
 protected:
  [[nodiscard]] Result<void> add_lent() const override { return memory_->add_device(lent(), {}); }
  [[nodiscard]] bool untouched() const {
    return std::ranges::all_of(lent(), [](std::byte b) { return b == std::byte{0}; });
  }
};

TEST_F(OnlyHere, LoansSaySo) {
  EXPECT_TRUE(std::ranges::all_of(loans_, &rdma::LentPlace::only_here));
}

TEST_F(OnlyHere, WhatLandsIsNotLookedAt) {
  const Bytes payload = pattern(10, 1);
  place(payload, loans_[0], head_of(pattern(10, 2), 0));
  ASSERT_TRUE(drive_until([&] { return prey_.received == 1; }));
  EXPECT_EQ(prey_.last, payload) << "by the test, which may";
}

TEST_F(OnlyHere, NothingIsCopiedThereFromTheStream) {
  const Bytes payload = pattern(100, 0);
  say(encode(header_for(payload, 0), {}, payload), {});
  ends_with(Errc::kUnsupported);
  EXPECT_EQ(prey_.received, 0U);
  EXPECT_TRUE(untouched());
}

TEST_F(OnlyHere, NothingIsCopiedThereFromAnotherPlace) {
  const Bytes payload = pattern(100, 0);
  endpoint_->recall();  // nothing is lent any more
  ASSERT_TRUE(drive_until([&] { return recalled_; }));
  say({}, {.recalled = true});
  ASSERT_TRUE(drive_until([&] { return !endpoint_->lent(); }));
  say(head_of(payload, 0), {.placed = true});
  ends_with(Errc::kUnsupported);
  EXPECT_TRUE(untouched());
}

TEST_F(OnlyHere, NothingIsCopiedFromThere) {
  prey_.elsewhere = true;
  const Bytes payload = pattern(100, 0);
  place(payload, loans_[0], head_of(payload, 0));
  ends_with(Errc::kUnsupported);
  EXPECT_EQ(prey_.received, 0U);
}

// What the endpoint sends is where no processor may read: it would be the end of the process.
class FromDevice : public LoanWords {
 protected:
  void SetUp() override {
    LoanWords::SetUp();
    ASSERT_TRUE(memory_->add_device(other_memory(), {}).has_value());
    std::ranges::copy(payload_, other_memory().begin());
    const auto header = header_for(payload_, 7);
    ASSERT_EQ(::mprotect(other_memory().data(), kPlace, PROT_NONE), 0);
    ASSERT_TRUE(endpoint_->put(header, {}, other_memory().first(payload_.size()), 1).ok());
  }
  void lend_for(uint64_t sequence, uint32_t capacity) {
    rdma::LentPlace place = loans_[3];
    place.frame.sequence = sequence;
    place.capacity = capacity;
    Bytes bytes(rdma::kLoanBytes);
    rdma::encode(place, std::span(bytes).first<rdma::kLoanBytes>());
    say(bytes, {.loans = 1});
  }
  const Bytes payload_ = pattern(100, 7);
};

TEST_F(FromDevice, PayloadWaitsForAPlaceThatWordsDoNotWaitFor) {
  endpoint_->recall();
  ASSERT_TRUE(drive_until([&] { return recalled_; }));
  EXPECT_EQ(stream_bytes_, 0U);
  lend_for(6, kPlace);  // of another frame
  say({}, {.recalled = true});
  ASSERT_TRUE(drive_until([&] { return !endpoint_->lent(); }));
  EXPECT_EQ(stream_bytes_, 0U);
  lend_for(7, 100);
  ASSERT_TRUE(drive_until([&] { return placed_ == 1; }));
  EXPECT_EQ(stream_bytes_, wire::kHeaderBytes);
  EXPECT_TRUE(std::ranges::equal(lent().subspan(3 * kPlace, 100), payload_));
  EXPECT_EQ(endpoint_->counters().bytes_copied_out, 0U);
}

TEST_F(FromDevice, WhoWaitsForAPlaceSleepsUntilItComes) {
  constexpr Nanos kNap = 20 * kMillisecond;
  const auto slept = [&](Nanos most) {
    const Nanos before = monotonic_now();
    context_->wait(most);
    return monotonic_now() - before;
  };
  ASSERT_TRUE(drive_until([&] { return slept(kNap) >= kNap; })) << "something keeps it awake";
  lend_for(7, kPlace);
  EXPECT_LT(slept(kPatience), kPatience / 2);
  ASSERT_TRUE(drive_until([&] { return placed_ == 1; }));
}

TEST_F(FromDevice, WhoIsLentNothingGivesUp) {
  const Nanos now = monotonic_now();
  for (int turn = 0; turn < 3; ++turn) context_->poll(now, kBudget);
  EXPECT_FALSE(prey_.closed);
  context_->poll(now + EndpointOptions().frame_deadline + 1, kBudget);
  ASSERT_TRUE(prey_.closed);
  EXPECT_EQ(*prey_.closed, Errc::kUnsupported);
}

TEST_F(FromDevice, APlaceThatIsTooSmallIsNone) {
  lend_for(7, 99);
  const Bytes behind = pattern(10, 0);
  say(encode(header_for(behind, 0), {}, behind), {});
  ASSERT_TRUE(drive_until([&] { return prey_.received == 1; }));
  const Nanos now = monotonic_now();
  for (int turn = 0; turn < 3; ++turn) context_->poll(now, kBudget);
  context_->poll(now + EndpointOptions().frame_deadline + 1, kBudget);
  ASSERT_TRUE(prey_.closed);
  EXPECT_EQ(*prey_.closed, Errc::kUnsupported);
  EXPECT_EQ(placed_, 0U);
}

// The card stops it; nothing of what lies there is touched.
TEST_F(LoanWords, ThePeerWritesWhereNothingWasEverLent) {
  std::ranges::fill(other_memory(), std::byte{0x42});
  const Bytes payload = pattern(100, 0);
  rdma::LentPlace wrong = loans_[3];
  wrong.address += kPlace;  // just behind the region
  std::ranges::copy(head_of(payload, 3), peer_->room().begin());
  const auto* const region = peer_->region_of(lent().data(), 100);
  ASSERT_NE(region, nullptr);
  ASSERT_TRUE(peer_->send_placed(lent().first(100), region->local_key, wrong, wire::kHeaderBytes, {}).ok());
  ASSERT_TRUE(drive_until([&] { return !peer_->broken().ok(); }));
  lifeline_ = tcp::Socket();
  ends_with(Errc::kReset);
  EXPECT_TRUE(std::ranges::all_of(other_memory(), [](std::byte b) { return b == std::byte{0x42}; }));
}

}  // namespace
}  // namespace sluice::transport::test
