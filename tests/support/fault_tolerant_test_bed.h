// A LaneTestBed with a fault-tolerant session (protocol.md section 11) whose ranks have all committed.
#pragma once

#include <optional>
#include <vector>

#include "tests/support/lane_test_bed.h"

namespace sluice::test {

struct FaultTolerantTestBed : LaneTestBed {
  static constexpr uint32_t kSlots = 4;

  explicit FaultTolerantTestBed(uint32_t rank_count, uint32_t slots = kSlots)
      : LaneTestBed(rank_count, slots, 4096, true) {
    commit_all();
  }
  // Contributes the value `sequence` + 1 from every rank in [first, end), then settles.
  void contribute_all(uint64_t sequence, uint32_t first, uint32_t end) {
    for (uint32_t r = first; r < end; ++r) (void)contribute(r, sequence, {static_cast<float>(sequence + 1)});
    settle();
  }
  void contribute_all(uint64_t sequence) { contribute_all(sequence, 0, plan.ranks); }
  void break_connection(uint32_t rank) {
    ranks[rank]->endpoint->close(Errc::kReset);
    settle();
  }
  // Sends VIEW_COMMIT of `view` from every rank in [first, end), then settles.
  void view_commit(uint32_t first, uint32_t end) {
    for (uint32_t r = first; r < end; ++r) (void)send(r, view);
    settle();
  }
  // The ranks in [first, end) enter the view.
  void enter(const wire::ViewCommit& next, uint32_t first, uint32_t end) {
    view = next;
    view_commit(first, end);
  }
  // The value of RESUME_ACK, which must be the first frame of the current connection.
  [[nodiscard]] std::optional<uint64_t> contributions_held(uint32_t rank) const {
    if (ranks[rank]->arrived.empty()) return std::nullopt;
    const auto& first = ranks[rank]->arrived.front();
    wire::ResumeAck ack;
    if (first.header.type != wire::FrameType::kResumeAck ||
        !wire::decode_body(std::span<const std::byte>(first.payload), ack).ok())
      return std::nullopt;
    return ack.contributions_held;
  }
  // Sequences of the results that arrived on the current connection.
  [[nodiscard]] std::vector<uint64_t> sequences(uint32_t rank) const {
    std::vector<uint64_t> out;
    for (const auto& r : results(rank)) out.push_back(r.header.sequence);
    return out;
  }
  // Takes the lane's events and returns the reasons of closed connections.
  [[nodiscard]] std::vector<Errc> closed() {
    std::vector<Errc> out;
    for (const reducer::LaneEvent& e : events()) {
      if (e.kind == reducer::LaneEvent::Kind::kClosed) out.push_back(e.code);
    }
    return out;
  }
};

}  // namespace sluice::test
