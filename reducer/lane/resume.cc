// What makes a lane session survive (PROTOCOL.md section 11): connections that go on where their predecessor
// broke off, and ranks that move to the next view.
#include <algorithm>

#include "core/assert.h"
#include "core/bytes.h"
#include "reducer/lane/lane_session.h"

namespace sluice::reducer {

Status LaneSession::resume(RankLink& link, std::span<const std::byte> body) noexcept {
  wire::Resume told;
  if (const Status status = wire::decode_body(body, told); !status.ok()) return status;
  if (other_incarnation(told.incarnation)) return Errc::kBadField;
  const LaneView view{
      .version = told.version, .hash = static_cast<uint32_t>(told.view_hash), .base_chunk = told.base_chunk};
  if (view.version != link.view_.version) {
    if (told.results_held != 0) return Errc::kBadSequence;
    if (const Status status = enter_view(link, view); !status.ok()) return status;
  } else if (view != link.view_) {
    return Errc::kBadView;
  }
  if (!can_resume(link, told.results_held)) return Errc::kBadSequence;
  incarnation_ = told.incarnation;
  link.state_ = RankLink::State::kCommitted;
  link.committed_ = true;
  link.results_put_ = told.results_held;
  counters_->resumes.add(1);
  acknowledge(link);
  if (link.view_.version == view_.version) put_again(link);
  return Errc::kOk;
}

Status LaneSession::view_commit(RankLink& link, std::span<const std::byte> body) noexcept {
  wire::ViewCommit told;
  if (const Status status = wire::decode_body(body, told); !status.ok()) return status;
  const Status status = enter_view(link, {.version = told.version,
                                          .hash = static_cast<uint32_t>(told.view_hash),
                                          .base_chunk = told.base_chunk});
  SLUICE_DASSERT(!status.ok() || link.view_ != view_ || !passed_over(0));  // it was there all the time
  return status;
}

// To one that the session has left too: the rank may hear of a view, or of the loss of its word of it, after
// another rank has heard of the next. It is still behind then.
Status LaneSession::enter_view(RankLink& link, const LaneView& to) noexcept {
  if (to.version <= link.view_.version) return Errc::kBadView;
  if (to.version == view_.version && to != view_) return Errc::kBadView;
  if (to.version > view_.version) move_to(to);
  link.view_ = to;
  link.next_contribution_ = 0;
  link.results_put_ = 0;
  link.next_lent_ = 0;
  link.left_ = false;  // it contributes once more what it has, from the base on
  return Errc::kOk;
}

// All that the lane holds belongs to the view before. What is still in the transport's hands of its results
// is waited for (has_folds()): the places are the same.
void LaneSession::move_to(const LaneView& to) noexcept {
  view_ = to;
  for (ChunkSlot& c : chunks_) c.state = ChunkState::kFree;
  task_head_ = task_tail_;
  task_element_ = 0;
  task_crc_ = 0;
  next_result_ = 0;
  leaver_limit_ = ~uint64_t{0};
  old_puts_ = 0;
  for (const auto& l : links_) old_puts_ += l->puts_;
  counters_->view_moves.add(1);
  publish_missing();
}

bool LaneSession::can_resume(const RankLink& link, uint64_t results_held) const noexcept {
  // A rank holds results of its own contributions alone, and had the credit for those.
  if (results_held > link.next_contribution_ || link.next_contribution_ - results_held > plan_.slots)
    return false;
  // Of a view that the session has left nothing is sent again: what the rank lacks comes in the new one.
  const bool behind = link.view_.version != view_.version;
  return (behind || results_held <= next_result_) && !passed_over(behind ? 0 : link.next_contribution_);
}

// Whether chunks are done, or being done, without a rank whose next contribution is this: only one that had
// left and was gone. The results that it lacks may be overwritten.
bool LaneSession::passed_over(uint64_t next_contribution) const noexcept {
  return next_result_ > next_contribution || std::ranges::any_of(chunks_, [&](const ChunkSlot& c) {
           return c.state == ChunkState::kFolding && c.reference.sequence >= next_contribution;
         });
}

void LaneSession::acknowledge(RankLink& link) noexcept {
  store_le(link.acknowledged_.data(), link.next_contribution_);
  const auto header = wire::control_header(wire::FrameType::kResumeAck, link.acknowledged_, plan_.handle);
  // The first put of a connection: refused only where that is closing.
  (void)link.endpoint_->put(header, {}, link.acknowledged_, kControlCookie);
}

// The results are still in their slots: that of sequence s is written again by the fold of s + W, for which
// all ranks have contributed s + W, this one too. It has not, since it lacks result s.
void LaneSession::put_again(RankLink& link) noexcept {
  for (uint64_t s = link.results_put_; s < next_result_; ++s) {
    const PutResult& result = put_results_[s % plan_.slots];
    SLUICE_DASSERT(result.header.sequence == s && link.next_contribution_ <= s + plan_.slots);
    wire::FrameHeader header = result.header;
    header.flags |= wire::kFlagResent;
    if (!put(link, header, result)) return;
    counters_->results_resent.add(1);
  }
}

}  // namespace sluice::reducer
