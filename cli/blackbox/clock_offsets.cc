#include "cli/blackbox/clock_offsets.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace sluice::cli {
namespace {

using blackbox::Event;
using blackbox::EventKind;
using blackbox::Role;

constexpr Nanos kUnbounded = std::numeric_limits<Nanos>::max() / 4;
// Clocks of one host differ by less, unless a process has a time namespace of its own.
constexpr Nanos kSameHost = kSecond;

// What must be added to the second clock so that it shows the time of the first: between `least` and `most`.
struct OffsetBounds {
  Nanos least = -kUnbounded;
  Nanos most = kUnbounded;
  [[nodiscard]] bool is_closed() const { return least > -kUnbounded && most < kUnbounded; }
};

// A message: session, rank, reducer, whether the rank sent it, and its number.
using Message = std::tuple<uint64_t, uint64_t, uint64_t, bool, uint64_t>;

struct Sighting {
  size_t process = 0;
  Nanos at = 0;
};

size_t find_clock(ClockOffsets& out, const RecordedProcess& p, std::map<std::string, size_t>& by_boot) {
  const Nanos to_wall = p.wall - p.monotonic;
  const auto known = by_boot.find(p.boot);
  if (!p.boot.empty() && known != by_boot.end() &&
      std::abs(out.clocks[known->second].to_wall - to_wall) < kSameHost)
    return known->second;
  out.clocks.push_back({.host = p.host, .to_wall = to_wall});
  if (!p.boot.empty()) by_boot.emplace(p.boot, out.clocks.size() - 1);
  return out.clocks.size() - 1;
}

// Heartbeats, which both ends record, and a reducer's heartbeat, which it records once for all ranks.
class Messages {
 public:
  explicit Messages(const std::map<uint64_t, uint64_t>& known_as) : known_as_(known_as) {}

  void add(size_t process, const Event& e) {
    const bool is_sent = e.kind == EventKind::kHeartbeatSent;
    if (!is_sent && e.kind != EventKind::kHeartbeatReceived) return;
    const Sighting sighting{.process = process, .at = e.at};
    if (e.role == Role::kRank) {
      (is_sent ? sent_ : received_)[{e.session, e.source, own_id(e.peer), is_sent, e.a}] = sighting;
    } else if (e.role == Role::kReducer && is_sent) {
      sent_to_all_[{e.session, e.source, e.a}] = sighting;
    } else if (e.role == Role::kReducer) {
      received_[{e.session, e.peer, e.source, true, e.a}] = sighting;
    }
  }

  // Calls visit(sent, received) for each message that was recorded twice.
  template <typename Visit>
  void for_each_pair(Visit visit) const {
    for (const auto& [message, received] : received_) {
      const auto& [session, rank, reducer, is_of_rank, number] = message;
      if (is_of_rank) {
        if (const auto sent = sent_.find(message); sent != sent_.end()) visit(sent->second, received);
      } else if (const auto sent = sent_to_all_.find({session, reducer, number});
                 sent != sent_to_all_.end()) {
        visit(sent->second, received);
      }
    }
  }

 private:
  [[nodiscard]] uint64_t own_id(uint64_t reducer) const {
    const auto found = known_as_.find(reducer);
    return found == known_as_.end() ? reducer : found->second;
  }

  const std::map<uint64_t, uint64_t>& known_as_;
  std::map<Message, Sighting> sent_;
  std::map<Message, Sighting> received_;
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, Sighting> sent_to_all_;
};

using BoundsOfPairs = std::map<std::pair<size_t, size_t>, OffsetBounds>;

// The bounds for each pair of clocks (i, j), i < j.
BoundsOfPairs find_bounds(const ClockOffsets& clocks, const Messages& messages) {
  BoundsOfPairs bounds;
  messages.for_each_pair([&](const Sighting& sent, const Sighting& received) {
    const size_t from = clocks.clock_of[sent.process];
    const size_t to = clocks.clock_of[received.process];
    if (from == to) return;
    const Nanos lead =
        clocks.wall_time(sent.process, sent.at) - clocks.wall_time(received.process, received.at);
    // The receiver's clock plus the correction is not before the sender's.
    if (from < to) {
      OffsetBounds& b = bounds[{from, to}];
      b.least = std::max(b.least, lead);
    } else {
      OffsetBounds& b = bounds[{to, from}];
      b.most = std::min(b.most, -lead);
    }
  });
  return bounds;
}

// Sets clock j from clock i, whose correction is known.
void set_clock(ClockOffsets& out, size_t i, size_t j, const OffsetBounds& b, bool is_reversed) {
  const Nanos least = is_reversed ? -b.most : b.least;
  const Nanos most = is_reversed ? -b.least : b.most;
  const HostClock& known = out.clocks[i];
  HostClock& clock = out.clocks[j];
  // With drifting clocks the bounds may cross.
  clock.uncertainty = std::abs(most - least) / 2 + known.uncertainty;
  const bool agrees = std::min(least, most) <= 0 && std::max(least, most) >= 0;
  clock.correction = known.correction + (agrees ? 0 : least + (most - least) / 2);
  clock.state = clock.correction == 0 ? HostClock::State::kAgrees : HostClock::State::kCorrected;
}

}  // namespace

ClockOffsets estimate_clocks(const std::vector<RecordedProcess>& processes,
                             const std::map<uint64_t, uint64_t>& known_as) {
  ClockOffsets out;
  std::map<std::string, size_t> by_boot;
  Messages messages(known_as);
  for (size_t i = 0; i < processes.size(); ++i) {
    out.clock_of.push_back(find_clock(out, processes[i], by_boot));
    for (const RecordedEvent& e : processes[i].events) messages.add(i, e.event);
  }
  if (out.clocks.empty()) return out;
  out.clocks.front().state = HostClock::State::kReference;
  const BoundsOfPairs bounds = find_bounds(out, messages);
  std::vector<size_t> known = {0};
  for (size_t next = 0; next < known.size(); ++next) {
    for (const auto& [pair, b] : bounds) {
      const auto [i, j] = pair;
      if (!b.is_closed() || (i != known[next] && j != known[next])) continue;
      const size_t other = i == known[next] ? j : i;
      if (std::ranges::find(known, other) != known.end()) continue;
      set_clock(out, known[next], other, b, i != known[next]);
      known.push_back(other);
    }
  }
  return out;
}

}  // namespace sluice::cli
