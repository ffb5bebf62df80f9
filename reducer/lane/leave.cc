// Ranks that leave a lane's session: what becomes of chunks that lack them.
#include <algorithm>
#include <cinttypes>

#include "reducer/lane/lane_session.h"

namespace sluice::reducer {

void LaneSession::rank_left(Rank rank) noexcept {
  RankLink& l = link(rank);
  if (l.left_) return;
  l.left_ = l.said_leave_ = leaves_said_ = true;
  if (l.view_.version == view_.version) {
    leaver_limit_ = std::min(leaver_limit_, l.next_contribution_);
    for (const auto& other : links_) {
      if (has_contributed(*other, l.next_contribution_)) {
        fail(Errc::kRankLeft, rank, "rank %u left the session while others were ahead of it", rank);
        return;
      }
    }
  }
  complete_without_leavers();
}

// After a view change a rank that had left may be gone, and can't contribute what it holds. That does no harm
// where another rank holds the result too (docs/adr/0008).
void LaneSession::complete_without_leavers() noexcept {
  for (uint64_t s = next_result_; s < next_result_ + plan_.slots; ++s) {
    if (!complete_without_leavers(static_cast<uint32_t>(s % plan_.slots))) return;
  }
}

// False when this chunk, and so every later one, has to wait.
bool LaneSession::complete_without_leavers(uint32_t slot) noexcept {
  ChunkSlot& c = chunks_[slot];
  if (!plan_.survives || !leaves_said_ || c.state == ChunkState::kFree || ended()) return false;
  if (c.state == ChunkState::kFolding) return true;
  const RankLink* gone = nullptr;
  for (const auto& l : links_) {
    if (has_contributed(*l, c.reference.sequence)) continue;
    if (!l->said_leave_ || l->endpoint_ != nullptr) return false;
    gone = l.get();
  }
  if (!c.kept) {
    fail(Errc::kRankLeft, gone->rank_,
         "rank %" PRIu32 " left the session; nobody else has the result of operation %" PRIu32, gone->rank_,
         c.reference.op_id);
    return false;
  }
  c.state = ChunkState::kFolding;
  for (uint32_t group = 0; group < groups_; ++group) {
    if (c.group_arrived[group] < ranks_of_group(group)) push_task(slot, group);
  }
  return true;
}

}  // namespace sluice::reducer
