// What Survival has done by the others: on the driver's thread, by menders, by the keeper.
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "gpu_client/engine/seat_taking.h"
#include "gpu_client/engine/survival.h"
#include "gpu_client/engine/survival_post.h"

namespace sluice::engine {
namespace {

// For all connections to a reducer that came up: ranks go on without it, so there is no hurry but to know.
constexpr Nanos kJoinNewcomer = 5 * kSecond;
// A reducer that is restarted is back soon; a machine that is not comes back some day.
constexpr Nanos kFirstLook = 250 * kMillisecond;
constexpr Nanos kLongestLook = 2 * kSecond;
constexpr Nanos kLook = 500 * kMillisecond;

}  // namespace

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
  auto ep = session_.context.adopt(socket.release(), link, session_.exchange.endpoint_options(index));
  if (!ep) return link_lost(index, Errc::kReset, 0, "");
  link.bind(**ep);
  static_cast<void>(link.resume());  // fails only on a connection that closes, which is heard of
}

// Removed by the arbiter: nothing of it is used from here on.
void Survival::let_go(Post& p) {
  if (!std::exchange(p.lost, true)) watch_address_of(p.id);
  p.mender.reset();
  p.waiting_lanes.clear();
  session_.keeper.drop(kept_, p.index);
  static_cast<void>(on_driver([this, &p] {
    for (uint32_t lane = 0; lane < p.lanes; ++lane)
      session_.exchange.link(p.first_link + lane).close(Errc::kReset);
  }));
}

// All ranks do this at the same VIEW_QUERY, and go on contributing meanwhile.
bool Survival::join_newcomer(const ViewFollower::Newcomer& newcomer) {
  if (!newcomer.address) return false;
  const NewcomerTerms terms{.address = *newcomer.address,
                            .reducer = newcomer.id,
                            .incarnation = incarnation_,
                            .first = &first_view_,
                            .lanes = options_.lanes,
                            .join_timeout = options_.join_timeout};
  const Nanos deadline = monotonic_now() + std::min(options_.connect_timeout, kJoinNewcomer);
  auto seat = engine::join_newcomer(terms, options_.who, Until(deadline, interrupt_.fd()));
  if (!seat) {
    log::warn("a reducer that came up can't be used: " + seat.error().text);
    return false;
  }
  const auto lanes = static_cast<uint32_t>(seat->lanes.size());
  if (!follower_.joined(newcomer.id, static_cast<uint16_t>(lanes))) return false;
  auto peer = session_.keeper.add_peer(kept_, {.link = std::move(seat->control),
                                               .heartbeat = Nanos{seat->heartbeat_ms} * kMillisecond,
                                               .timeout = Nanos{seat->peer_timeout_ms} * kMillisecond});
  if (!peer) return false;
  Post& p = posts_.emplace_back();
  p.index = *peer;
  SLUICE_ASSERT(p.index + 1 == posts_.size());
  p.id = newcomer.id;
  p.name = seat->name;
  p.address = seat->address;
  p.handle = seat->handle;
  p.slots = seat->slots;
  p.lanes = lanes;
  p.waiting_lanes = std::move(seat->lanes);
  return on_driver([this, &p] {
    p.first_link = session_.exchange.link_count();
    for (uint32_t lane = 0; lane < p.lanes; ++lane)
      session_.exchange.add_link({.handle = p.handle, .slots = p.slots});
  });
}

// One rank looks for all: what it finds is told to the reducers, and asked of every rank by the arbiter.
void Survival::watch_address_of(uint64_t reducer) {
  if (options_.who.rank != 0) return;
  const auto at = std::ranges::find(addresses_, reducer, &Address::reducer);
  if (at == addresses_.end()) return;
  at->pause = kFirstLook;
  at->look_at = monotonic_now() + at->pause;
  next_look_ = next_look_ == 0 ? at->look_at : std::min(next_look_, at->look_at);
}

// One address at a time: a look may last, and events come first.
void Survival::look_for_newcomers() {
  const Nanos now = monotonic_now();
  const auto due = [now](const Address& a) { return a.look_at != 0 && now >= a.look_at; };
  if (const auto a = std::ranges::find_if(addresses_, due); a != addresses_.end()) {
    a->pause = std::min(2 * a->pause, kLongestLook);
    a->look_at = now + a->pause;
    look(*a);
  }
  next_look_ = 0;
  for (const Address& a : addresses_) {
    if (a.look_at != 0) next_look_ = next_look_ == 0 ? a.look_at : std::min(next_look_, a.look_at);
  }
}

void Survival::look(Address& a) {
  const Until until(monotonic_now() + kLook, interrupt_.fd());
  auto socket = connect_once(a.endpoint, options_.who, until);
  if (!socket) return;
  auto g = introduce(std::move(*socket), name_of(a.endpoint), options_.who, wire::Purpose::kStatus, 0,
                     incarnation_, until);
  if (!g || g->welcome.reducer == a.reducer || !follower_.add(g->welcome.reducer, a.endpoint)) return;
  log::info(g->name + " is back and is taken into the session");
  a.reducer = g->welcome.reducer;
  a.look_at = 0;
  session_.keeper.send_all(kept_, follower_.known());
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
  for (const size_t peer : came) session_.keeper.seat(kept_, peer, {.incarnation = incarnation_});
  session_.keeper.send_all(kept_, follower_.known());
  end_stall("view changed");
}

}  // namespace sluice::engine
