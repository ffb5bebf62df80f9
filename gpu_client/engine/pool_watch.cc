#include "gpu_client/engine/pool_watch.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/seat_taking.h"
#include "gpu_client/engine/thread.h"

namespace sluice::engine {
namespace {

// For HELLO and WELCOME with who may be there.
constexpr Nanos kLook = 500 * kMillisecond;

bool same_place(const config::Endpoint& a, const config::Endpoint& b) {
  return a.host == b.host && a.port == b.port;
}

}  // namespace

PoolWatch::PoolWatch(PoolWatchOptions options, Listener& listener)
    : options_(std::move(options)),
      log_(options_.who.session, options_.who.rank),
      listener_(listener),
      has_file_(!options_.file.empty()),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (size_t i = 0; i < options_.reducers.size(); ++i) {
    const uint64_t id = options_.first_view.reducers[i].id;
    addresses_.push_back({.endpoint = options_.reducers[i], .reducer = id, .tried = true, .said = {}});
    members_[id] = true;
  }
  if (has_file_) file_.emplace(options_.file);
}

PoolWatch::~PoolWatch() {
  stop();
}

void PoolWatch::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  static_cast<void>(::eventfd_write(interrupt_.fd(), 1));
  if (thread_.joinable()) thread_.join();
}

// Lock held.
Result<void> PoolWatch::wake() {
  if (stopping_) return {};
  if (!thread_.joinable()) {
    auto thread = start_thread("sluice-pool", [this] { run(); });
    if (!thread) return tl::unexpected(thread.error());
    thread_ = std::move(*thread);
  }
  changed_.notify_all();
  return {};
}

Result<void> PoolWatch::begin() {
  const std::lock_guard lock(mutex_);
  return has_file_ ? wake() : Result<void>();
}

Result<void> PoolWatch::gone(uint64_t reducer) {
  const std::lock_guard lock(mutex_);
  orders_.emplace_back([this, reducer] {
    if (!removed_.insert(reducer).second) return;
    const auto member = members_.find(reducer);
    const bool was_seated = member != members_.end() && member->second;
    members_.erase(reducer);
    list_changed_ = true;
    const auto at = std::ranges::find(addresses_, reducer, &Address::reducer);
    if (at == addresses_.end()) return;
    // One that this rank could join and another could not costs all ranks a stall: soon it is hardly tried.
    at->refused = !was_seated;
    at->pause = was_seated ? options_.first_pause
                           : std::min(4 * std::max(at->pause, options_.first_pause / 4),
                                      options_.longest_after_failure);
    at->look_at = monotonic_now() + at->pause;
  });
  return wake();
}

void PoolWatch::seated(uint64_t reducer) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) return;  // of the first view: they are
  orders_.emplace_back([this, reducer] {
    if (const auto member = members_.find(reducer); member != members_.end()) member->second = true;
    list_changed_ = true;
  });
  changed_.notify_all();
}

Result<void> PoolWatch::set(config::Pool pool) {
  const std::lock_guard lock(mutex_);
  has_file_ = !pool.file.empty();
  orders_.emplace_back([this, p = std::move(pool)] {
    file_.reset();
    if (!p.file.empty()) file_.emplace(p.file);
    take_list(p.reducers);
  });
  return wake();
}

Result<void> PoolWatch::reread() {
  const std::lock_guard lock(mutex_);
  if (!has_file_) return fail(Errc::kInvalidArgument, "the list of reducers does not stand in a file");
  orders_.emplace_back([this] { look_at_file(true); });
  return wake();
}

void PoolWatch::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::function<void()> work = [this] { look_round(); };
    const bool idle = orders_.empty();
    if (!idle) {
      work = std::move(orders_.front());
      orders_.pop_front();
    }
    lock.unlock();
    attempt(work);
    lock.lock();
    if (!idle) continue;
    const Nanos left = std::max(next_due() - monotonic_now(), Nanos{0});
    changed_.wait_for(lock, std::chrono::nanoseconds(left), [this] { return stopping_ || !orders_.empty(); });
  }
}

void PoolWatch::attempt(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& e) {
    log_.warn(std::string("looking for reducers: ") + e.what());
    const Nanos later = monotonic_now() + options_.longest_pause;
    for (Address& a : addresses_) a.look_at = a.look_at == 0 ? 0 : std::max(a.look_at, later);
  }
}

// One address at a time, for a look may last and word of losses comes meanwhile: the one that has been due
// longest, so that none waits behind others that are slow each time.
void PoolWatch::look_round() {
  const Nanos now = monotonic_now();
  if (file_ && now >= file_at_) look_at_file(false);
  const auto due = [](const Address& a) { return a.look_at != 0 ? a.look_at : INT64_MAX; };
  if (const auto a = std::ranges::min_element(addresses_, {}, due); a != addresses_.end() && due(*a) <= now)
    look(*a);
  if (list_changed_ && std::ranges::all_of(addresses_, &Address::tried)) tell_unlisted();
}

