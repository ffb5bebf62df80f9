// The messages of a rank on its control connection, passed to its session.
#include "reducer/control/connection/connection.h"
#include "reducer/control/session/session.h"

namespace sluice::reducer {

void Connection::on_control() {
  if (session_ == nullptr) return close(Errc::kUnexpectedMessage);
  session_->record_activity(rank_);
  switch (header().type) {
    case wire::FrameType::kVote: {
      wire::Vote vote;
      if (decode_body_or_close(vote)) session_->on_vote(*this, rank_, vote);
      return;
    }
    case wire::FrameType::kCommit: {
      wire::Commit commit;
      if (decode_body_or_close(commit)) session_->on_commit(*this, rank_, commit.incarnation);
      return;
    }
    case wire::FrameType::kHeartbeat: {
      wire::Heartbeat heartbeat;
      if (decode_body_or_close(heartbeat)) session_->on_heartbeat(rank_, heartbeat);
      return;
    }
    case wire::FrameType::kLeave: {
      wire::Leave leave;
      if (decode_body_or_close(leave)) session_->on_leave(*this, rank_, leave);
      return;
    }
    case wire::FrameType::kAbort: {
      wire::Abort abort;
      if (decode_body_or_close(abort)) session_->on_abort(rank_, abort);
      return;
    }
    default: return session_->is_fault_tolerant() ? on_recovery_message() : close(Errc::kUnexpectedMessage);
  }
}

// Messages of fault-tolerant sessions only.
void Connection::on_recovery_message() {
  switch (header().type) {
    case wire::FrameType::kSuspect: {
      wire::Suspect suspect;
      if (decode_body_or_close(suspect)) session_->on_suspect(rank_, suspect);
      return;
    }
    case wire::FrameType::kViewKnown: {
      wire::ViewKnown known;
      if (decode_body_or_close(known)) session_->on_view_known(*this, rank_, known);
      return;
    }
    case wire::FrameType::kViewAnswer: {
      wire::ViewAnswer answer;
      if (decode_body_or_close(answer)) session_->on_view_answer(rank_, answer);
      return;
    }
    default: return close(Errc::kUnexpectedMessage);
  }
}

}  // namespace sluice::reducer
