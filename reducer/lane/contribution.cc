// The receive side of a lane session: what is admitted, and what a complete contribution starts.
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "core/assert.h"
#include "reducer/lane/lane_session.h"

namespace sluice::reducer {

bool LaneSession::may_contribute(const RankLink& link, uint64_t sequence) const noexcept {
  return link.state_ == RankLink::State::kCommitted && !link.left_ &&
         sequence < link.results_put_ + plan_.slots;
}

std::byte* LaneSession::place_of(const RankLink& link, uint64_t sequence) const noexcept {
  return arena_.contribution(link.rank_, static_cast<uint32_t>(sequence % plan_.slots));
}

Status LaneSession::admit(RankLink& link, const wire::FrameHeader& h, std::byte*& place) noexcept {
  if (link.state_ != RankLink::State::kCommitted || link.left_) return Errc::kUnexpectedMessage;
  if (h.session != plan_.handle) return Errc::kBadSession;
  if (h.view_version != link.view_.version || h.view_hash != link.view_.hash) return Errc::kBadView;
  // In the first view nobody can hold the result of a chunk that is contributed.
  if ((h.flags & wire::kFlagKept) != 0 && (!plan_.survives || h.view_version == 0)) return Errc::kBadField;
  if (h.sequence != link.next_contribution_) return Errc::kBadSequence;
  const auto slot = static_cast<uint32_t>(h.sequence % plan_.slots);
  if (h.slot != slot) return Errc::kBadSlot;
  if (!may_contribute(link, h.sequence)) return Errc::kSlotNotGranted;
  const size_t element = wire::size_of(h.wire_dtype);
  const size_t widened = h.length / element * wire::size_of(h.acc_dtype);
  // A chunk whose partial sums would not fit: the bound of PROTOCOL.md section 8.
  if (h.length > plan_.slot_bytes || widened > 2 * size_t{plan_.slot_bytes}) return Errc::kBadLength;
  place = place_of(link, h.sequence);
  return Errc::kOk;
}

void LaneSession::contributed(RankLink& link, const wire::FrameHeader& h,
                              std::span<const std::byte> extensions) noexcept {
  link.next_contribution_ = h.sequence + 1;
  link.last_length_ = h.length;
  if (ended()) return;
  if ((h.flags & wire::kFlagLosses) != 0) tell_losses_ = true;
  if (link.view_.version != view_.version) {
    counters_->contributions_dropped.add(1);
    return;
  }
  if (h.sequence >= leaver_limit_) {
    for (const auto& other : links_) {
      if (other->left_ && other->view_.version == view_.version && other->next_contribution_ <= h.sequence) {
        fail(Errc::kRankLeft, other->rank_,
             "rank %" PRIu32 " left the session; rank %" PRIu32 " went on with operation %" PRIu32,
             other->rank_, link.rank_, h.op_id);
        return;
      }
    }
  }
  const auto info = wire::find_op_info(extensions);
  const uint64_t count = info ? info->count : 0;
  const uint32_t slot = h.slot;
  ChunkSlot& c = chunks_[slot];
  if (c.state == ChunkState::kFree) {
    c.begin(h, count, link.rank_, now_);
  } else if (const char* field = first_difference(c.reference, h); field != nullptr) {
    fail_mismatch(link, h, count, c, field);
    return;
  }
  SLUICE_DASSERT(c.state == ChunkState::kFilling && h.sequence >= next_result_);
  if ((h.flags & wire::kFlagKept) != 0 && !c.kept) {
    c.kept = true;
    c.kept_rank = link.rank_;
  }
  c.last_rank = link.rank_;
  c.last_arrival = now_;
  ++c.arrived;
  const auto group = static_cast<uint32_t>(link.rank_ / kernels::kGroup);
  if (c.arrived == plan_.ranks) c.state = ChunkState::kFolding;
  if (++c.group_arrived[group] == ranks_of_group(group)) push_task(slot, group);
  if (c.state == ChunkState::kFilling) (void)complete_without_leavers(slot);
}

uint32_t LaneSession::ranks_of_group(uint32_t group) const noexcept {
  return std::min<uint32_t>(kernels::kGroup, plan_.ranks - group * static_cast<uint32_t>(kernels::kGroup));
}

Status LaneSession::commit(RankLink& link, std::span<const std::byte> body) noexcept {
  wire::Commit commit;
  if (const Status status = wire::decode_body(body, commit); !status.ok()) return status;
  if (other_incarnation(commit.incarnation)) return Errc::kBadField;
  incarnation_ = commit.incarnation;
  link.state_ = RankLink::State::kCommitted;
  link.committed_ = true;
  return Errc::kOk;
}

bool LaneSession::other_incarnation(uint64_t told) const noexcept {
  return told == 0 || (incarnation_ != 0 && incarnation_ != told);
}

void LaneSession::fail_mismatch(const RankLink& link, const wire::FrameHeader& h, uint64_t count,
                                const ChunkSlot& c, const char* field) noexcept {
  const auto text = [](auto value) { return wire::to_string(value).data(); };  // literals: terminated
  const wire::FrameHeader& r = c.reference;
  fail(Errc::kMismatch, link.rank_,
       "ranks disagree on %s: rank %" PRIu32 " operation %" PRIu32 " has count %" PRIu64
       " dtype %s op %s chunk %" PRIu64 ", rank %" PRIu32 " operation %" PRIu32 " has count %" PRIu64
       " dtype %s op %s chunk %" PRIu64,
       field, link.rank_, h.op_id, count, text(h.wire_dtype), text(h.op), h.chunk, c.first_rank, r.op_id,
       c.count, text(r.wire_dtype), text(r.op), r.chunk);
}

void LaneSession::fail(Errc code, Rank rank, const char* format, ...) noexcept {
  if (failed_) return;
  failed_ = true;
  report_due_ = true;
  failure_.kind = LaneEvent::Kind::kFailed;
  failure_.session = this;
  failure_.rank = rank;
  failure_.code = code;
  va_list args;
  va_start(args, format);
  std::vsnprintf(failure_.text.data(), failure_.text.size(), format, args);
  va_end(args);
}

}  // namespace sluice::reducer
