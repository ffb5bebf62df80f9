#include "cli/blackbox/first_event.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/blackbox/event_text.h"
#include "wire/message_limits.h"

namespace sluice::cli {
namespace {

using blackbox::Event;
using blackbox::EventKind;
using blackbox::Role;
using Entry = Timeline::Entry;

// Between hosts whose clocks were not compared, the order of closer events is not known.
constexpr Nanos kAssumedAccuracy = 20 * kMillisecond;
// A stall of a process explains only what happens soon after it.
constexpr Nanos kStallRelevance = 15 * kSecond;
constexpr uint64_t kShortStallMs = 1000;

bool is_end_with_error(const Event& e) {
  if (e.kind == EventKind::kEnded) return e.code != Errc::kOk && e.code != Errc::kClosed;
  return e.kind == EventKind::kAborted || e.kind == EventKind::kJoinFailed;
}

// How directly an event names a cause, of those that happened at the same time. 0: no cause.
int strength(const Event& e) {
  switch (e.kind) {
    case EventKind::kSignal: return e.a == SIGTERM || e.a == SIGINT ? 6 : 0;
    case EventKind::kAborted: return e.code == Errc::kAborted ? 5 : 1;  // by the program, or without a way on
    case EventKind::kReducerStopping:
    case EventKind::kReducerDraining: return 5;
    case EventKind::kConnectionRefused:
    case EventKind::kRankExcluded: return 4;
    case EventKind::kConnectionLost: return is_bad_frame(e.code) ? 4 : 3;
    case EventKind::kReducerLost: return 2;
    case EventKind::kEnded:
    case EventKind::kJoinFailed: return is_end_with_error(e) ? 1 : 0;
    default: return 0;
  }
}

bool is_delay(const Event& e) {
  return e.kind == EventKind::kRankLate || e.kind == EventKind::kPeerSilent || e.kind == EventKind::kStalled;
}

// The session continues with other reducers.
bool is_move(const Event& e) {
  return e.kind == EventKind::kViewChanged || (e.kind == EventKind::kMoved && e.role == Role::kReducer);
}

bool is_repair(const Event& e) {
  return e.kind == EventKind::kConnectionResumed || e.kind == EventKind::kViewChanged ||
         e.kind == EventKind::kRankOnTime || e.kind == EventKind::kPeerHeard || e.kind == EventKind::kMoved;
}

class CauseFinder {
 public:
  CauseFinder(const Timeline& timeline, const std::optional<uint64_t>& session) : timeline_(timeline) {
    choose_session(session);
    for (const Entry& e : timeline_.entries()) {
      if (e.event().session != out_.session || !is_end_with_error(e.event())) continue;
      end_ = &e;
      break;
    }
    out_.has_failed = end_ != nullptr;
    if (end_ != nullptr) {
      out_.zero = end_->at;
    } else {
      for (size_t i = 0; i < timeline_.processes().size(); ++i)
        out_.zero = std::max(out_.zero, timeline_.written_at(i));
    }
  }

  FirstEvent find() {
    for (const Entry& e : timeline_.entries()) {
      if (e.at > out_.zero || e.event().session != out_.session || !is_repair(e.event())) continue;
      repairs_[{e.event().role, e.event().source}].push_back(&e);
      if (is_move(e.event())) last_move_ = e.at;
    }
    for (const Entry& e : timeline_.entries()) {
      if (e.at > out_.zero || !concerns_session(e)) continue;
      if (is_delay(e.event())) {
        if (is_relevant_delay(e) && !is_repaired(e)) delays_.push_back(&e);
      } else if (strength(e.event()) > 0) {
        (is_repaired(e) ? repaired_ : causes_).push_back(&e);
      }
    }
    out_.entry = choose();
    out_.sentence = "first: " + (out_.entry == nullptr ? nothing_text() : sentence(*out_.entry));
    return std::move(out_);
  }

 private:
  void choose_session(const std::optional<uint64_t>& session) {
    if (session) {
      out_.session = *session;
      return;
    }
    struct Candidate {
      bool has_failed = false;
      size_t files = 0;
      Nanos last = 0;
    };
    std::map<uint64_t, Candidate> candidates;
    for (const Entry& e : timeline_.entries()) {
      if (e.event().session == 0) continue;
      Candidate& c = candidates[e.event().session];
      c.has_failed |= is_end_with_error(e.event());
      c.last = std::max(c.last, e.at);
    }
    std::tuple<size_t, bool, Nanos> best{};
    for (auto& [id, c] : candidates) {
      for (size_t i = 0; i < timeline_.processes().size(); ++i)
        c.files += timeline_.takes_part(i, id) ? 1 : 0;
      const std::tuple<size_t, bool, Nanos> rank{c.files, c.has_failed, c.last};
      if (rank < best) continue;
      best = rank;
      out_.session = id;
    }
  }

  [[nodiscard]] bool concerns_session(const Entry& e) const {
    const uint64_t session = e.event().session;
    if (session != 0) return session == out_.session;
    return out_.session == 0 || timeline_.takes_part(e.process, out_.session);
  }

  [[nodiscard]] bool is_relevant_delay(const Entry& e) const {
    return e.event().kind != EventKind::kStalled ||
           (e.event().a >= kShortStallMs && out_.zero - e.at < kStallRelevance);
  }

