#include "gpu_client/engine/membership/pool_watch.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/thread.h"

namespace sluice::engine {
namespace {

bool same_address(const config::Endpoint& a, const config::Endpoint& b) {
  return a.host == b.host && a.port == b.port;
}

}  // namespace

PoolWatch::PoolWatch(PoolWatchOptions options, Listener& listener)
    : options_(std::move(options)),
      log_(options_.join.identity.log()),
      listener_(listener),
      has_file_(!options_.join.pool_file.empty()),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (size_t i = 0; i < options_.join.reducers.size(); ++i) {
    const uint64_t id = options_.first_view.reducers[i].id;
    addresses_.push_back(
        {.endpoint = options_.join.reducers[i], .reducer = id, .probed = true, .logged_reason = {}});
    members_[id] = true;
  }
  if (has_file_) file_.emplace(options_.join.pool_file);
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

Result<void> PoolWatch::reducer_removed(uint64_t reducer) {
  const std::lock_guard lock(mutex_);
  tasks_.emplace_back([this, reducer] {
    if (!removed_.insert(reducer).second) return;
    const auto member = members_.find(reducer);
    const bool was_confirmed = member != members_.end() && member->second;
    members_.erase(reducer);
    list_changed_ = true;
    const auto at = std::ranges::find(addresses_, reducer, &Address::reducer);
    if (at == addresses_.end()) return;
    // A reducer that this rank can join and another cannot stalls all ranks, so its pause grows fast.
    at->refused = !was_confirmed;
    at->pause = was_confirmed ? options_.first_pause
                              : std::min(4 * std::max(at->pause, options_.first_pause / 4),
                                         options_.longest_after_failure);
    at->next_probe = monotonic_now() + at->pause;
  });
  return wake();
}

void PoolWatch::set_confirmed(uint64_t reducer) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) return;  // a reducer of the first view is confirmed already
  tasks_.emplace_back([this, reducer] {
    if (const auto member = members_.find(reducer); member != members_.end()) member->second = true;
    list_changed_ = true;
  });
  changed_.notify_all();
}

Result<void> PoolWatch::set_pool(config::Pool pool) {
  const std::lock_guard lock(mutex_);
  has_file_ = !pool.file.empty();
  tasks_.emplace_back([this, p = std::move(pool)] {
    file_.reset();
    if (!p.file.empty()) file_.emplace(p.file);
    update_list(p.reducers);
  });
  return wake();
}

Result<void> PoolWatch::reread() {
  const std::lock_guard lock(mutex_);
  if (!has_file_) return fail(Errc::kInvalidArgument, "the list of reducers is not in a file");
  tasks_.emplace_back([this] { check_file(true); });
  return wake();
}

void PoolWatch::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::function<void()> work = [this] { probe_due(); };
    const bool idle = tasks_.empty();
    if (!idle) {
      work = std::move(tasks_.front());
      tasks_.pop_front();
    }
    lock.unlock();
    try {
      work();
    } catch (const std::exception& e) {
      log_.warn(std::string("cannot probe for reducers: ") + e.what());
      const Nanos later = monotonic_now() + options_.longest_pause;
      for (Address& a : addresses_) a.next_probe = a.next_probe == 0 ? 0 : std::max(a.next_probe, later);
    }
    lock.lock();
    if (!idle) continue;
    const Nanos left = std::max(next_due() - monotonic_now(), Nanos{0});
    changed_.wait_for(lock, std::chrono::nanoseconds(left), [this] { return stopping_ || !tasks_.empty(); });
  }
}

// Probes one address per call, because a probe takes time and other tasks may arrive. The address that has
// been due longest comes first, so that slow addresses do not delay the others for ever.
void PoolWatch::probe_due() {
  const Nanos now = monotonic_now();
  if (file_ && now >= next_file_check_) check_file(false);
  const auto due = [](const Address& a) { return a.next_probe != 0 ? a.next_probe : INT64_MAX; };
  if (const auto a = std::ranges::min_element(addresses_, {}, due); a != addresses_.end() && due(*a) <= now)
    probe(*a);
  if (list_changed_ && std::ranges::all_of(addresses_, &Address::probed)) report_unlisted();
}

Nanos PoolWatch::next_due() const {
  Nanos due = monotonic_now() + 3600 * kSecond;
  if (file_) due = std::min(due, next_file_check_);
  for (const Address& a : addresses_) {
    if (a.next_probe != 0) due = std::min(due, a.next_probe);
  }
  return due;
}

