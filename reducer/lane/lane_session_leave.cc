// Ranks that leave a session, as a lane sees it: chunks that they do not contribute to fail or complete.
#include <algorithm>
#include <cinttypes>

#include "reducer/lane/lane_session.h"

namespace sluice::reducer {

void LaneSession::rank_left(Rank rank) noexcept {
  RankConnection& conn = connection(rank);
  if (conn.part_ == RankConnection::Part::kNothing) return;
  conn.part_ = RankConnection::Part::kNothing;
  some_rank_has_left_ = true;
  if (conn.view_.version == view_.version) {
    leaver_limit_ = std::min(leaver_limit_, conn.next_contribution_);
    for (const auto& other : connections_) {
      if (has_contributed(*other, conn.next_contribution_)) {
        fail(Errc::kRankLeft, rank, "rank %u left the session before it contributed as much as other ranks",
             rank);
        return;
      }
    }
  }
  complete_without_leavers();
}

// After a view change, a rank that left may be disconnected and cannot repeat its contributions. The chunk
// still completes if another rank holds its result (docs/design/adr/0008).
void LaneSession::complete_without_leavers() noexcept {
  for (uint64_t s = next_result_; s < next_result_ + plan_.slots; ++s) {
    if (!complete_without_leavers(static_cast<uint32_t>(s % plan_.slots))) return;
  }
}

// False: this chunk has to wait, and so has every later one.
bool LaneSession::complete_without_leavers(uint32_t slot) noexcept {
  ChunkSlot& c = chunks_[slot];
  if (!plan_.fault_tolerant || !some_rank_has_left_ || c.state == ChunkState::kFree || ended()) return false;
  if (c.state == ChunkState::kFolding) return true;
  const RankConnection* leaver = nullptr;
  for (const auto& conn : connections_) {
    if (has_contributed(*conn, c.reference.sequence)) continue;
    if (!conn->has_left_session() || conn->endpoint_ != nullptr) return false;
    leaver = conn.get();
  }
  if (!c.kept) {
    fail(Errc::kRankLeft, leaver->rank_,
         "rank %" PRIu32 " left the session; no other rank has the result of operation %" PRIu32,
         leaver->rank_, c.reference.op_id);
    return false;
  }
  c.state = ChunkState::kFolding;
  for (uint32_t group = 0; group < groups_; ++group) {
    if (c.group_arrived[group] < ranks_of_group(group)) push_task(slot, group);
  }
  return true;
}

}  // namespace sluice::reducer
