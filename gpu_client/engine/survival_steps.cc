// What Survival has done by the others: on the driver's thread, by menders, by the keeper.
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/survival.h"
#include "gpu_client/engine/survival_post.h"

namespace sluice::engine {

// Of a session that its caller drives, this thread takes the wheel while the caller does not have it.
bool Survival::on_driver(std::function<void()> work) {
  struct Turn {
    std::mutex mutex;
    std::condition_variable changed;
    std::exception_ptr failure;
    bool done = false, called_off = false;
  };
  const auto turn = std::make_shared<Turn>();
  session_.driver.post([turn, w = std::move(work)] {
    const std::lock_guard lock(turn->mutex);
    if (turn->called_off) return;
    try {
      w();
    } catch (...) {
      turn->failure = std::current_exception();
    }
    turn->done = true;
    turn->changed.notify_all();
  });
  constexpr auto kTurn = std::chrono::milliseconds(1);
  for (;;) {
    session_.progress.notify();
    session_.progress.drive();
    std::unique_lock lock(turn->mutex);
    if (turn->changed.wait_for(lock, kTurn, [&] { return turn->done; })) {
      if (turn->failure) std::rethrow_exception(turn->failure);
      return true;
    }
    const std::lock_guard mine(mutex_);
    if (stopping_) {
      turn->called_off = true;
      return false;
    }
  }
}

void Survival::mend(Post& p, bool control, uint64_t lanes) {
  p.broken_control |= control;
  p.broken_lanes |= lanes;
  if (!p.mender) {
    MenderOptions options;
    options.name = p.name;
    options.address = p.address;
    options.who = options_.who;
    options.incarnation = incarnation_;
    options.view_hash = view_hash_;
    options.reducer = p.id;
    options.handle = p.handle;
    options.slots = p.slots;
    options.resume_timeout = options_.resume_timeout;
    p.mender = std::make_unique<Mender>(std::move(options), static_cast<Mender::Listener&>(*this));
  }
  if (auto asked = p.mender->request(control, lanes); !asked)
    suspect(p, Errc::kReducerLost, "nobody can open its connections again: " + asked.error().text);
}

void Survival::on_control_mended(uint64_t reducer, ControlLink link) noexcept {
  // std::function wants what it holds to be copyable.
  auto held = std::make_shared<ControlLink>(std::move(link));
  post([this, reducer, held] { take_control(*post_of(reducer), std::move(*held)); });
}

void Survival::on_lane_mended(uint64_t reducer, uint32_t lane, transport::tcp::Socket socket) noexcept {
  auto held = std::make_shared<transport::tcp::Socket>(std::move(socket));
  post([this, reducer, lane, held] { take_lane(*post_of(reducer), lane, std::move(*held)); });
}

void Survival::on_reducer_gone(uint64_t reducer, Errc /*code*/, std::string text) noexcept {
  post([this, reducer, words = std::move(text)] { suspect(*post_of(reducer), Errc::kReducerLost, words); });
}

void Survival::take_control(Post& p, ControlLink link) {
  if (p.lost) return;
  session_.keeper.replace(kept_, p.index, std::move(link));
  p.broken_control = false;
  resumed_.fetch_add(1, std::memory_order_relaxed);
  // What the reducer may have missed.
  if (follower_.roster().version() != 0) session_.keeper.send(kept_, p.index, follower_.known());
  ask_for_drains();
  if (mended()) end_stall("connections resumed");
}

void Survival::take_lane(const Post& p, uint32_t lane, transport::tcp::Socket socket) {
  if (p.lost) return;
  const uint32_t index = p.first_link + lane;
  static_cast<void>(on_driver([this, index, &socket] { give_link(index, socket); }));
}

// Driver thread. A socket that can't be used is lost like a connection: nobody waits for it.
void Survival::give_link(uint32_t index, transport::tcp::Socket& socket) {
  Link& link = session_.exchange.link(index);
  if (session_.exchange.ended() || link.bound()) return;
  auto ep = session_.context.adopt(std::move(socket), link, session_.exchange.endpoint_options(index));
  if (!ep) return link_lost(index, Errc::kReset, 0, "");
  link.bind(**ep);
  static_cast<void>(link.resume());  // fails only on a connection that closes, which is heard of
}

// Removed by the arbiter: nothing of it is used from here on.
void Survival::let_go(Post& p) {
  if (p.draining)
    session_.keeper.send(kept_, p.index, wire::Suspect{.reducer = p.id, .code = Errc::kDraining});
  if (!std::exchange(p.lost, true)) {
    if (!p.draining && out_of_reach(p)) reducers_lost_.fetch_add(1, std::memory_order_relaxed);
    if (watch_) tell_watch(watch_->gone(p.id));
  }
  p.mender.reset();
  p.waiting_lanes.clear();
  session_.keeper.drop(kept_, p.index);
  static_cast<void>(on_driver([this, &p] {
    for (uint32_t lane = 0; lane < p.lanes; ++lane)
      session_.exchange.link(p.first_link + lane).close(Errc::kReset);
  }));
}

// VIEW_QUERY doesn't say why a reducer goes. If it is lost, this rank was about to find out too; of one that
// rank 0 has no more in its list all connections stand.
bool Survival::out_of_reach(const Post& p) const {
  return p.broken_control || p.broken_lanes != 0 || session_.keeper.missed(kept_, p.index);
}

// Where the system has no thread to look for reducers the session goes on with those it has.
void Survival::tell_watch(Result<void> told) {
  if (!told) log_.warn("nobody looks for reducers that come: " + told.error().text);
}

Survival::Post* Survival::post_of(uint64_t reducer) noexcept {
  const auto found = std::ranges::find(posts_, reducer, &Post::id);
  return found == posts_.end() ? nullptr : &*found;
}

// The table names lanes of the view, one after the other; links have their own places.
std::vector<uint32_t> Survival::placement() {
  std::vector<uint32_t> links;
  for (const wire::ViewReducer& r : follower_.view().reducers) {
    for (uint32_t lane = 0; lane < r.lanes; ++lane) links.push_back(post_of(r.id)->first_link + lane);
  }
  std::vector<uint32_t> table = wire::placement_table(follower_.view());
  for (uint32_t& entry : table) entry = links[entry];
  return table;
}

void Survival::try_restart() {
  bool restarted = false;
  std::vector<size_t> came;
  const std::vector<uint32_t> table = placement();
  const Exchange::View view{
      .version = follower_.view().version, .hash = follower_.view_hash(), .base = follower_.base()};
  const bool asked = on_driver([&] {
    if (!session_.exchange.quiet() || session_.exchange.ended()) return;
    session_.exchange.restart(view, table);
    for (Post& p : posts_) {
      if (p.lost) p.waiting_lanes.clear();  // suspected meanwhile: another change is on its way
      for (uint32_t lane = 0; lane < p.waiting_lanes.size(); ++lane)
        give_link(p.first_link + lane, p.waiting_lanes[lane]);
      if (!p.waiting_lanes.empty()) came.push_back(p.index);
      p.waiting_lanes.clear();
    }
    restarted = true;
  });
  if (!asked || !restarted) return;
  restart_due_ = false;
  view_changes_.fetch_add(1, std::memory_order_relaxed);
  for (const size_t peer : came) {
    session_.keeper.seat(kept_, peer, {.incarnation = incarnation_});
    if (watch_) watch_->seated(posts_[peer].id);
  }
  session_.keeper.send_all(kept_, follower_.known());
  ask_for_drains();
  end_stall("view changed");
}

}  // namespace sluice::engine
