// A LaneRig whose session survives losses (PROTOCOL.md section 11), all ranks committed, and what its tests
// ask of it.
#pragma once

#include <optional>
#include <vector>

#include "tests/support/lane_rig.h"

namespace sluice::test {

struct SurvivingRig : LaneRig {
  static constexpr uint32_t kSlots = 4;

  explicit SurvivingRig(uint32_t rank_count, uint32_t slots = kSlots)
      : LaneRig(rank_count, slots, 4096, true) {
    commit_all();
  }
  // Contributes the value `sequence` + 1 from every rank of [first, end), and settles.
  void contribute_all(uint64_t sequence, uint32_t first, uint32_t end) {
    for (uint32_t r = first; r < end; ++r) (void)contribute(r, sequence, {static_cast<float>(sequence + 1)});
    settle();
  }
  void contribute_all(uint64_t sequence) { contribute_all(sequence, 0, plan.ranks); }
  void break_connection(uint32_t rank) {
    ranks[rank]->endpoint->close(Errc::kReset);
    settle();
  }
  // VIEW_COMMIT of `view` from every rank of [first, end), and settles.
  void view_commit(uint32_t first, uint32_t end) {
    for (uint32_t r = first; r < end; ++r) (void)send(r, view);
    settle();
  }
  // What RESUME_ACK, the first frame of the present connection, says.
  [[nodiscard]] std::optional<uint64_t> contributions_held(uint32_t rank) const {
    if (ranks[rank]->arrived.empty()) return std::nullopt;
    const auto& first = ranks[rank]->arrived.front();
    wire::ResumeAck ack;
    if (first.header.type != wire::FrameType::kResumeAck ||
        !wire::decode_body(std::span<const std::byte>(first.payload), ack).ok())
      return std::nullopt;
    return ack.contributions_held;
  }
  // Of the results that arrived on the present connection.
  [[nodiscard]] std::vector<uint64_t> sequences(uint32_t rank) const {
    std::vector<uint64_t> out;
    for (const auto& r : results(rank)) out.push_back(r.header.sequence);
    return out;
  }
  // Takes the lane's events: the reasons of those that say a connection is gone.
  [[nodiscard]] std::vector<Errc> closed() {
    std::vector<Errc> out;
    for (const reducer::LaneEvent& e : events()) {
      if (e.kind == reducer::LaneEvent::Kind::kClosed) out.push_back(e.code);
    }
    return out;
  }
};

}  // namespace sluice::test
