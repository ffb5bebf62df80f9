#include "gpu_client/engine/join.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/ballot.h"
#include "gpu_client/engine/seat_taking.h"
#include "gpu_client/engine/session_log.h"

namespace sluice::engine {
namespace {

// Well below the handshake deadline of a reducer (docs/timeouts.md).
constexpr Nanos kGreetingKeeps = 1500 * kMillisecond;

class Joining {
 public:
  explicit Joining(const JoinOptions& options) : options_(options), who_(options.who) {}

  Result<Membership> run() {
    auto done = greet_all();
    if (done) done = settle_view();
    if (done) done = join_all();
    if (done) done = attach_all();
    if (done) say_transport();
    if (done) done = vote();
    if (!done) return tl::unexpected(give_up(std::move(done.error())));
    return std::move(membership_);
  }

 private:
  Result<void> greet_all();
  Result<void> check_distinct(const Greeting& g) const;
  [[nodiscard]] bool all_survive() const noexcept;
  // What every rank comes to by itself when none was asked for.
  [[nodiscard]] uint32_t default_slot_bytes() const noexcept;
  Result<void> settle_view();
  Result<void> join_all();
  Result<Seat> join_one(size_t i);
  Result<void> attach_all();
  Result<void> attach_lane(size_t i, uint32_t lane);
  void say_transport() const;
  Result<void> vote();
  Error give_up(Error why);

