#include "gpu_client/engine/join/join_vote.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "gpu_client/engine/base/peer_error.h"

namespace sluice::engine {
namespace {

constexpr Nanos kVoteDelivery = kSecond;
constexpr const char* kArbiterLost = "arbiter's control connection was lost after the vote";

Error session_end_error(const std::string& name, const char* verb, const wire::SessionEnd& e) {
  return {code_from_peer(e.code), name + " " + verb + ": " + replace_control_characters(e.text)};
}

Error control_error(const ReducerReservation& r, Status status) {
  if (status.code() == Errc::kClosed)
    return {Errc::kReducerLost, r.name + ": control connection closed by the reducer"};
  if (status.code() == Errc::kReset) return {Errc::kReducerLost, r.name + ": control connection reset"};
  return {status.code(),
          r.name + ": malformed frame on the control connection: " + std::string(to_string(status.code()))};
}

template <typename Message>
Error unasked_error(const ReducerReservation& r, std::span<const std::byte> body, const char* verb) {
  Message m;
  if (const Status s = wire::decode_body(body, m); !s.ok()) return control_error(r, s);
  return session_end_error(r.name, verb, m);
}

// Waits until a control connection is readable, the deadline has passed, or the join is interrupted.
void wait_readable(std::span<ReducerReservation> reservations, const Deadline& deadline) {
  std::vector<pollfd> fds{{.fd = deadline.interrupt_fd, .events = POLLIN, .revents = 0}};
  for (const ReducerReservation& r : reservations) {
    const short events = r.control.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    fds.push_back({.fd = r.control.fd(), .events = events, .revents = 0});
  }
  const Nanos left = std::max<Nanos>(deadline.time - monotonic_now(), 0);
  const int ms =
      static_cast<int>(std::min<uint64_t>(div_ceil(static_cast<uint64_t>(left), kMillisecond), 1000));
  ::poll(fds.data(), fds.size(), ms);
  for (ReducerReservation& r : reservations) static_cast<void>(r.control.flush());
}

// Reads all control connections once. Returns an error when a reducer ended the session, the verdict when the
// arbiter has sent one, and nullopt otherwise.
Result<std::optional<wire::Verdict>> read_verdict(std::span<ReducerReservation> reservations,
                                                  bool& arbiter_lost) {
  for (size_t i = 0; i < reservations.size(); ++i) {
    ReducerReservation& r = reservations[i];
    for (;;) {
      ControlConnection::Frame frame;
      const Status status = r.control.receive(frame);
      if (status.code() == Errc::kWouldBlock) break;
      if (!status.ok()) {
        const bool is_lost = status.code() == Errc::kClosed || status.code() == Errc::kReset;
        if (i != 0 || !is_lost) return tl::unexpected(control_error(r, status));
        arbiter_lost = true;
        break;
      }
      using wire::FrameType;
      if (frame.header.type == FrameType::kRefused)
        return tl::unexpected(unasked_error<wire::Refused>(r, frame.body, "refused"));
      if (frame.header.type == FrameType::kAbort)
        return tl::unexpected(unasked_error<wire::Abort>(r, frame.body, "ended the session"));
      if (frame.header.type == FrameType::kVerdict && i == 0) {
        wire::Verdict verdict;
        if (const Status s = wire::decode_body(frame.body, verdict); !s.ok())
          return tl::unexpected(control_error(r, s));
        return verdict;
      }
      if (frame.header.type != FrameType::kHeartbeat)
        return tl::unexpected(control_error(r, Errc::kUnexpectedMessage));
    }
  }
  return std::optional<wire::Verdict>();
}

Result<uint64_t> incarnation_of(const ReducerReservation& arbiter, const wire::Verdict& verdict) {
  if (verdict.commit == 0) return tl::unexpected(session_end_error(arbiter.name, "refused", verdict.reason));
  if (verdict.incarnation == 0) return tl::unexpected(control_error(arbiter, Errc::kBadField));
  return verdict.incarnation;
}

Result<uint64_t> query_verdict(const ReducerReservation& arbiter, const config::Endpoint& address,
                               const Identity& identity, const Deadline& deadline) {
  auto handshake = connect_and_handshake(address, identity, wire::Purpose::kVerdict, 0, 0, deadline);
  if (!handshake) return add_context(kArbiterLost, handshake.error());
  wire::VerdictQuery query;
  query.mac = client_proof(*handshake, 0);
  auto verdict = send_request<wire::Verdict>(*handshake, query, deadline);
  if (!verdict) return add_context(kArbiterLost, verdict.error());
  if (auto incarnation = incarnation_of(arbiter, *verdict); !incarnation) return incarnation;
  // The session was committed without this rank: the arbiter has lost it and is about to tell the others.
  return fail(Errc::kReducerLost, arbiter.name + ": control connection lost while the session was committed");
}

}  // namespace

Result<uint64_t> await_verdict(std::span<ReducerReservation> reservations, const config::Endpoint& arbiter,
                               const Identity& identity, const Deadline& deadline) {
  for (;;) {
    bool arbiter_lost = false;
    auto verdict = read_verdict(reservations, arbiter_lost);
    if (!verdict) return tl::unexpected(verdict.error());
    if (*verdict) return incarnation_of(reservations[0], **verdict);
    if (arbiter_lost) return query_verdict(reservations[0], arbiter, identity, deadline);
    if (transport::tcp::sleep_until({0, deadline.interrupt_fd}) == Errc::kShutdown)
      return fail(Errc::kShutdown, "interrupted while waiting for the verdict");
    if (monotonic_now() >= deadline.time) {
      return fail(Errc::kJoinTimeout,
                  reservations[0].name + ": no verdict within the join timeout and its grace period");
    }
    wait_readable(reservations, deadline);
  }
}

Result<void> check_for_refusal(std::span<ReducerReservation> reservations, Nanos late) {
  if (reservations.empty()) return {};
  const std::span<ReducerReservation> arbiter = reservations.first(1);
  const Nanos deadline = monotonic_now() + late;
  for (bool lost = false; !lost;) {
    auto verdict = read_verdict(arbiter, lost);
    if (!verdict) return tl::unexpected(verdict.error());
    if (*verdict && (*verdict)->commit == 0)
      return tl::unexpected(session_end_error(reservations[0].name, "refused", (*verdict)->reason));
    if (monotonic_now() >= deadline) break;
    wait_readable(arbiter, deadline);
  }
  bool arbiter_lost = false;
  auto verdict = read_verdict(reservations, arbiter_lost);
  if (!verdict) return tl::unexpected(verdict.error());
  return {};
}

void vote_no(ReducerReservation& arbiter, Rank rank, const Error& cause) {
  wire::Vote vote;
  vote.reason.code = code_for_peer(cause.code);
  vote.reason.rank = rank;
  vote.reason.text = cause.text;  // the arbiter prepends the rank
  if (!arbiter.control.send(vote).ok()) return;
  const Nanos deadline = monotonic_now() + kVoteDelivery;
  for (bool lost = false; !lost && monotonic_now() < deadline;) {
    auto verdict = read_verdict({&arbiter, 1}, lost);
    if (!verdict || *verdict) return;
    if (!lost) wait_readable({&arbiter, 1}, deadline);
  }
}

void abort_all(std::span<ReducerReservation> reservations, Rank rank, const Error& cause) {
  wire::Abort abort;
  abort.code = code_for_peer(cause.code);
  abort.rank = rank;
  abort.text = cause.text;
  for (ReducerReservation& r : reservations) {
    if (r.control.send(abort).ok()) r.control.shutdown();
  }
}

}  // namespace sluice::engine
