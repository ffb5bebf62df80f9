#include "nccl_plugin/host/communicator_registry.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>

namespace sluice::nccl {

void CommunicatorRegistry::add(Offloaded communicator) {
  const std::lock_guard lock(mutex_);
  offloaded_.push_back(std::move(communicator));
}

void CommunicatorRegistry::remove(const void* owner) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(offloaded_, [owner](const Offloaded& one) { return one.owner == owner; });
}

std::optional<CommunicatorRegistry::Offloaded> CommunicatorRegistry::find(size_t nodes) const {
  const std::lock_guard lock(mutex_);
  std::optional<Offloaded> found;
  for (const Offloaded& one : offloaded_) {
    if (one.nodes != nodes) continue;
    if (!found) found = one;
    if (found->transport.empty()) found->transport = one.transport;
    if (found->comm_id == 0) found->comm_id = one.comm_id;
  }
  return found;
}

void CommunicatorRegistry::mark_failed(const void* owner) noexcept {
  const std::lock_guard lock(mutex_);
  for (Offloaded& one : offloaded_) {
    if (one.owner == owner && one.failure == 0) one.failure = failures_.fetch_add(1) + 1;
  }
}

bool CommunicatorRegistry::has_failure(size_t nodes, uint64_t since) const noexcept {
  if (failures() <= since) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(offloaded_,
                             [&](const Offloaded& one) { return one.nodes == nodes && one.failure > since; });
}

CommunicatorRegistry& communicator_registry() noexcept {
  alignas(CommunicatorRegistry) static std::array<std::byte, sizeof(CommunicatorRegistry)> storage;
  static CommunicatorRegistry* const registry = ::new (storage.data()) CommunicatorRegistry;
  return *registry;
}

}  // namespace sluice::nccl
