#include "gpu_client/engine/ballot.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "gpu_client/engine/peer_code.h"

namespace sluice::engine {
namespace {

// How long a rank that votes no waits for the arbiter to take it.
constexpr Nanos kFarewell = kSecond;

Error ending_error(const std::string& name, const char* verb, const wire::Ending& e) {
  return {from_peer(e.code), name + " " + verb + ": " + printable(e.text)};
}

Error lost(const Seat& seat, Status status) {
  const bool silent = status.code() == Errc::kClosed || status.code() == Errc::kReset;
  return {silent ? Errc::kReducerLost : status.code(),
          seat.name + (status.code() == Errc::kClosed ? ": closed the control connection"
                       : silent                       ? ": the control connection broke"
                                : ": malformed frame: " + std::string(to_string(status.code())))};
}

template <typename Message>
Error told(const Seat& seat, std::span<const std::byte> body, const char* verb) {
  Message m;
  if (const Status s = wire::decode_body(body, m); !s.ok()) return lost(seat, s);
  return ending_error(seat.name, verb, m);
}

// Waits until a control connection has something to read or the deadline has passed.
void wait_readable(std::span<Seat> seats, Nanos deadline) {
  std::vector<pollfd> fds;
  for (const Seat& s : seats) {
    const short events = s.control.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    fds.push_back({.fd = s.control.fd(), .events = events, .revents = 0});
  }
  const Nanos left = std::max<Nanos>(deadline - monotonic_now(), 0);
  const int ms =
      static_cast<int>(std::min<uint64_t>(div_ceil(static_cast<uint64_t>(left), kMillisecond), 1000));
  ::poll(fds.data(), fds.size(), ms);
  for (Seat& s : seats) static_cast<void>(s.control.flush());
}

// One step of listening: an error when a reducer ended it, the verdict when the arbiter gave one, nothing
// when all is silent.
Result<std::optional<wire::Verdict>> listen(std::span<Seat> seats, bool& arbiter_gone) {
  for (size_t i = 0; i < seats.size(); ++i) {
    Seat& seat = seats[i];
    for (;;) {
      ControlLink::Frame frame;
      const Status status = seat.control.receive(frame);
      if (status.code() == Errc::kWouldBlock) break;
      if (!status.ok()) {
        const bool silent = status.code() == Errc::kClosed || status.code() == Errc::kReset;
        if (i != 0 || !silent) return tl::unexpected(lost(seat, status));
        arbiter_gone = true;
        break;
      }
      using wire::FrameType;
      if (frame.header.type == FrameType::kRefused)
        return tl::unexpected(told<wire::Refused>(seat, frame.body, "refused"));
      if (frame.header.type == FrameType::kAbort)
        return tl::unexpected(told<wire::Abort>(seat, frame.body, "ended the session"));
      if (frame.header.type == FrameType::kVerdict && i == 0) {
        wire::Verdict verdict;
        if (const Status s = wire::decode_body(frame.body, verdict); !s.ok())
          return tl::unexpected(lost(seat, s));
        return verdict;
      }
      if (frame.header.type != FrameType::kHeartbeat)
        return tl::unexpected(lost(seat, Errc::kUnexpectedMessage));
    }
  }
  return std::optional<wire::Verdict>();
}

Result<uint64_t> judge(const Seat& arbiter, const wire::Verdict& verdict) {
  if (verdict.commit == 0) return tl::unexpected(ending_error(arbiter.name, "refused", verdict.reason));
  if (verdict.incarnation == 0) return tl::unexpected(lost(arbiter, Errc::kBadField));
  return verdict.incarnation;
}

Result<uint64_t> ask_again(const Seat& arbiter, const config::Endpoint& address, const Identity& who,
                           Nanos deadline) {
  auto greeting = greet(address, who, wire::Purpose::kVerdict, 0, 0, deadline);
  if (!greeting) return add_context("the arbiter's connection broke after the vote", greeting.error());
  wire::VerdictQuery query;
  query.mac = proof(*greeting, who, 0);
  auto verdict = ask<wire::Verdict>(*greeting, query, deadline);
  if (!verdict) return add_context("the arbiter's connection broke after the vote", verdict.error());
  if (auto judged = judge(arbiter, *verdict); !judged) return judged;
  // The others go on without knowing: the arbiter has lost this rank and is about to tell them.
  return fail(Errc::kReducerLost,
              arbiter.name + ": the control connection broke while the session was committed");
}

}  // namespace

Result<uint64_t> await_verdict(std::span<Seat> seats, const config::Endpoint& arbiter, const Identity& who,
                               Nanos deadline) {
  for (;;) {
    bool arbiter_gone = false;
    auto heard = listen(seats, arbiter_gone);
    if (!heard) return tl::unexpected(heard.error());
    if (*heard) return judge(seats[0], **heard);
    if (arbiter_gone) return ask_again(seats[0], arbiter, who, deadline);
    if (monotonic_now() >= deadline) {
      return fail(Errc::kJoinTimeout, seats[0].name + ": no verdict within the join deadline and its grace");
    }
    wait_readable(seats, deadline);
  }
}

Result<void> unasked_words(std::span<Seat> seats) {
  bool arbiter_gone = false;
  auto heard = listen(seats, arbiter_gone);
  if (!heard) return tl::unexpected(heard.error());
  if (*heard && (*heard)->commit == 0)
    return tl::unexpected(ending_error(seats[0].name, "refused", (*heard)->reason));
  return {};
}

void vote_no(Seat& arbiter, Rank rank, const Error& why) {
  wire::Vote vote;
  vote.reason.code = for_peer(why.code);
  vote.reason.rank = rank;
  vote.reason.text = why.text;  // the arbiter puts the rank in front
  if (!arbiter.control.send(vote).ok()) return;
  const Nanos deadline = monotonic_now() + kFarewell;
  for (bool gone = false; !gone && monotonic_now() < deadline;) {
    auto heard = listen({&arbiter, 1}, gone);
    if (!heard || *heard) return;
    if (!gone) wait_readable({&arbiter, 1}, deadline);
  }
}

void abort_all(std::span<Seat> seats, Rank rank, const Error& why) {
  wire::Abort abort;
  abort.code = for_peer(why.code);
  abort.rank = rank;
  abort.text = why.text;
  for (Seat& s : seats) {
    if (s.control.send(abort).ok()) s.control.shutdown();
  }
}

}  // namespace sluice::engine
