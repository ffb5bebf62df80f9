#include "gpu_client/engine/survival.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/survival_post.h"
#include "gpu_client/engine/thread.h"

namespace sluice::engine {
namespace {

// How often the exchange is asked whether it is quiet: its transport lets go of what it has within a turn or
// two, unless a connection is stuck.
constexpr Nanos kAskAgain = kMillisecond;

}  // namespace

Survival::Survival(const JoinOptions& options, const Membership& membership, Session session,
                   Listener& listener)
    : options_(options),
      log_(options.who.session, options.who.rank),
      incarnation_(membership.incarnation),
      first_view_(membership.view),
      view_hash_(membership.view_hash),
      session_(session),
      listener_(listener),
      follower_(membership.view) {
  uint32_t link = 0;
  for (const Seat& seat : membership.seats) {
    const auto lanes = static_cast<uint32_t>(seat.lanes.size());
    Post& p = posts_.emplace_back();
    p.index = posts_.size() - 1;
    p.id = seat.id;
    p.name = seat.name;
    p.address = seat.address;
    p.handle = seat.handle;
    p.slots = seat.slots;
    p.first_link = link;
    p.lanes = lanes;
    link += lanes;
  }
  if (options_.who.rank != 0) return;
  watch_ = std::make_unique<PoolWatch>(PoolWatchOptions{.reducers = options_.reducers,
                                                        .file = options_.pool_file,
                                                        .who = options_.who,
                                                        .incarnation = incarnation_,
                                                        .first_view = first_view_,
                                                        .lanes = options_.lanes,
                                                        .join_timeout = options_.join_timeout,
                                                        .seat_timeout = join_time()},
                                       static_cast<PoolWatch::Listener&>(*this));
}

Survival::~Survival() {
  stop();
}

void Survival::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (watch_) watch_->stop();
  for (Joining& j : joinings_) {
    j.interrupt();
    j.thread.join();
  }
  joinings_.clear();
  for (Post& p : posts_) p.mender.reset();
  events_.clear();
}

void Survival::begin(uint64_t kept) {
  kept_ = kept;
  {
    const std::lock_guard lock(mutex_);
    begun_ = true;
    start_if_due();
  }
  if (watch_) tell_watch(watch_->begin());
}

void Survival::post(std::function<void()> event) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    events_.push_back(std::move(event));
    start_if_due();
  }
  changed_.notify_all();
}

// The first event starts the thread. Where the system has none, the session ends as if it could not survive.
void Survival::start_if_due() {
  if (!begun_ || stopping_ || events_.empty() || thread_.joinable()) return;
  auto thread = start_thread("sluice-survival", [this] { run(); });
  if (thread) {
    thread_ = std::move(*thread);
  } else {
    stopping_ = true;
    listener_.on_no_thread(thread.error());
  }
}

void Survival::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (events_.empty()) {
      const auto woken = [this] { return stopping_ || !events_.empty(); };
      Nanos until = 3600 * kSecond;
      for (const Joining& j : joinings_) {
        if (!j.given_up) until = std::min(until, std::max(j.deadline - monotonic_now(), Nanos{0}));
      }
      if (restart_due_) until = std::min(until, kAskAgain);
      changed_.wait_for(lock, std::chrono::nanoseconds(until), woken);
    }
    std::function<void()> event;
    if (!events_.empty() && !stopping_) {
      event = std::move(events_.front());
      events_.pop_front();
    }
    lock.unlock();
    try {
      if (event && !given_up_) event();
      if (restart_due_ && !given_up_) try_restart();
      end_late_joins();
    } catch (const std::exception& e) {
      give_up({Errc::kExhausted, std::string("out of memory while surviving a loss: ") + e.what()});
    }
    lock.lock();
  }
}

void Survival::link_lost(uint32_t link, Errc reason, uint64_t frames, const char* words) {
  post([this, link, reason, frames, text = std::string(words)] { on_link_lost(link, reason, frames, text); });
}

void Survival::link_resumed(uint32_t link) {
  post([this, link] {
    resumed_.fetch_add(1, std::memory_order_relaxed);
    for (Post& p : posts_) {
      if (p.has(link)) p.broken_lanes &= ~(uint64_t{1} << (link - p.first_link));
    }
    if (mended()) end_stall("connections resumed");
  });
}

