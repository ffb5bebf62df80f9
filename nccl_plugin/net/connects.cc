#include "nccl_plugin/net/connects.h"

#include <utility>

namespace sluice::nccl::net {

Connector* Connects::find(uint64_t number, const Secret& secret) {
  const std::lock_guard lock(mutex_);
  const auto found = under_way_.find(number);
  return found != under_way_.end() && same_secret(found->second->secret(), secret) ? found->second.get()
                                                                                   : nullptr;
}

uint64_t Connects::add(std::unique_ptr<Connector> connector, Nanos now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(under_way_, [now](const auto& entry) { return entry.second->forgotten(now); });
  under_way_.emplace(++last_, std::move(connector));
  return last_;
}

void Connects::remove(uint64_t number) {
  const std::lock_guard lock(mutex_);
  under_way_.erase(number);
}

}  // namespace sluice::nccl::net
