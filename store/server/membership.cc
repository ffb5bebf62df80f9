// A store's place among the reducers: its lease, and what it takes over when another's ends.
#include <poll.h>

#include <algorithm>

#include "core/clock.h"
#include "store/server/store_server.h"

namespace sluice::store {

Result<void> StoreServer::announce() {
  const auto lease = options_.coordinator->grant(options_.lease_ttl);
  if (!lease) return add_context("the coordinator", lease.error());
  const std::string key = store_key(id_);
  for (;;) {
    auto made = options_.coordinator->create(key, options_.address, lease->id);
    if (made && made->outcome == Outcome::kConflict && made->entry) {
      // Of this store's last process, whose lease has not ended.
      made = options_.coordinator->compare_and_swap(key, made->entry->revision, options_.address, lease->id);
    }
    if (!made) return add_context("the coordinator", made.error());
    if (made->outcome == Outcome::kLeaseEnded)  // this process, or the coordinator, did not run for its time
      return fail(Errc::kReset, "the coordinator: the lease of this reducer has ended at once");
    if (made->is_done()) break;
  }
  lease_ = lease->id;
  return {};
}

bool StoreServer::pause(Nanos time) const {
  return transport::tcp::wait_ready(interrupt_fd_, POLLIN, monotonic_now() + time) == Errc::kTimeout;
}

// Apart from the transfers of the other thread, which may take longer than a lease.
void StoreServer::renew_lease() {
  do {
    const auto alive = options_.coordinator->keep_alive(lease_);
    if (alive && !*alive) {
      options_.log("the lease of this reducer has ended: others may have taken over its shards");
      static_cast<void>(announce());
    }
  } while (pause(options_.lease_ttl / 4));
}

void StoreServer::run_membership() {
  std::string last_error;
  do {
    const auto checked = check_holders();
    const std::string error = checked ? std::string() : checked.error().text;
    if (!error.empty() && error != last_error) options_.log("models: " + error);
    last_error = error;
  } while (pause(options_.lease_ttl / 8));
}

// Not under take_mutex_: a transfer may need the peer to take a state, and the peer a transfer from here.
Result<void> StoreServer::take_and_supply(const Known& known) {
  SLUICE_RETURN_IF_ERROR(take(known));
  const auto hosted = hosted_model(known.record.spec.name);
  return hosted ? hosted->supply_copies() : Result<void>();
}

// The lease of a process that was killed ends after a while. A port that refuses connections shows it at
// once.
bool StoreServer::refuses_connections(StoreId store, const std::string& address) {
  if (const auto found = probes_.find(store); found != probes_.end()) {
    if (transport::tcp::wait_ready(found->second.socket().fd(), POLLIN, 0) == Errc::kTimeout) return false;
    probes_.erase(found);  // closed: nothing is ever sent on it
  }
  auto opened = connect_to(address, monotonic_now() + options_.lease_ttl / 2);
  if (!opened) return opened.error().code == Errc::kReset;
  probes_.emplace(store, std::move(*opened));
  return false;
}

bool StoreServer::is_gone(StoreId store, const std::map<StoreId, std::string>& live) {
  if (store == kNoStore || store == id_) return false;
  if (const auto found = live.find(store); found != live.end()) {
    const auto [known, is_new] = refuses_.try_emplace(store, false);
    if (is_new) known->second = refuses_connections(store, found->second);
    return known->second;
  }
  // A reducer that was here has lost its lease. One that was never seen may still be starting.
  return seen_.contains(store) || monotonic_now() - started_ > options_.absence;
}

std::vector<ShardHolders> StoreServer::repaired(const std::string& name, const CoordinatedState& state,
                                                const std::map<StoreId, std::string>& live) {
  const std::shared_ptr<HostedModel> hosted = hosted_model(name);
  std::vector<ShardHolders> now = state.shards;
  for (uint32_t i = 0; i < now.size(); ++i) {
    ShardHolders& s = now[i];
    // A copy that was chosen just before the owner's end has nothing yet: only the owner has the version.
    const bool takes_over =
        s.copy == id_ && is_gone(s.owner, live) && hosted && hosted->has_current(i, state);
    const bool needs_copy = s.owner == id_ && (s.copy == kNoStore || is_gone(s.copy, live));
    if (!takes_over && !needs_copy) continue;
    const ShardHolders changed{.owner = id_, .copy = next_store(live), .generation = s.generation + 1};
    if (changed.owner != s.owner || changed.copy != s.copy) s = changed;
  }
  if (now == state.shards && state.is_started && hosted) balance_owners(*hosted, state, live, now);
  return now;
}

// The next reducer after this one, in the order of ids, that runs; kNoStore if there is none.
StoreId StoreServer::next_store(const std::map<StoreId, std::string>& live) {
  for (const bool after : {true, false}) {
    for (const auto& [store, address] : live) {
      if ((store > id_) == after && store != id_ && !is_gone(store, live)) return store;
    }
  }
  return kNoStore;
}

// Changes at most one shard, where its owner has two more than this reducer, the copy: they change roles.
void StoreServer::balance_owners(const HostedModel& hosted, const CoordinatedState& state,
                                 const std::map<StoreId, std::string>& live,
                                 std::vector<ShardHolders>& shards) {
  std::map<StoreId, uint32_t> owned;
  for (const ShardHolders& s : shards) ++owned[s.owner];
  for (uint32_t i = 0; i < shards.size(); ++i) {
    ShardHolders& s = shards[i];
    if (s.copy != id_ || owned[s.owner] < owned[id_] + 2 || !live.contains(s.owner) ||
        !hosted.has_current(i, state))
      continue;
    s = {.owner = id_, .copy = s.owner, .generation = s.generation + 1};
    return;
  }
}

// Makes a reducer that has two shards fewer than this one the copy of one of these, as which it can become
// the owner.
Result<void> StoreServer::balance_copies(HostedModel& hosted, const CoordinatedState& state,
                                         const std::map<StoreId, std::string>& live) {
  std::map<StoreId, uint32_t> owned;
  for (const ShardHolders& s : state.shards) ++owned[s.owner];
  for (const auto& entry : live) {
    const StoreId store = entry.first;
    const auto is_copy_here = [&](const ShardHolders& s) { return s.owner == id_ && s.copy == store; };
    if (owned[id_] < owned[store] + 2 || std::ranges::any_of(state.shards, is_copy_here) ||
        is_gone(store, live))
      continue;
    const auto mine = std::ranges::find(state.shards, id_, &ShardHolders::owner);
    const auto index = static_cast<uint32_t>(mine - state.shards.begin());
    const auto moved = hosted.move_copy(index, store, [&](const ShardHolders& next) -> Result<bool> {
      CoordinatedState changed = state;
      changed.shards[index] = next;
      const auto swapped = options_.coordinator->compare_and_swap(state_key(hosted.spec().name),
                                                                  state.revision, state_text(changed));
      if (!swapped) return add_context("the coordinator", swapped.error());
      return swapped->is_done();
    });
    return moved ? Result<void>() : tl::unexpected(moved.error());
  }
  return {};
}

std::shared_ptr<HostedModel> StoreServer::hosted_model(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [model, entry] : models_) {
    if (entry.hosted->spec().name == name) return entry.hosted;
  }
  return nullptr;
}