void PoolWatch::check_file(bool unchanged_too) {
  next_file_check_ = monotonic_now() + options_.file_check_interval;
  if (!file_ || (!file_->has_changed() && !(unchanged_too && file_->exists()))) return;
  auto pool = config::read_pool("@" + file_->path());
  if (!pool) {
    // A file that cannot be read is read again at every check, which logs the same error once.
    if (std::exchange(logged_file_error_, pool.error().text) != pool.error().text || unchanged_too)
      log_.warn("list of reducers not reloaded: " + pool.error().text);
    if (pool.error().code == Errc::kSystem)
      file_.emplace(std::string(file_->path()));  // the content is not the cause, so check it again
    return;
  }
  logged_file_error_.clear();
  update_list(pool->reducers);
}

void PoolWatch::update_list(const std::vector<config::Endpoint>& list) {
  std::vector<Address> next;
  size_t added = 0;
  for (const config::Endpoint& endpoint : list) {
    const auto known = std::ranges::find_if(
        addresses_, [&](const Address& a) { return same_address(a.endpoint, endpoint); });
    if (known != addresses_.end()) {
      next.push_back(std::move(*known));
      next.back().endpoint = endpoint;
    } else {
      ++added;
      next.push_back({.endpoint = endpoint,
                      .next_probe = monotonic_now(),
                      .pause = options_.first_pause / 2,
                      .logged_reason = {}});
    }
  }
  const size_t removed = addresses_.size() - (next.size() - added);
  addresses_ = std::move(next);
  if (added + removed == 0) return;
  list_changed_ = true;
  log_.info("list of reducers changed: " + std::to_string(added) + " added, " + std::to_string(removed) +
            " removed, " + std::to_string(addresses_.size()) + " in total");
}

Result<uint64_t> PoolWatch::identify(const config::Endpoint& endpoint) const {
  const std::string name = reducer_name(endpoint);
  const Deadline deadline(monotonic_now() + options_.probe_timeout, interrupt_.fd());
  auto socket = connect_once(endpoint, options_.join.identity, deadline);
  if (!socket) return fail(Errc::kReducerLost, name + ": " + socket.error().text);
  auto g = perform_handshake(std::move(*socket), endpoint, name, options_.join.identity,
                             wire::Purpose::kStatus, 0, options_.incarnation, deadline);
  if (!g) return tl::unexpected(g.error());
  return g->welcome.reducer;
}

void PoolWatch::probe(Address& a) {
  const bool first = !std::exchange(a.probed, true);
  const auto id = identify(a.endpoint);
  if (!id) {
    const bool absent = id.error().code == Errc::kReducerLost || id.error().code == Errc::kTimeout;
    if (absent) a.refused = false;
    // The loss of a reducer has been logged already.
    return postpone(a, !absent, absent && !first ? std::string() : id.error().text);
  }
  if (members_.contains(*id)) {  // the list has the same process under another address
    a.reducer = *id;
    a.next_probe = 0;
    return;
  }
  // The session never adds a reducer again under an id that it has removed.
  if (removed_.contains(*id)) return postpone(a, false, {});
  auto reservation =
      join_added_reducer(options_.join, options_.first_view, options_.incarnation, a.endpoint, *id,
                         {monotonic_now() + options_.reservation_timeout, interrupt_.fd()});
  if (!reservation) return postpone(a, true, reservation.error().text);
  a.reducer = *id;
  a.next_probe = 0;
  a.logged_reason.clear();
  members_[*id] = false;
  log_.info(reservation->name + (first ? " is new in the list" : " is available again") +
            "; adding it to the session");
  listener_.on_reducer_found(a.endpoint, std::move(*reservation));
}

void PoolWatch::postpone(Address& a, bool refused, const std::string& reason) {
  a.refused |= refused;
  // A reducer that some rank could not join has a longer pause already.
  a.pause = std::max(
      a.pause, std::min(2 * a.pause, a.refused ? options_.longest_after_refusal : options_.longest_pause));
  a.next_probe = monotonic_now() + a.pause;
  if (stopping_) return;  // stop() has interrupted the probe
  if (reason.empty() || reason == a.logged_reason) return;
  a.logged_reason = reason;
  log_.warn("reducer of the list cannot be used, retrying: " + reason);
}

void PoolWatch::report_unlisted() {
  std::vector<uint64_t> unlisted;
  bool one_stays = false;
  for (const auto& [id, set_confirmed] : members_) {
    if (std::ranges::find(addresses_, id, &Address::reducer) == addresses_.end()) {
      unlisted.push_back(id);
    } else {
      one_stays |= set_confirmed;
    }
  }
  if (!unlisted.empty() && !one_stays) return;  // wait until a reducer of the list is confirmed
  list_changed_ = false;
  if (!unlisted.empty()) listener_.on_unlisted(std::move(unlisted));
}

}  // namespace sluice::engine
