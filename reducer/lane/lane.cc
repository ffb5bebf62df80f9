#include "reducer/lane/lane.h"

#include <algorithm>

#include "core/assert.h"
#include "core/clock.h"

namespace sluice::reducer {

Lane::Lane(std::unique_ptr<transport::Context> context, Adopt adopt, const LaneOptions& options)
    : options_(options),
      context_(std::move(context)),
      adopt_(std::move(adopt)),
      commands_(options.ring_capacity),
      events_(options.ring_capacity) {}

unsigned Lane::do_work(Nanos now) noexcept {
  if (busy_) counters_.busy_ns.add(static_cast<uint64_t>(now - now_));
  now_ = now;
  if (options_.fair != nullptr) options_.fair->turn(now);
  for (LaneSession* s : sessions_) s->set_now(now);
  unsigned work = obey();
  work += context_->poll(now, options_.receive_budget);
  work += take_over();
  work += fold();
  if (now >= next_tick_) {
    next_tick_ = now + kTick;
    for (LaneSession* s : sessions_) s->tick(options_.frame_timeout);
  }
  report();
  counters_.turns.add(1);
  busy_ = work != 0;
  if (busy_) counters_.busy_turns.add(1);
  return work;
}

transport::EndpointOptions Lane::endpoint_options(const SessionPlan& plan) const noexcept {
  // RESUME_ACK, W results and one ABORT: what may be queued at most.
  return {
      .send_queue = plan.slots + 2, .max_payload = plan.slot_bytes, .frame_deadline = options_.frame_timeout};
}

void Lane::enter(LaneSession& session) {
  if (std::ranges::find(sessions_, &session) != sessions_.end()) return;
  sessions_.push_back(&session);
  ready_.reserve(sessions_.capacity());
  session.enter(counters_);
  session.set_now(now_);
}

void Lane::attach(LaneSession& session, Rank rank, transport::Endpoint& ep) {
  enter(session);
  session.attach(rank, ep);
}

bool Lane::command(LaneCommand command) noexcept {
  if (!commands_.try_push(command)) return false;
  context_->wake();
  return true;
}

unsigned Lane::obey() noexcept {
  unsigned done = 0;
  for (LaneCommand c; done < 64 && commands_.try_pop(c); ++done) carry_out(c);
  return done;
}

void Lane::carry_out(const LaneCommand& c) noexcept {
  LaneSession& session = *c.session;
  enter(session);
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
  auto ep = adopt_(std::move(socket), session.link(rank), endpoint_options(session.plan()));
  if (ep) {
    session.attach(rank, **ep);
  } else {
    session.never_attached(rank);
  }
}

// After a poll: connections may not be made within one.
unsigned Lane::take_over() noexcept {
  unsigned done = 0;
  for (LaneSession* s : sessions_) {
    for (; auto next = s->next_takeover(); ++done) adopt(*s, next->rank, std::move(next->socket));
  }
  return done;
}

// The session that has had least for its weight comes first, and each only a piece at a time where there are
// several: little that is to be summed does not wait for much.
unsigned Lane::fold() noexcept {
  size_t left = options_.fold_budget;
  find_ready();
  if (ready_.empty()) return 0;
  const Nanos began = monotonic_now();
  while (left > 0 && !ready_.empty()) {
    const auto next = std::ranges::min_element(ready_, {}, &LaneSession::fold_time);
    LaneSession& s = **next;
    fold_time_ = s.fold_time();
    left -= std::min(left, s.fold(sessions_.size() == 1 ? left : std::min(left, kFoldPiece)));
    if (s.has_folds() && s.may_fold()) continue;
    holds_ |= s.has_folds();
    ready_.erase(next);
  }
  counters_.fold_ns.add(static_cast<uint64_t>(monotonic_now() - began));
  return left == options_.fold_budget ? 0 : 1;
}

// Nothing becomes ready within a turn's folds.
void Lane::find_ready() noexcept {
  ready_.clear();
  holds_ = false;
  for (LaneSession* s : sessions_) {
    if (!s->has_folds()) {
      s->rest_folding();
    } else if (!s->may_fold()) {
      holds_ = true;
    } else {
      s->begin_folding(fold_time_);
      ready_.push_back(s);
    }
  }
}

void Lane::report() noexcept {
  bool rang = false;
  for (size_t i = 0; i < sessions_.size();) {
    LaneSession* const s = sessions_[i];
    if (s->report_due()) {
      rang = true;
      if (s->report(events_)) {  // released: the conductor may free it from here on
        sessions_[i] = sessions_.back();
        sessions_.pop_back();
        continue;
      }
    }
    ++i;
  }
  if (rang && bell_) bell_();
}

}  // namespace sluice::reducer
