#include "reducer/control/connection/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "reducer/control/control_loop.h"
#include "reducer/control/session/session.h"
#include "wire/handshake.h"

namespace sluice::reducer {

Connection::Connection(ControlLoop& loop, asio::ip::tcp::socket socket, std::string peer)
    : FrameConnection(loop, std::move(socket), std::move(peer)) {}

void Connection::start() {
  unproved_number_ = loop_.unproved().add(shared_self());
  FrameConnection::start();
}

void Connection::bind(Session& session, uint32_t rank, uint32_t handle) {
  session_ = &session;
  rank_ = rank;
  set_handle(handle);
}

void Connection::refuse(const Error& error, uint32_t rank) {
  if (error.code == Errc::kUnauthenticated) {
    report_unauthenticated(error.text);
  } else {
    count_reason(loop_.counters().refused, error.code);
  }
  // Before the frame: otherwise the rank may record its failed join at an earlier time than the refusal.
  loop_.record_refusal(hello_.session, rank, error.code, error.text + " (from " + peer() + ")");
  send(wire::Refused{{.code = error.code, .rank = rank, .text = error.text}});
  finish();
}

void Connection::displace(const std::string& why) {
  if (is_open() && state_ != State::kSecuring && !socket().has_tls() && !has_unwritten_frames()) {
    const std::vector<std::byte> frame = wire::encode_message(
        wire::Refused{{.code = Errc::kTooMany, .rank = wire::kNoRank, .text = why}}, handle());
    static_cast<void>(::send(socket().fd(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  close(Errc::kTooMany);
}

void Connection::report_unauthenticated(const std::string& why) {
  count_reason(loop_.counters().refused, Errc::kUnauthenticated);
  loop_.audit().write_unauthenticated(peer(), wire::job_name(hello_), why);
}

// A client that refuses the reducer's proof or certificate may only close; one that proves nothing may also
// send something else. The key id of a HELLO says that the token is known, so that the client left for
// another reason. It opens nothing: a recorded one can be sent again.
bool Connection::has_left_unproved(Errc reason) const noexcept {
  const bool has_proof_ahead = state_ == State::kSecuring || (state_ == State::kRequest && credential_);
  return has_proof_ahead && !(credential_ && credential_->has_key_id) &&
         (reason == Errc::kClosed || reason == Errc::kReset || reason == Errc::kTimeout ||
          is_bad_frame(reason));
}

Connection::PoolKey Connection::pool_key() const {
  if (!credential_) return PoolKey::kNone;
  const auto tokens = loop_.admission().tokens_of(wire::job_name(hello_));
  const auto found = std::ranges::find(tokens, credential_->token);
  if (found == tokens.end()) return PoolKey::kDropped;
  return found == tokens.begin() ? PoolKey::kFirst : PoolKey::kOld;
}

void Connection::supersede() {
  session_ = nullptr;
  close(Errc::kReset);
}

void Connection::check_deadline(Nanos now) {
  if (has_passed_deadline(now)) close(Errc::kTimeout);
  // A pair keeps the session's slots registered, and no reservation counts them once the session has ended.
  if (is_open() && state_ == State::kPairing && loop_.sessions().find(hello_.session) == nullptr)
    close(Errc::kUnknownSession);
}

// While a pair is being made, the session may end at any time.
Nanos Connection::next_check() const noexcept {
  return is_open() && state_ == State::kPairing ? loop_.now() : FrameConnection::next_check();
}

void Connection::on_finishing() noexcept {
  loop_.unproved().set_greeted(unproved_number_, false);
  drop_pair();
  session_ = nullptr;
}

void Connection::on_closing() noexcept {
  loop_.unproved().remove(unproved_number_);
  share_.reset();
  drop_pair();
}

void Connection::on_closed(Errc reason) {
  if (has_left_unproved(reason)) {
    report_unauthenticated(
        credential_
            ? "the client left without proving a token: it has none, or that of another job or pool key"
            : "the client left during the TLS handshake");
  }
  if (session_ == nullptr && is_bad_frame(reason))
    loop_.record_refusal(hello_.session, wire::kNoRank, reason, "malformed frame from " + peer());
  if (Session* const s = std::exchange(session_, nullptr); s != nullptr) s->on_control_lost(rank_, reason);
  // A client that has been idle for too long still is there.
  if (gather_group_ != nullptr && reason != Errc::kTimeout) {
    GatherRegistry::leave_group(gather_group_, *this, hello_.rank,
                                GatherRegistry::left_too_early(hello_.rank));
  }
}

void Connection::on_frame() {
  switch (state_) {
    case State::kHello: return on_hello();
    case State::kSecuring:
    case State::kAnswering: return;
    case State::kRequest: return on_request();
    case State::kPairing: return pair_ ? on_paired() : on_pair();
    case State::kControl: return on_control();
    case State::kGather: return on_gather();
    case State::kHandedOver: return;
  }
}

bool Connection::expects_frame() const noexcept {
  // After PAIR the next bytes may belong to the lane.
  return state_ != State::kHello && state_ != State::kSecuring && state_ != State::kAnswering &&
         state_ != State::kHandedOver && !hand_over_when_written_ && !is_creating_pair_;
}

// Decodes the message of the rank and passes it to the session.
template <typename M>
void Connection::pass_to_session(void (Session::*handler)(Connection&, uint32_t, const M&)) {
  M message;
  if (decode_or_close(message)) (session_->*handler)(*this, rank_, message);
}

void Connection::on_control() {
  if (session_ == nullptr) return close(Errc::kUnexpectedMessage);
  session_->record_activity(rank_);
  if (header().type != wire::FrameType::kHeartbeat) loop_.sessions().wake(*session_);
  switch (header().type) {
    case wire::FrameType::kVote: return pass_to_session(&Session::on_vote);
    case wire::FrameType::kCommit: return pass_to_session(&Session::on_commit);
    case wire::FrameType::kHeartbeat: return pass_to_session(&Session::on_heartbeat);
    case wire::FrameType::kLeave: return pass_to_session(&Session::on_leave);
    case wire::FrameType::kAbort: return pass_to_session(&Session::on_abort);
    default: break;
  }
  if (!session_->is_fault_tolerant()) return close(Errc::kUnexpectedMessage);
  switch (header().type) {
    case wire::FrameType::kSuspect: return pass_to_session(&Session::on_suspect);
    case wire::FrameType::kViewKnown: return pass_to_session(&Session::on_view_known);
    case wire::FrameType::kRateChanges: return pass_to_session(&Session::on_rate_changes);
    case wire::FrameType::kViewAnswer: return pass_to_session(&Session::on_view_answer);
    default: return close(Errc::kUnexpectedMessage);
  }
}

void Connection::on_all_written() {
  if (hand_over_when_written_) {
    hand_over_to_lane();
  } else if (state_ == State::kSecuring) {
    start_tls();
  }
}

}  // namespace sluice::reducer