  const JoinOptions& options_;
  Identity who_;
  std::vector<Greeting> greetings_;  // by place in the view; their sockets move into the seats
  Nanos join_deadline_ = 0;
  bool voted_ = false;
  size_t paired_ = 0;    // lane connections over RDMA
  std::string no_pair_;  // why the first of the others is not
  Membership membership_;
};

Result<void> Joining::check_distinct(const Greeting& g) const {
  for (const Greeting& other : greetings_) {
    if (other.welcome.reducer == g.welcome.reducer) {
      return fail(Errc::kInvalidArgument,
                  g.name + ": is the same process as " + other.name + "; list each reducer once");
    }
  }
  return {};
}

bool Joining::all_survive() const noexcept {
  return std::all_of(greetings_.begin(), greetings_.end(), [](const Greeting& g) {
    return (g.welcome.features & wire::kFeaturesSurvive) == wire::kFeaturesSurvive;
  });
}

Result<void> Joining::greet_all() {
  const Nanos deadline = monotonic_now() + options_.connect_timeout;
  for (;;) {
    const Nanos began = monotonic_now();
    greetings_.clear();
    for (const config::Endpoint& reducer : options_.reducers) {
      auto g = greet(reducer, who_, wire::Purpose::kControl, 0, 0, deadline);
      if (!g) return tl::unexpected(g.error());
      if (auto checked = check_offer(*g, options_.slot_bytes); !checked) return checked;
      if (auto checked = check_distinct(*g); !checked) return checked;
      greetings_.push_back(std::move(*g));
    }
    if (who_.survives && !all_survive()) {
      // Those that can must not take it that the session does: what they were told in HELLO is taken back.
      // The other ranks come to the same, from the same answers.
      who_.survives = false;
      continue;
    }
    // A reducer does not wait long for what follows WELCOME. When one of them came up late the greetings of
    // the others are stale.
    const Nanos now = monotonic_now();
    if (now - began < kGreetingKeeps || now - began >= deadline - now) return {};
  }
}

uint32_t Joining::default_slot_bytes() const noexcept {
  uint32_t lane_connections = 0;
  for (const wire::ViewReducer& r : membership_.view.reducers) lane_connections += r.lanes;
  uint32_t bytes = std::min(wire::slot_bytes_for(who_.ranks, lane_connections), options_.window_bytes);
  for (const Greeting& g : greetings_) bytes = std::min(bytes, g.welcome.max_slot_bytes);
  return static_cast<uint32_t>(bytes / kCacheLine * kCacheLine);
}

Result<void> Joining::settle_view() {
  wire::View& view = membership_.view;
  view.window_bytes = options_.window_bytes;
  uint64_t weights = 0;
  uint64_t most_lanes = 0;
  for (size_t i = 0; i < greetings_.size(); ++i) {
    const uint16_t lanes = lanes_of(options_.lanes, greetings_[i].welcome.lanes);
    view.reducers.push_back({.id = greetings_[i].welcome.reducer,
                             .lanes = lanes,
                             .weight = options_.reducers[i].weight,
                             .alive = true});
    weights += options_.reducers[i].weight;
    most_lanes = std::max<uint64_t>(most_lanes, lanes);
  }
  view.slot_bytes = options_.slot_bytes != 0 ? options_.slot_bytes : default_slot_bytes();
  for (const wire::ViewReducer& r : view.reducers) {
    const uint32_t slots = wire::slots_per_lane(view.window_bytes, view.slot_bytes, r.lanes);
    if (slots > wire::kMaxSlots) {
      return fail(Errc::kInvalidArgument, "window_bytes / slot_bytes gives " + std::to_string(slots) +
                                              " slots on a lane connection, at most " +
                                              std::to_string(wire::kMaxSlots) + " are possible");
    }
  }
  if (weights * most_lanes > wire::kMaxPlacement) {
    return fail(Errc::kInvalidArgument, "weights of the reducers sum up to " + std::to_string(weights) +
                                            " with " + std::to_string(most_lanes) + " lanes each: at most " +
                                            std::to_string(wire::kMaxPlacement) +
                                            " turns are possible; use smaller weights");
  }
  membership_.view_hash = wire::view_hash(view);
  membership_.survives = who_.survives;
  return {};
}

Result<Seat> Joining::join_one(size_t i) {
  const wire::View& view = membership_.view;
  wire::Join join;
  join.view_hash = membership_.view_hash;
  join.window_bytes = view.window_bytes;
  join.slot_bytes = view.slot_bytes;
  join.lanes = view.reducers[i].lanes;
  join.reducer_index = static_cast<uint16_t>(i);
  join.join_timeout_ms = static_cast<uint32_t>(options_.join_timeout / kMillisecond);
  for (const wire::ViewReducer& r : view.reducers) join.reducers.push_back(r.id);
  return take_seat(greetings_[i], options_.reducers[i], who_, std::move(join),
                   std::min(join_deadline_, monotonic_now() + options_.connect_timeout));
}

Result<void> Joining::join_all() {
  join_deadline_ = monotonic_now() + options_.join_timeout;
  // The arbiter first: it is the one that can tell the others when a later reducer refuses.
  for (size_t i = 0; i < greetings_.size(); ++i) {
    auto seat = join_one(i);
    if (!seat) {
      // A rank that the arbiter has refused leaves the others too, which then call it lost; the reason came
      // before.
      if (auto words = unasked_words(membership_.seats); !words) return words;
      return tl::unexpected(seat.error());
    }
    membership_.seats.push_back(std::move(*seat));
  }
  return {};
}

Result<void> Joining::attach_lane(size_t i, uint32_t lane) {
  Seat& seat = membership_.seats[i];
  const Nanos deadline = std::min(join_deadline_, monotonic_now() + options_.connect_timeout);
  auto g = greet(options_.reducers[i], who_, wire::Purpose::kLane, lane, 0, deadline);
  if (!g) return tl::unexpected(g.error());
  const wire::View& view = membership_.view;
  seat.slots = wire::slots_per_lane(view.window_bytes, view.slot_bytes, view.reducers[i].lanes);
  auto attached = attach(
      *g, who_,
      {.reducer = seat.id, .handle = seat.handle, .view_hash = membership_.view_hash, .slots = seat.slots},
      deadline);
  if (!attached) return attached;
  if (g->socket.accompanied()) ++paired_;
  if (no_pair_.empty() && !g->no_pair.empty())
    no_pair_ = (who_.lanes.rdma ? g->name + ": " : "") + g->no_pair;
  seat.lanes.push_back(std::move(g->socket));
  return {};
}

// Nothing where nothing but TCP was asked for; that this machine has no devices one rank says.
void Joining::say_transport() const {
  size_t all = 0;
  for (const Seat& seat : membership_.seats) all += seat.lanes.size();
  if ((paired_ == 0 && no_pair_.empty()) || (!who_.lanes.rdma && who_.rank != 0)) return;
  const std::string way =
      paired_ == all ? "RDMA"
      : paired_ == 0 ? "TCP"
                     : "RDMA, " + std::to_string(all - paired_) + " of " + std::to_string(all) + " over TCP";
  SessionLog(who_.session, who_.rank).info("lanes over " + way + (no_pair_.empty() ? "" : ": " + no_pair_));
}

Result<void> Joining::attach_all() {
  for (size_t i = 0; i < membership_.seats.size(); ++i) {
    for (uint32_t lane = 0; lane < membership_.view.reducers[i].lanes; ++lane) {
      auto attached = attach_lane(i, lane);
      if (attached) continue;
      // A session that was ended by another rank's refusal shows here as one that is unknown: as above.
      if (auto words = unasked_words(membership_.seats); !words) return words;
      return attached;
    }
  }
  return {};
}

Result<void> Joining::vote() {
  wire::Vote vote;
  vote.yes = 1;
  vote.reason.code = Errc::kOk;
  voted_ = true;
  if (!membership_.seats[0].control.send(vote).ok()) {
    // The reason of a broken connection may wait there to be read.
    if (auto words = unasked_words(membership_.seats); !words) return words;
  }
  auto incarnation =
      await_verdict(membership_.seats, options_.reducers[0], who_, join_deadline_ + kVerdictGrace);
  if (!incarnation) return tl::unexpected(incarnation.error());
  membership_.incarnation = *incarnation;
  wire::Commit commit;
  commit.incarnation = *incarnation;
  for (Seat& seat : membership_.seats) {
    if (!seat.control.send(commit).ok())
      return fail(Errc::kReducerLost, seat.name + ": the control connection broke at commit");
  }
  return {};
}

Error Joining::give_up(Error why) {
  if (membership_.seats.empty()) return why;
  if (voted_) {
    abort_all(membership_.seats, who_.rank, why);
  } else {
    vote_no(membership_.seats[0], who_.rank, why);
  }
  return why;
}

}  // namespace

Result<Membership> join_session(const JoinOptions& options) {
  return Joining(options).run();
}

}  // namespace sluice::engine
