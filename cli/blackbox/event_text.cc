#include "cli/blackbox/event_text.h"

#include <fmt/format.h>

#include <csignal>
#include <string_view>

#include "config/sizes.h"
#include "wire/frame.h"
#include "wire/message_limits.h"

namespace sluice::cli {
namespace {

using blackbox::Event;
using blackbox::EventKind;
using blackbox::Role;

std::string counted(uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string after_colon(const std::string& text) {
  return text.empty() ? "" : ": " + text;
}

std::string peer_name(const Timeline& timeline, const Event& e) {
  if (e.peer == blackbox::kNoPeer) return "a peer";
  return e.role == Role::kReducer ? fmt::format("rank {}", e.peer) : timeline.reducer_name(e.peer);
}

std::string rank_name(uint64_t rank) {
  return rank >= wire::kNoRank ? "a rank" : fmt::format("rank {}", rank);
}

std::string signal_text(uint64_t number) {
  const char* const name = number == SIGTERM   ? " (SIGTERM)"
                           : number == SIGINT  ? " (SIGINT)"
                           : number == SIGHUP  ? " (SIGHUP)"
                           : number == SIGUSR2 ? " (SIGUSR2)"
                                               : "";
  return fmt::format("received signal {}{}", number, name);
}

std::string connection_name(uint64_t connection) {
  return connection == blackbox::kControlConnection
             ? "its control connection"
             : fmt::format("its connection of lane {}", connection - 1);
}

std::string operation_text(const Event& e) {
  const char* const kind =
      e.peer <= uint64_t{UINT8_MAX} ? wire::to_string(static_cast<wire::Kind>(e.peer)) : "unknown";
  return fmt::format("operation {} ({}, {})", e.a, kind, config::rounded_size_text(static_cast<double>(e.b)));
}

std::string end_text(const Event& e, const std::string& text) {
  if (e.code == Errc::kOk) return "completed the session";
  if (e.code == Errc::kClosed) return "closed the session";
  return fmt::format("{} the session: {}{}", e.role == Role::kReducer ? "ended" : "reported the end of",
                     to_string(e.code), after_colon(text));
}

std::string refusal_text(const Event& e, const std::string& text) {
  return fmt::format("refused {}: {}{}{}", e.peer >= wire::kNoRank ? "a connection" : rank_name(e.peer),
                     to_string(e.code), after_colon(text),
                     e.a == 0 ? "" : fmt::format(", and {} more connections before", e.a));
}

std::string drain_text(const Timeline& timeline, const Event& e) {
  if (e.role == Role::kReducer) return "began to drain, with " + counted(e.a, "session");
  return "learned that " + timeline.reducer_name(e.peer) + " drains";
}

std::string late_text(const Event& e) {
  return fmt::format("waited {} ms for {}{}", e.a, rank_name(e.peer),
                     e.b <= 1 ? "" : " and " + counted(e.b - 1, "more rank"));
}

}  // namespace

std::string reason_text(const RecordedEvent& recorded) {
  const Errc code = recorded.event.code;
  if (is_bad_frame(code)) return fmt::format("malformed frame: {}", to_string(code));
  if (!recorded.text.empty()) return recorded.text;
  switch (code) {
    case Errc::kClosed: return "closed by the other side";
    case Errc::kReset: return "connection reset";
    case Errc::kTimeout: return "no answer in time";
    default: return std::string(to_string(code));
  }
}

std::string event_text(const Timeline& timeline, const Timeline::Entry& entry) {
  const Event& e = entry.event();
  const std::string text = timeline.with_names(entry.recorded->text);
  const auto peer = [&] { return peer_name(timeline, e); };
  const auto reducer = [&] { return timeline.reducer_name(e.peer); };
  switch (e.kind) {
    case EventKind::kNone: break;
    case EventKind::kStarted: return "started";
    case EventKind::kSignal: return signal_text(e.a);
    case EventKind::kStalled: return fmt::format("did not run for {} ms (suspended or starved of CPU)", e.a);
    case EventKind::kReducerListening: return fmt::format("listens on {}", text);
    case EventKind::kJoining:
      return fmt::format("joins the session: {}, {}", counted(e.a, "rank"),
                         counted(e.b, "dedicated reducer"));
    case EventKind::kOpened: return fmt::format("opened the session for {}", counted(e.a, "rank"));
    case EventKind::kReducerJoined: return fmt::format("joined {}", reducer());
    case EventKind::kReducerRejected: return fmt::format("did not add {}: {}", reducer(), text);
    case EventKind::kRankJoined: return fmt::format("accepted {} ({})", rank_name(e.peer), text);
    case EventKind::kCommitted: return fmt::format("started the session: {}", counted(e.a, "rank"));
    case EventKind::kJoinFailed:
      return fmt::format("could not join the session: {}{}", to_string(e.code), after_colon(text));
    case EventKind::kRankLeft:
      return e.role == Role::kReducer ? fmt::format("saw {} leave the session", rank_name(e.peer))
                                      : "leaves the session";
    case EventKind::kAborted: return "aborted the session" + after_colon(text);
    case EventKind::kEnded: return end_text(e, text);
    case EventKind::kMoved: return "left the session to its other reducers" + after_colon(text);
    case EventKind::kConnectionRefused: return refusal_text(e, text);
    case EventKind::kConnectionLost:
      return fmt::format("lost {} to {} ({})", connection_name(e.a), peer(), reason_text(*entry.recorded));
    case EventKind::kConnectionResumed: return fmt::format("resumed {} to {}", connection_name(e.a), peer());
    case EventKind::kPeerSilent: return fmt::format("received nothing from {} for {} ms", peer(), e.a);
    case EventKind::kPeerHeard: return fmt::format("received a message from {} again", peer());
    case EventKind::kRankExcluded: return fmt::format("excluded {}{}", rank_name(e.peer), after_colon(text));
    case EventKind::kReducerLost: return fmt::format("lost {}{}", reducer(), after_colon(text));
    case EventKind::kReducerRemoved:
      return fmt::format("continues without {}{}", reducer(), after_colon(text));
    case EventKind::kReducerDraining: return drain_text(timeline, e);
    case EventKind::kReducerStopping: return "stops" + after_colon(text);
    case EventKind::kHeartbeatSent:
      return fmt::format("sent heartbeat {}", e.a) + (e.peer == blackbox::kNoPeer ? "" : " to " + peer());
    case EventKind::kHeartbeatReceived: return fmt::format("received heartbeat {} from {}", e.a, peer());
    case EventKind::kViewProposed: return fmt::format("proposed view {} ({})", e.a, text);
    case EventKind::kViewCommitted: return fmt::format("committed view {} from chunk {} on", e.a, e.b);
    case EventKind::kViewChanged:
      return fmt::format("continues in view {} with {}", e.a, counted(e.b, "reducer"));
    case EventKind::kStallEnded: return fmt::format("resumed after {} ms{}", e.a, after_colon(text));
    case EventKind::kLinkRateChanged:
      return fmt::format("changed the rate of its link from {} to {}", config::rate_text(e.b),
                         config::rate_text(e.a));
    case EventKind::kRankLate: return late_text(e);
    case EventKind::kRankOnTime: return fmt::format("no longer waits for {}", rank_name(e.peer));
    case EventKind::kOperationBegan: return "began " + operation_text(e);
    case EventKind::kOperationEnded:
      return "ended " + operation_text(e) +
             (e.code == Errc::kOk ? "" : fmt::format(" with {}", to_string(e.code)));
  }
  return "recorded an unknown event";
}

}  // namespace sluice::cli
