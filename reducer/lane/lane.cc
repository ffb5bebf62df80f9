#include "reducer/lane/lane.h"

#include <algorithm>

#include "core/clock.h"

namespace sluice::reducer {

Lane::Lane(std::unique_ptr<transport::Context> context, Adopt adopt, const LaneOptions& options)
    : options_(options),
      context_(std::move(context)),
      adopt_(std::move(adopt)),
      commands_(options.ring_capacity),
      events_(options.ring_capacity) {}

unsigned Lane::do_work(Nanos now) noexcept {
  if (was_busy_) counters_.busy_ns.add(static_cast<uint64_t>(now - now_));
  now_ = now;
  if (options_.fair != nullptr) options_.fair->update(now);
  for (LaneSession* s : sessions_) s->set_now(now);
  unsigned work = process_commands();
  work += context_->poll(now, options_.receive_budget);
  work += attach_pending();
  work += fold();
  if (now >= next_tick_) {
    next_tick_ = now + kTick;
    for (LaneSession* s : sessions_) s->tick(options_.frame_timeout);
  }
  report_events();
  counters_.turns.add(1);
  was_busy_ = work != 0;
  if (was_busy_) {
    counters_.busy_turns.add(1);
    busy_at_ = now;
  }
  return work;
}

transport::EndpointOptions Lane::endpoint_options(const SessionPlan& plan) const noexcept {
  // At most RESUME_ACK, W results and one ABORT are queued.
  return {
      .send_queue = plan.slots + 2, .max_payload = plan.slot_bytes, .frame_deadline = options_.frame_timeout};
}

void Lane::add_session(LaneSession& session) {
  if (std::ranges::find(sessions_, &session) != sessions_.end()) return;
  sessions_.push_back(&session);
  ready_.reserve(sessions_.capacity());
  session.set_counters(counters_);
  session.set_now(now_);
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
  for (LaneSession* s : sessions_) {
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
    const auto next = std::ranges::min_element(ready_, {}, &LaneSession::virtual_time);
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
  for (LaneSession* s : sessions_) {
    if (!s->has_folds()) {
      s->stop_folding();
    } else if (s->update_held()) {
      has_held_session_ = true;
    } else {
      s->begin_folds(virtual_time_);
      ready_.push_back(s);
    }
  }
}

void Lane::report_events() noexcept {
  bool has_events = false;
  for (size_t i = 0; i < sessions_.size();) {
    LaneSession* const s = sessions_[i];
    if (s->has_events()) {
      has_events = true;
      if (s->report_events(events_)) {  // released: the control loop may free it from now on
        sessions_[i] = sessions_.back();
        sessions_.pop_back();
        continue;
      }
    }
    ++i;
  }
  if (has_events && notify_) notify_();
}

}  // namespace sluice::reducer
