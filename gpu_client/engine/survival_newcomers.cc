// Reducers that come to a session that runs, and those that its list of reducers has no more.
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "core/clock.h"
#include "gpu_client/engine/seat_taking.h"
#include "gpu_client/engine/survival.h"
#include "gpu_client/engine/survival_post.h"
#include "gpu_client/engine/thread.h"

namespace sluice::engine {
namespace {

// For all connections to a reducer that came up. Ranks that have joined it contribute nothing until all have
// answered, so this is the most that one rank's trouble with it costs the others.
constexpr Nanos kJoinNewcomer = 5 * kSecond;
// The same once another reducer is lost: chunks wait for the change of views, and that for this.
constexpr Nanos kJoinInHurry = 500 * kMillisecond;
// Of the removals that a session can tell, so many are kept for reducers that it has.
constexpr size_t kSpareRemovals = 64;

}  // namespace

Nanos Survival::join_time() const noexcept {
  return std::min(options_.connect_timeout, kJoinNewcomer);
}

Result<void> Survival::set_reducers(std::optional<config::Pool> pool) {
  if (!watch_) return {};
  return pool ? watch_->set(std::move(*pool)) : watch_->reread();
}

void Survival::on_reducer_found(const config::Endpoint& address, Seat seat) {
  // std::function wants what it holds to be copyable.
  auto held = std::make_shared<Seat>(std::move(seat));
  post([this, address, held] { take_found(address, std::move(*held)); });
}

void Survival::on_unlisted(std::vector<uint64_t> reducers) {
  post([this, gone = std::move(reducers)] { drop_unlisted(gone); });
}

// The seat waits until the arbiter asks all ranks to take theirs.
void Survival::take_found(const config::Endpoint& address, Seat seat) {
  const uint64_t id = seat.id;
  const wire::Roster& roster = follower_.roster();
  // Whoever is taken up may be removed again, like those that are there now, and has to be told then.
  const size_t ever = roster.first().size() + roster.added().size();
  const size_t spare = std::min(ever - roster.removed().size(), kSpareRemovals);
  const bool full =
      std::max(roster.added().size(), roster.removed().size() + spare) >= wire::kMaxViewChange ||
      ever >= wire::kMaxReducers;
  if (full) return log_.warn(seat.name + " is not taken up: more have come to this session than it can name");
  if (!follower_.add(id, address)) return;
  seats_.insert_or_assign(id, std::move(seat));
  session_.keeper.send_all(kept_, follower_.known());
}

// All ranks do this at the same VIEW_QUERY.
void Survival::join(const ViewFollower::Newcomer& newcomer) {
  if (const auto seat = seats_.find(newcomer.id); seat != seats_.end()) {
    Seat taken = std::move(seat->second);
    seats_.erase(seat);
    if (!take_in(newcomer.id, taken)) cannot_join(newcomer.id, "no more of it can be kept");
    return;
  }
  const auto under_way = [&](const Joining& j) { return j.reducer == newcomer.id && !j.given_up; };
  if (std::ranges::none_of(joinings_, under_way)) start_joining(newcomer);
}

void Survival::start_joining(const ViewFollower::Newcomer& newcomer) {
  if (!newcomer.address) return cannot_join(newcomer.id, "nobody has told its address");
  Joining j;
  j.reducer = newcomer.id;
  j.deadline = monotonic_now() + join_time();
  j.interrupted = transport::tcp::Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const Until until(j.deadline, j.interrupted.fd());
  auto thread = start_thread("sluice-join", [this, newcomer, until] {
    const NewcomerTerms terms{.address = *newcomer.address,
                              .reducer = newcomer.id,
                              .incarnation = incarnation_,
                              .first = &first_view_,
                              .lanes = options_.lanes,
                              .join_timeout = options_.join_timeout};
    // Nothing may leave a thread inside somebody else's process.
    auto seat = std::make_shared<Result<Seat>>(fail(Errc::kExhausted, "out of memory"));
    try {
      *seat = engine::join_newcomer(terms, options_.who, until);
    } catch (const std::exception& e) {
      *seat = fail(Errc::kExhausted, e.what());
    }
    post([this, id = newcomer.id, seat] { on_joined(id, std::move(*seat)); });
  });
  if (!thread) return cannot_join(newcomer.id, thread.error().text);
  j.thread = std::move(*thread);
  joinings_.push_back(std::move(j));
}

void Survival::on_joined(uint64_t reducer, Result<Seat> seat) {
  const auto j = std::ranges::find(joinings_, reducer, &Joining::reducer);
  SLUICE_ASSERT(j != joinings_.end());
  j->thread.join();  // this was its last word
  const bool wanted = !j->given_up && !follower_.roster().removed(reducer);
  joinings_.erase(j);
  if (wanted && !seat) cannot_join(reducer, seat.error().text);
  if (wanted && seat && !take_in(reducer, *seat)) cannot_join(reducer, "no more of it can be kept");
  answer_query();
}

bool Survival::take_in(uint64_t reducer, Seat& seat) {
  const auto lanes = static_cast<uint32_t>(seat.lanes.size());
  if (!follower_.joined(reducer, static_cast<uint16_t>(lanes))) return false;
  auto peer = session_.keeper.add_peer(kept_, {.link = std::move(seat.control),
                                               .heartbeat = Nanos{seat.heartbeat_ms} * kMillisecond,
                                               .timeout = Nanos{seat.peer_timeout_ms} * kMillisecond});
  if (!peer) return false;
  Post& p = posts_.emplace_back();
  p.index = *peer;
  SLUICE_ASSERT(p.index + 1 == posts_.size());
  p.id = reducer;
  p.name = seat.name;
  if (stall_reason_.empty()) stall_reason_ = p.name + ": taken into the session";
  p.address = seat.address;
  p.handle = seat.handle;
  p.slots = seat.slots;
  p.lanes = lanes;
  p.waiting_lanes = std::move(seat.lanes);
  return on_driver([this, &p] {
    p.first_link = session_.exchange.link_count();
    for (uint32_t lane = 0; lane < p.lanes; ++lane)
      session_.exchange.add_link({.handle = p.handle, .slots = p.slots});
  });
}

void Survival::cannot_join(uint64_t reducer, const std::string& why) {
  log_.warn("a reducer that came up can't be used: " + why);
  if (watch_) tell_watch(watch_->gone(reducer));
  if (!follower_.suspect(reducer)) return;
  session_.keeper.send_all(kept_, wire::Suspect{.reducer = reducer, .code = Errc::kReducerLost});
}

void Survival::stop_joining(uint64_t reducer) {
  for (Joining& j : joinings_) {
    if (j.reducer == reducer && !std::exchange(j.given_up, true)) j.interrupt();
  }
}

void Survival::hurry_joins() {
  const Nanos most = monotonic_now() + kJoinInHurry;
  for (Joining& j : joinings_) j.deadline = std::min(j.deadline, most);
}

void Survival::end_late_joins() {
  const Nanos now = monotonic_now();
  bool ended = false;
  for (Joining& j : joinings_) {
    if (j.given_up || now < j.deadline) continue;
    j.given_up = ended = true;
    j.interrupt();
    cannot_join(j.reducer, "it did not let this rank join in time");
  }
  if (ended) answer_query();
}

// Together: the arbiter makes one change of them where it can. Never the last.
void Survival::drop_unlisted(const std::vector<uint64_t>& reducers) {
  const auto stays = [&](const Post& p) {
    return !p.lost && follower_.roster().living(p.id) && std::ranges::find(reducers, p.id) == reducers.end();
  };
  if (std::ranges::none_of(posts_, stays)) return;
  for (const uint64_t id : reducers) {
    Post* const p = post_of(id);
    if (p != nullptr && !p->lost) suspect(*p, Errc::kShutdown, "the list of reducers has it no more");
  }
}

}  // namespace sluice::engine