  // True if `later`, of the same source, undoes `e`.
  [[nodiscard]] static bool repairs(const Event& later, const Event& e) {
    switch (e.kind) {
      case EventKind::kConnectionLost:
        // A reducer records a rank's connections together.
        if (later.kind == EventKind::kConnectionResumed && later.peer == e.peer)
          return e.role == Role::kReducer || later.a == e.a;
        return e.role == Role::kRank && later.kind == EventKind::kViewChanged;
      case EventKind::kReducerLost: return later.kind == EventKind::kViewChanged;
      case EventKind::kRankLate: return later.kind == EventKind::kRankOnTime && later.peer == e.peer;
      case EventKind::kPeerSilent:
        return (later.kind == EventKind::kPeerHeard || later.kind == EventKind::kConnectionResumed) &&
               later.peer == e.peer;
      default: return false;
    }
  }

  [[nodiscard]] bool is_repaired(const Entry& e) const {
    const EventKind kind = e.event().kind;
    if (kind == EventKind::kSignal || kind == EventKind::kReducerDraining ||
        kind == EventKind::kReducerStopping)
      return last_move_ > e.at;
    const auto found = repairs_.find({e.event().role, e.event().source});
    return found != repairs_.end() && std::ranges::any_of(found->second, [&](const Entry* later) {
             return later->at > e.at && repairs(later->event(), e.event());
           });
  }

  [[nodiscard]] Nanos uncertainty_between(const Entry& a, const Entry& b) const {
    const ClockOffsets& clocks = timeline_.clocks();
    const size_t i = clocks.clock_of[a.process];
    const size_t j = clocks.clock_of[b.process];
    if (i == j) return 0;
    const auto of = [&](size_t clock) {
      return clocks.clocks[clock].state == HostClock::State::kAssumed ? kAssumedAccuracy
                                                                      : clocks.clocks[clock].uncertainty;
    };
    return of(i) + of(j);
  }

  // The strongest of the entries that may have been first.
  [[nodiscard]] const Entry* first_of(const std::vector<const Entry*>& entries) const {
    if (entries.empty()) return nullptr;
    const Entry* best = entries.front();
    for (const Entry* e : entries) {
      if (e->at - entries.front()->at > uncertainty_between(*e, *entries.front())) continue;
      if (strength(e->event()) > strength(best->event())) best = e;
    }
    return best;
  }

  [[nodiscard]] const Entry* choose() const {
    const Entry* const cause = first_of(causes_);
    const bool has_timed_out =
        end_ != nullptr && (end_->event().code == Errc::kOpTimeout || end_->event().code == Errc::kTimeout);
    for (const Entry* delay : delays_) {
      if (cause != nullptr && delay->at > cause->at) break;
      if (has_timed_out || (cause != nullptr && explains(delay->event(), cause->event()))) return delay;
    }
    if (cause != nullptr) return cause;
    return first_of(repaired_);
  }

  // True if both concern one peer: it was late or silent, or is the reducer that did not run.
  [[nodiscard]] bool explains(const Event& delay, const Event& cause) const {
    if (cause.peer == blackbox::kNoPeer) return false;
    if (delay.kind != EventKind::kStalled) return delay.peer == cause.peer;
    return cause.role == Role::kRank && timeline_.own_id(cause.peer) == delay.source;
  }

  [[nodiscard]] std::string nothing_text() const {
    return fmt::format("nothing went wrong in these {} events", timeline_.entries().size());
  }

  [[nodiscard]] std::string sentence(const Entry& e) const {
    std::string text = timeline_.source_name(e) + " " + brief_text(e);
    const double seconds = 1e-9 * static_cast<double>(out_.zero - e.at);
    const char* const separator = text.ends_with(')') ? "" : ",";
    if (end_ == nullptr) {
      text += fmt::format("{} {:.3f} s before the last file was written", separator, seconds);
      if (is_repaired(e)) text += "; the session continued";
    } else if (&e != end_) {
      text += fmt::format("{} {:.3f} s before the session ended", separator, seconds);
    }
    return text + missing_file_text(e.event());
  }

  // Which connection it was says nothing to most readers.
  [[nodiscard]] std::string brief_text(const Entry& e) const {
    if (e.event().kind != EventKind::kConnectionLost) return event_text(timeline_, e);
    const bool is_reducer = e.event().role == Role::kReducer;
    const std::string peer =
        is_reducer ? fmt::format("rank {}", e.event().peer) : timeline_.reducer_name(e.event().peer);
    return fmt::format("lost its connection to {} ({})", peer, reason_text(*e.recorded));
  }

  // A process that was killed writes no file.
  [[nodiscard]] std::string missing_file_text(const Event& e) const {
    if (e.peer == blackbox::kNoPeer) return {};
    if (e.kind == EventKind::kReducerLost ||
        (e.kind == EventKind::kConnectionLost && e.role == Role::kRank) ||
        (e.kind == EventKind::kPeerSilent && e.role == Role::kRank))
      return timeline_.has_reducer(e.peer) ? "" : "; there is no file of " + timeline_.reducer_name(e.peer);
    const bool names_rank = e.kind == EventKind::kConnectionLost || e.kind == EventKind::kPeerSilent ||
                            e.kind == EventKind::kRankLate || e.kind == EventKind::kEnded;
    if (!names_rank || e.peer >= wire::kNoRank || timeline_.has_rank(e.session, e.peer)) return {};
    return fmt::format("; there is no file of rank {}", e.peer);
  }

  const Timeline& timeline_;
  FirstEvent out_;
  const Entry* end_ = nullptr;
  std::map<std::pair<Role, uint64_t>, std::vector<const Entry*>> repairs_;  // by source
  Nanos last_move_ = std::numeric_limits<Nanos>::min();  // of the session to other reducers
  std::vector<const Entry*> causes_;
  std::vector<const Entry*> delays_;
  std::vector<const Entry*> repaired_;
};

}  // namespace

FirstEvent find_first_event(const Timeline& timeline, const std::optional<uint64_t>& session) {
  return CauseFinder(timeline, session).find();
}

}  // namespace sluice::cli