Nanos PoolWatch::next_due() const {
  Nanos due = monotonic_now() + 3600 * kSecond;
  if (file_) due = std::min(due, file_at_);
  for (const Address& a : addresses_) {
    if (a.look_at != 0) due = std::min(due, a.look_at);
  }
  return due;
}

void PoolWatch::look_at_file(bool unchanged_too) {
  file_at_ = monotonic_now() + options_.file_pause;
  if (!file_ || (!file_->changed() && !(unchanged_too && file_->there()))) return;
  auto pool = config::read_pool("@" + file_->path());
  if (!pool) {
    log_.warn("the list of reducers stays as it was: " + pool.error().text);
    if (pool.error().code == Errc::kSystem)
      file_.emplace(std::string(file_->path()));  // not its content's fault
    return;
  }
  take_list(pool->reducers);
}

void PoolWatch::take_list(const std::vector<config::Endpoint>& list) {
  std::vector<Address> next;
  size_t came = 0;
  for (const config::Endpoint& endpoint : list) {
    const auto had =
        std::ranges::find_if(addresses_, [&](const Address& a) { return same_place(a.endpoint, endpoint); });
    if (had != addresses_.end()) {
      next.push_back(std::move(*had));
      next.back().endpoint = endpoint;
    } else {
      ++came;
      next.push_back(
          {.endpoint = endpoint, .look_at = monotonic_now(), .pause = options_.first_pause / 2, .said = {}});
    }
  }
  const size_t went = addresses_.size() - (next.size() - came);
  addresses_ = std::move(next);
  if (came + went == 0) return;
  list_changed_ = true;
  log_.info("the list of reducers has changed: " + std::to_string(came) + " new, " + std::to_string(went) +
            " gone, " + std::to_string(addresses_.size()) + " in all");
}

Result<uint64_t> PoolWatch::who_is_at(const config::Endpoint& endpoint) const {
  const std::string name = name_of(endpoint);
  const Until until(monotonic_now() + kLook, interrupt_.fd());
  auto socket = connect_once(endpoint, options_.who, until);
  if (!socket) return fail(Errc::kReducerLost, name + ": " + socket.error().text);
  auto g = introduce(std::move(*socket), endpoint, name, options_.who, wire::Purpose::kStatus, 0,
                     options_.incarnation, until);
  if (!g) return tl::unexpected(g.error());
  return g->welcome.reducer;
}

Result<Seat> PoolWatch::take_seat_at(const config::Endpoint& endpoint, uint64_t reducer) const {
  const NewcomerTerms terms{.address = endpoint,
                            .reducer = reducer,
                            .incarnation = options_.incarnation,
                            .first = &options_.first_view,
                            .lanes = options_.lanes,
                            .join_timeout = options_.join_timeout};
  return join_newcomer(terms, options_.who, Until(monotonic_now() + options_.seat_timeout, interrupt_.fd()));
}

void PoolWatch::look(Address& a) {
  const bool first = !std::exchange(a.tried, true);
  const auto id = who_is_at(a.endpoint);
  if (!id) {
    const bool away = id.error().code == Errc::kReducerLost || id.error().code == Errc::kTimeout;
    if (away) a.refused = false;
    // Of one that was lost it is known that it is away.
    return put_off(a, !away, away && !first ? std::string() : id.error().text);
  }
  if (members_.contains(*id)) {  // under another name than before
    a.reducer = *id;
    a.look_at = 0;
    return;
  }
  // The session takes none back under the id that it has removed.
  if (removed_.contains(*id)) return put_off(a, false, {});
  auto seat = take_seat_at(a.endpoint, *id);
  if (!seat) return put_off(a, true, seat.error().text);
  a.reducer = *id;
  a.look_at = 0;
  a.said.clear();
  members_[*id] = false;
  log_.info(seat->name + (first ? " is new in the list" : " is back") + " and is taken into the session");
  listener_.on_reducer_found(a.endpoint, std::move(*seat));
}

void PoolWatch::put_off(Address& a, bool refused, const std::string& why) {
  a.refused |= refused;
  // One that could not be joined before has a longer pause already.
  a.pause = std::max(
      a.pause, std::min(2 * a.pause, a.refused ? options_.longest_after_refusal : options_.longest_pause));
  a.look_at = monotonic_now() + a.pause;
  if (stopping_) return;  // that is why
  if (why.empty() || why == a.said) return;
  a.said = why;
  log_.warn("the session goes on without a reducer of the list, and tries it again: " + why);
}

void PoolWatch::tell_unlisted() {
  std::vector<uint64_t> unlisted;
  bool one_stays = false;
  for (const auto& [id, seated] : members_) {
    if (std::ranges::find(addresses_, id, &Address::reducer) == addresses_.end()) {
      unlisted.push_back(id);
    } else {
      one_stays |= seated;
    }
  }
  if (!unlisted.empty() && !one_stays) return;  // until one of the list is seated
  list_changed_ = false;
  if (!unlisted.empty()) listener_.on_unlisted(std::move(unlisted));
}

}  // namespace sluice::engine
