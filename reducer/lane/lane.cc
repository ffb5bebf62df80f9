#include "reducer/lane/lane.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace sluice::reducer {

Lane::Lane(std::unique_ptr<transport::Context> context, Adopt adopt, const LaneOptions& options)
    : options_(options),
      context_(std::move(context)),
      adopt_(std::move(adopt)),
      commands_(options.ring_capacity),
      events_(options.ring_capacity) {}

unsigned Lane::do_work(Nanos now) noexcept {
  if (was_busy_) counters_.busy_ns.add(static_cast<uint64_t>(now - work_.now));
  work_.now = now;
  if (options_.fair != nullptr) options_.fair->update(now);
  unsigned work = process_commands();
  work += context_->poll(now, options_.receive_budget);
  work += attach_pending();
  work += fold();
  tick_sessions();
  report_events();
  counters_.turns.add(1);
  was_busy_ = work != 0;
  if (was_busy_) {
    counters_.busy_turns.add(1);
    busy_at_ = now;
  }
  return work;
}

void Lane::tick_sessions() noexcept {
  if (work_.now >= next_tick_ && next_ticked_ >= sessions_.size()) {
    next_tick_ = work_.now + kTick;
    next_ticked_ = 0;
  }
  const size_t end = std::min(sessions_.size(), next_ticked_ + kSeenPerTurn);
  for (size_t ticked = 0; next_ticked_ < end && ticked < kTickedPerTurn; ++next_ticked_) {
    if (work_.tick_due[next_ticked_] > work_.now) continue;
    sessions_[next_ticked_]->tick(options_.frame_timeout);
    ++ticked;
  }
}

transport::EndpointOptions Lane::endpoint_options(const SessionPlan& plan) const noexcept {
  // At most RESUME_ACK, W results and one ABORT are queued.
  return {
      .send_queue = plan.slots + 2, .max_payload = plan.slot_bytes, .frame_deadline = options_.frame_timeout};
}

void Lane::add_session(LaneSession& session) {
  if (session.is_in_lane()) return;
  sessions_.push_back(&session);
  work_.tick_due.push_back(0);
  for (auto* list : {&ready_, &work_.folds, &work_.events}) list->reserve(sessions_.capacity());
  session.enter(work_, counters_, sessions_.size() - 1);
}

// The session that takes its place may miss the present pass of tick_sessions().
void Lane::remove_session(size_t place) noexcept {
  std::erase(work_.folds, sessions_[place]);
  if (place + 1 != sessions_.size()) {
    sessions_[place] = sessions_.back();
    sessions_[place]->move_to(place);
    work_.tick_due[place] = work_.tick_due.back();
  }
  sessions_.pop_back();
  work_.tick_due.pop_back();
}

void Lane::attach(LaneSession& session, Rank rank, transport::Endpoint& ep) {
  add_session(session);
  session.attach(rank, ep);
}

bool Lane::command(LaneCommand command) noexcept {
  if (!commands_.try_push(command)) return false;
  context_->wake();
  return true;
}

unsigned Lane::process_commands() noexcept {
  unsigned done = 0;
  for (LaneCommand c; done < 64 && commands_.try_pop(c); ++done) execute(c);
  return done;
}

void Lane::execute(const LaneCommand& c) noexcept {
  LaneSession& session = *c.session;
  add_session(session);
  session.leave_idle();
  switch (c.kind) {
    case LaneCommand::Kind::kAttach: {
      transport::tcp::Socket socket(c.socket);
      if (!session.replace(c.rank, socket)) adopt(session, c.rank, std::move(socket));
      break;
    }
    case LaneCommand::Kind::kRankLeft: session.rank_left(c.rank); break;
    case LaneCommand::Kind::kCloseRank: session.close_rank(c.rank); break;
    case LaneCommand::Kind::kEnd: session.end(); break;
    case LaneCommand::Kind::kNone: break;
  }
}

void Lane::adopt(LaneSession& session, Rank rank, transport::tcp::Socket socket) noexcept {
  auto ep = adopt_(std::move(socket), session.connection(rank), endpoint_options(session.plan()));
  if (ep) {
    session.attach(rank, **ep);
  } else {
    session.attach_failed(rank);
  }
}

// Runs after the poll, because no endpoint may be created within one.
unsigned Lane::attach_pending() noexcept {
  unsigned done = 0;
  for (LaneSession* s : work_.events) {
    for (; s->has_pending_connection(); ++done) {
      auto [rank, socket] = s->take_pending_connection();
      adopt(*s, rank, std::move(socket));
    }
  }
  return done;
}

// Folds the session with the least virtual time first. With several sessions, each gets one slice at a time,
// so that a small fold does not wait for a large one.
unsigned Lane::fold() noexcept {
  size_t left = options_.fold_budget;
  collect_ready();
  if (ready_.empty()) return 0;
  const Nanos began = monotonic_now();
  while (left > 0 && !ready_.empty()) {
    const auto next = std::ranges::min_element(
        ready_, {}, [](const LaneSession* s) { return std::pair(s->virtual_time(), s->place()); });
    LaneSession& s = **next;
    virtual_time_ = s.virtual_time();
    left -= std::min(left, s.fold(sessions_.size() == 1 ? left : std::min(left, kFoldSlice)));
    if (s.has_folds() && !s.update_held()) continue;
    has_held_session_ |= s.has_folds();
    ready_.erase(next);
  }
  counters_.fold_ns.add(static_cast<uint64_t>(monotonic_now() - began));
  return left == options_.fold_budget ? 0 : 1;
}

// Called once per turn: folding makes no other session ready.
void Lane::collect_ready() noexcept {
  ready_.clear();
  has_held_session_ = false;
  std::erase_if(work_.folds, [this](LaneSession* s) {
    if (!s->has_tasks()) {
      s->left_folds();
      return true;
    }
    if (!s->has_folds()) {
      s->stop_folding();
    } else if (s->update_held()) {
      has_held_session_ = true;
    } else {
      s->begin_folds(virtual_time_);
      ready_.push_back(s);
    }
    return false;
  });
}

void Lane::report_events() noexcept {
  if (work_.events.empty()) return;
  std::erase_if(work_.events, [this](LaneSession* s) {
    const size_t place = s->place();
    if (!s->report_events(events_)) return !s->has_events();
    remove_session(place);  // released: the control loop may have freed it
    return true;
  });
  if (notify_) notify_();
}

}  // namespace sluice::reducer