Result<void> StoreServer::drop_deleted(const Listing& states) {
  std::vector<std::shared_ptr<HostedModel>> missing;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [model, entry] : models_) {
      const std::string key = state_key(entry.hosted->spec().name);
      if (!std::ranges::binary_search(states.entries, key, {}, &Entry::key)) missing.push_back(entry.hosted);
    }
  }
  for (const std::shared_ptr<HostedModel>& model : missing) {
    // It may have been created after the list was read.
    const auto entry = options_.coordinator->get(state_key(model->spec().name));
    if (!entry) return add_context("the coordinator", entry.error());
    if (*entry) continue;
    options_.log("model \"" + model->spec().name + "\" was deleted");
    drop([&](const HostedModel& m) { return m.id() == model->id(); });
  }
  return {};
}

Result<void> StoreServer::check_holders() {
  const auto live = live_stores();
  if (!live) return tl::unexpected(live.error());
  for (const auto& [store, address] : *live) seen_.insert(store);
  refuses_.clear();
  const auto states = options_.coordinator->list(kStateKeys);
  if (!states) return add_context("the coordinator", states.error());
  SLUICE_RETURN_IF_ERROR(drop_deleted(*states));
  Result<void> result;  // the first error; the other models are checked too
  for (const Entry& entry : states->entries) {
    auto checked = check_model(entry, *live);
    if (!checked && result) result = std::move(checked);
  }
  return result;
}

Result<void> StoreServer::check_model(const Entry& entry, const std::map<StoreId, std::string>& live) {
  const auto state = parse_state(entry);
  if (!state) return tl::unexpected(state.error());
  const std::string name = entry.key.substr(kStateKeys.size());
  const auto take_new = [&]() -> Result<void> {
    const auto known = read(name);
    if (!known) return tl::unexpected(known.error());
    return *known ? take_and_supply(**known) : Result<void>();
  };
  CoordinatedState next = *state;
  next.shards = repaired(name, *state, live);
  if (next.shards != state->shards) {
    const auto swapped = options_.coordinator->compare_and_swap(entry.key, entry.revision, state_text(next));
    if (!swapped) return add_context("the coordinator", swapped.error());
    if (!swapped->is_done()) return {};  // changed meanwhile: the next turn decides
    options_.log("model \"" + name + "\": this reducer takes over shards, or has a new copy of them");
    return take_new();
  }
  // Another reducer may have made this one a copy, or the leader, or no longer one of these.
  const auto is_here = [&](const ShardHolders& s) { return s.owner == id_ || s.copy == id_; };
  const auto hosted = hosted_model(name);
  if (hosted ? !hosted->has_applied(*state) : std::ranges::any_of(state->shards, is_here)) return take_new();
  if (!hosted || !state->is_started) return {};
  SLUICE_RETURN_IF_ERROR(hosted->supply_copies());
  return balance_copies(*hosted, *state, live);
}

}  // namespace sluice::store
