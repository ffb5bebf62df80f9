#include "nccl_plugin/net/pending_connects.h"

#include <utility>

namespace sluice::nccl::net {

Connector* PendingConnects::find(uint64_t id, const Secret& secret) {
  const std::lock_guard lock(mutex_);
  const auto found = connectors_.find(id);
  return found != connectors_.end() && secrets_equal(found->second->secret(), secret) ? found->second.get()
                                                                                      : nullptr;
}

uint64_t PendingConnects::add(std::unique_ptr<Connector> connector, Nanos now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(connectors_, [now](const auto& entry) { return entry.second->is_abandoned(now); });
  connectors_.emplace(++last_id_, std::move(connector));
  return last_id_;
}

void PendingConnects::remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  connectors_.erase(id);
}

}  // namespace sluice::nccl::net