void Survival::peer_gone(size_t peer, Errc code, std::string text) {
  post([this, peer, code, words = std::move(text)] { on_peer_gone(peer, code, words); });
}

void Survival::view_query(size_t peer, wire::ViewQuery query) {
  post([this, peer, q = std::move(query)] { on_query(peer, q); });
}

void Survival::view_commit(size_t peer, const wire::ViewCommit& commit) {
  post([this, peer, commit] { on_commit(peer, commit); });
}

void Survival::drain_notice(size_t peer, const wire::DrainNotice& /*notice*/) {
  post([this, peer] { on_drain_notice(posts_[peer]); });
}

void Survival::on_link_lost(uint32_t link, Errc reason, uint64_t frames, const std::string& words) {
  const auto found = std::ranges::find_if(posts_, [link](const Post& p) { return p.has(link); });
  if (found == posts_.end() || found->lost) return;
  Post& p = *found;
  begin_stall();
  if (stall_reason_.empty()) {
    stall_reason_ = p.name + " lane " + std::to_string(link - p.first_link) +
                    (reason == Errc::kClosed  ? ": closed by the reducer"
                     : reason == Errc::kReset ? ": the connection broke"
                                              : ": " + std::string(to_string(reason)));
  }
  if (is_bad_frame(reason)) {
    p.bad_frames = frames >= kGoodFrames ? 1 : p.bad_frames + 1;
    log_.warn(p.name + " lane " + std::to_string(link - p.first_link) +
              ": connection given up for a bad frame (" + std::string(to_string(reason)) +
              (words.empty() ? "" : ": " + words) + ")");
    if (p.bad_frames >= kMaxBadFrames) return suspect(p, reason, "one bad frame after the other");
  }
  if (frames > 1 && p.mender) p.mender->proven(link - p.first_link);
  mend(p, false, uint64_t{1} << (link - p.first_link));
}

void Survival::on_peer_gone(size_t peer, Errc code, const std::string& text) {
  if (posts_[peer].lost) return;
  begin_stall();
  if (stall_reason_.empty()) stall_reason_ = text;
  // Silence is a connection that stands: another one would be as silent.
  if (code == Errc::kTimeout) return suspect(posts_[peer], Errc::kReducerLost, text);
  mend(posts_[peer], true, 0);
}

// It serves as before until all ranks have changed views: the others decide, since of two that drain at the
// same time one may have to stay.
void Survival::on_drain_notice(Post& p) {
  if (p.lost || std::exchange(p.draining, true)) return;
  log_.warn(p.name + " leaves the session: it drains");
  stall_reason_ = p.name + ": it drains";
  ask_for_drains();
}

void Survival::ask_for_drains() {
  for (const Post& p : posts_) {
    if (p.lost || !p.draining) continue;
    for (const Post& other : posts_) {
      if (!other.lost && other.id != p.id)
        session_.keeper.send(kept_, other.index, wire::Suspect{.reducer = p.id, .code = Errc::kDraining});
    }
  }
}

void Survival::suspect(Post& p, Errc code, const std::string& why) {
  if (!follower_.suspect(p.id)) return;
  begin_stall();
  p.lost = true;
  if (code != Errc::kShutdown) reducers_lost_.fetch_add(1, std::memory_order_relaxed);
  const std::string named = p.name + ": ";  // what was seen of it may begin with its name
  const std::string reason = why.starts_with(named) ? why.substr(named.size()) : why;
  log_.warn(p.name + (code == Errc::kShutdown ? " leaves the session: " : " was lost: ") + reason);
  stall_reason_ = named + reason;
  if (auto end = follower_.hopeless())
    return give_up({end->code, p.name + " was lost: " + reason + "; " + end->text});
  session_.keeper.send_all(kept_, wire::Suspect{.reducer = p.id, .code = code});
  hurry_joins();
  if (watch_) tell_watch(watch_->gone(p.id));
}

