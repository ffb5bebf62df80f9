#include "gpu_client/store/pool_transfers.h"

#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

namespace sluice::store_client {
namespace {

// Reducers, job, tenant, local address and token.
using Key = std::tuple<std::string, std::string, std::string, std::string, std::optional<wire::Digest>>;

struct PoolsOfProcess {
  const pid_t process = ::getpid();
  std::mutex mutex;
  std::map<Key, std::weak_ptr<PoolTransfers>> pools;
};

// After a fork, threads that the child does not have may hold the mutex: the child gets a new object, and
// that of its parent is never freed.
PoolsOfProcess& pools_of_process() {
  static std::atomic<PoolsOfProcess*> current{nullptr};
  PoolsOfProcess* found = current.load(std::memory_order_acquire);
  while (found == nullptr || found->process != ::getpid()) {
    auto* const mine = new PoolsOfProcess;
    if (current.compare_exchange_strong(found, mine, std::memory_order_acq_rel)) return *mine;
    delete mine;
  }
  return *found;
}

}  // namespace

std::shared_ptr<PoolTransfers> transfers_of(std::span<const config::Endpoint> reducers,
                                            const engine::Identity& identity) {
  std::string addresses;
  for (const config::Endpoint& reducer : reducers) addresses += config::to_string(reducer) + ",";
  Key key(addresses, identity.job, identity.tenant, identity.interface_address, identity.token);
  PoolsOfProcess& all = pools_of_process();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.pools, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<PoolTransfers>& entry = all.pools[std::move(key)];
  auto pool = entry.lock();
  if (pool == nullptr) entry = pool = std::make_shared<PoolTransfers>(identity);
  return pool;
}

}  // namespace sluice::store_client
