// The lane's side of fault tolerance (protocol.md section 11): connections that resume where another one
// broke, and ranks that enter the next view.
#include <algorithm>

#include "core/assert.h"
#include "core/bytes.h"
#include "reducer/lane/lane_session.h"

namespace sluice::reducer {

Status LaneSession::resume(RankConnection& conn, std::span<const std::byte> body) noexcept {
  wire::Resume message;
  if (const Status status = wire::decode_body(body, message); !status.ok()) return status;
  if (is_other_incarnation(message.incarnation)) return Errc::kBadField;
  const LaneView view{.version = message.version,
                      .hash = static_cast<uint32_t>(message.view_hash),
                      .base_chunk = message.base_chunk};
  if (view.version != conn.view_.version) {
    if (message.results_held != 0) return Errc::kBadSequence;
    if (const Status status = enter_view(conn, view); !status.ok()) return status;
  } else if (view != conn.view_) {
    return Errc::kBadView;
  }
  if (!can_resume(conn, message.results_held)) return Errc::kBadSequence;
  incarnation_ = message.incarnation;
  conn.state_ = RankConnection::State::kCommitted;
  conn.committed_ = true;
  conn.results_put_ = message.results_held;
  counters_->resumes.add(1);
  send_resume_ack(conn);
  if (conn.view_.version == view_.version) resend_results(conn);
  return Errc::kOk;
}

Status LaneSession::view_commit(RankConnection& conn, std::span<const std::byte> body) noexcept {
  wire::ViewCommit message;
  if (const Status status = wire::decode_body(body, message); !status.ok()) return status;
  const Status status = enter_view(conn, {.version = message.version,
                                          .hash = static_cast<uint32_t>(message.view_hash),
                                          .base_chunk = message.base_chunk});
  // A connected rank is never passed over.
  SLUICE_DASSERT(!status.ok() || conn.view_ != view_ || !has_completed_beyond(0));
  return status;
}

// Also enters a view that the session has already left. The rank may learn of a view, or resend a lost
// VIEW_COMMIT, after another rank has announced the next view. The rank is then still behind the session.
Status LaneSession::enter_view(RankConnection& conn, const LaneView& to) noexcept {
  if (to.version <= conn.view_.version) return Errc::kBadView;
  if (to.version == view_.version && to != view_) return Errc::kBadView;
  if (to.version > view_.version) switch_to_view(to);
  conn.view_ = to;
  conn.next_contribution_ = 0;
  conn.results_put_ = 0;
  conn.next_advertised_ = 0;
  // From the base chunk on.
  if (conn.part_ == RankConnection::Part::kNothing) conn.part_ = RankConnection::Part::kRepeats;
  return Errc::kOk;
}

// Everything that the lane holds belongs to the previous view. has_folds() waits for results that the
// transport is still sending, because the new results use the same memory.
void LaneSession::switch_to_view(const LaneView& to) noexcept {
  view_ = to;
  for (ChunkSlot& c : chunks_) c.state = ChunkState::kFree;
  task_head_ = task_tail_;
  task_element_ = 0;
  task_crc_ = 0;
  next_result_ = 0;
  leaver_limit_ = ~uint64_t{0};
  stale_puts_ = 0;
  for (const auto& conn : connections_) stale_puts_ += conn->pending_puts_;
  counters_->view_moves.add(1);
  publish_missing();
}

bool LaneSession::can_resume(const RankConnection& conn, uint64_t results_held) const noexcept {
  // A rank holds only results that it contributed to, and its contributions had credit.
  if (results_held > conn.next_contribution_ || conn.next_contribution_ - results_held > plan_.slots)
    return false;
  // Nothing is resent in a view that the session has left: the rank gets the results in the new view.
  const bool behind = conn.view_.version != view_.version;
  return (behind || results_held <= next_result_) &&
         !has_completed_beyond(behind ? 0 : conn.next_contribution_);
}

// True if chunks completed, or are being folded, without a rank whose next contribution this is. That happens
// only to a rank that had left and was disconnected. The results that it lacks may be overwritten.
bool LaneSession::has_completed_beyond(uint64_t next_contribution) const noexcept {
  return next_result_ > next_contribution || std::ranges::any_of(chunks_, [&](const ChunkSlot& c) {
           return c.state == ChunkState::kFolding && c.reference.sequence >= next_contribution;
         });
}

void LaneSession::send_resume_ack(RankConnection& conn) noexcept {
  store_le(conn.resume_ack_body_.data(), conn.next_contribution_);
  const auto header = wire::control_header(wire::FrameType::kResumeAck, conn.resume_ack_body_, plan_.handle);
  // The first put of a connection: refused only while the connection is closing.
  (void)conn.endpoint_->put(header, {}, conn.resume_ack_body_, kControlCookie);
}

// The results are still in their slots. The fold of s + W overwrites result s, and that fold needs this
// rank's contribution s + W, which it cannot send before it has result s.
void LaneSession::resend_results(RankConnection& conn) noexcept {
  for (uint64_t s = conn.results_put_; s < next_result_; ++s) {
    const SentResult& result = sent_results_[s % plan_.slots];
    SLUICE_DASSERT(result.header.sequence == s && conn.next_contribution_ <= s + plan_.slots);
    wire::FrameHeader header = result.header;
    header.flags |= wire::kFlagResent;
    if (!put(conn, header, result)) return;
    counters_->results_resent.add(1);
  }
}

}  // namespace sluice::reducer