void Survival::on_query(size_t peer, const wire::ViewQuery& query) {
  using Step = ViewFollower::Query::Step;
  const ViewFollower::Query q = follower_.on_query(posts_[peer].id, query);
  switch (q.step) {
    case Step::kNothing: return;
    case Step::kBreach: return give_up(q.breach);
    case Step::kTell: return session_.keeper.send_all(kept_, follower_.known());
    case Step::kTakeUp:
    case Step::kAnswer: break;
  }
  if (q.step == Step::kTakeUp) restart_due_ = false;
  for (const uint64_t id : q.close) {
    if (Post* const p = post_of(id); p != nullptr) {
      if (stall_reason_.empty()) stall_reason_ = p->name + ": another rank lost it";
      let_go(*p);
    } else {
      seats_.erase(id);
      stop_joining(id);
      if (watch_) tell_watch(watch_->gone(id));
    }
  }
  asked_by_ = peer;
  for (const ViewFollower::Newcomer& newcomer : q.join) join(newcomer);
  if (!q.close.empty()) hurry_joins();
  answer_query();
}

// Once all that it asks for has been done: this rank goes on contributing until then.
void Survival::answer_query() {
  if (given_up_ || !std::ranges::all_of(joinings_, &Joining::given_up)) return;
  if (auto end = follower_.hopeless()) return give_up(*end);
  // One that was carried out and is asked again, because its answer may have been lost, stops nothing.
  const bool to_stop = follower_.stopped();
  if (to_stop) begin_stall();
  uint64_t first_unfinished = 0;
  const bool stopped = on_driver([&] {
    if (to_stop) session_.exchange.stop();
    first_unfinished = session_.exchange.first_unfinished();
  });
  if (!stopped) return;
  if (const auto answer = follower_.answer(first_unfinished)) session_.keeper.send(kept_, asked_by_, *answer);
}

void Survival::on_commit(size_t peer, const wire::ViewCommit& commit) {
  using Step = ViewFollower::Commit::Step;
  uint64_t first_unfinished = 0;
  if (!on_driver([&] { first_unfinished = session_.exchange.first_unfinished(); })) return;
  const ViewFollower::Commit c =
      follower_.on_commit(posts_[peer].id, commit, first_unfinished, session_.exchange.depth());
  if (c.step == Step::kIgnore) return;
  if (c.step == Step::kBreach) return give_up(c.breach);
  restart_due_ = true;
}

void Survival::give_up(const Error& why) {
  if (std::exchange(given_up_, true)) return;
  listener_.on_not_survived(why);
}

void Survival::begin_stall() {
  if (stalled_since_ == 0) stalled_since_ = monotonic_now();
}

void Survival::end_stall(const char* what) {
  if (stalled_since_ == 0) return;
  const auto took = static_cast<uint64_t>(monotonic_now() - std::exchange(stalled_since_, 0));
  stalled_ns_.fetch_add(took, std::memory_order_relaxed);
  const auto bucket = std::ranges::upper_bound(SurvivalCounts::kBounds, static_cast<Nanos>(took));
  stalls_[static_cast<size_t>(bucket - SurvivalCounts::kBounds.begin())].fetch_add(1,
                                                                                   std::memory_order_relaxed);
  if (took > longest_stall_ns_.load(std::memory_order_relaxed))
    longest_stall_ns_.store(took, std::memory_order_relaxed);
  log_.warn("session goes on after " + std::to_string(took / kMillisecond) + " ms: " + what +
            (stall_reason_.empty() ? "" : " (" + std::exchange(stall_reason_, {}) + ")"));
}

bool Survival::mended() const {
  return !follower_.stopped() && !restart_due_ && std::ranges::all_of(posts_, [](const Post& p) {
    return p.lost || (p.broken_lanes == 0 && !p.broken_control);
  });
}

SurvivalCounts Survival::counts() const noexcept {
  SurvivalCounts counts{.connections_resumed = resumed_.load(std::memory_order_relaxed),
                        .view_changes = view_changes_.load(std::memory_order_relaxed),
                        .reducers_lost = reducers_lost_.load(std::memory_order_relaxed),
                        .stalled_ns = stalled_ns_.load(std::memory_order_relaxed),
                        .longest_stall_ns = longest_stall_ns_.load(std::memory_order_relaxed)};
  for (size_t i = 0; i < stalls_.size(); ++i) counts.stalls[i] = stalls_[i].load(std::memory_order_relaxed);
  return counts;
}

}  // namespace sluice::engine
