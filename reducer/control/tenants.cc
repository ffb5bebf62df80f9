#include "reducer/control/tenants.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/assert.h"

namespace sluice::reducer {
namespace {

std::string needs(uint64_t bytes) {
  return "session needs " + std::to_string(bytes) + " bytes; the memory limit ";
}

std::string remedy(const char* option) {
  return std::string("; use a smaller window, or raise ") + option + " of the reducer";
}

std::optional<Error> check_limit(const std::string& whose, const char* option, uint64_t bytes, uint64_t limit,
                                 uint64_t reserved) {
  if (bytes <= limit - std::min(reserved, limit)) return std::nullopt;
  return Error{Errc::kMemoryLimit, needs(bytes) + whose + "is " + std::to_string(limit) + " bytes, " +
                                       std::to_string(reserved) + " of them reserved" + remedy(option)};
}

}  // namespace

Tenants::Tenants(const ReducerOptions& options) : options_(options) {
  update_weights();
}

void Tenants::update_weights() {
  for (const auto& [name, weight] : options_.weights) tenants_.try_emplace(name);
  for (auto& [name, tenant] : tenants_) {
    tenant.has_own_weight = options_.weights.contains(name);
    tenant.account.weight = weight_of(name);
  }
}

std::optional<Error> Tenants::check_limits(const std::string& name, uint64_t bytes, uint64_t total_reserved) {
  std::optional<Error> error;
  if (options_.session_memory_limit != 0 && bytes > options_.session_memory_limit) {
    error = Error{Errc::kMemoryLimit, needs(bytes) + "of a session is " +
                                          std::to_string(options_.session_memory_limit) + " bytes" +
                                          remedy("--session-memory-limit")};
  }
  Tenant& tenant = find_or_add(name);
  if (!error && options_.tenant_memory_limit != 0) {
    error = check_limit("of tenant \"" + name + "\" ", "--tenant-memory-limit", bytes,
                        options_.tenant_memory_limit, tenant.reserved_bytes);
  }
  if (!error) error = check_limit("", "--memory-limit", bytes, options_.memory_limit, total_reserved);
  if (error) ++tenant.refused;
  return error;
}

uint32_t Tenants::weight_of(const std::string& name) const {
  const auto own = options_.weights.find(name);
  return own == options_.weights.end() ? options_.default_weight : own->second;
}

Tenants::Tenant& Tenants::find_or_add(const std::string& name) {
  if (const auto found = tenants_.find(name); found != tenants_.end()) return found->second;
  // Clients choose the names, so the number of remembered tenants must be bounded.
  if (tenants_.size() >= kMaxRemembered + options_.weights.size()) {
    std::erase_if(tenants_, [](const auto& t) { return !t.second.has_own_weight && t.second.sessions == 0; });
  }
  Tenant& added = tenants_[name];
  added.account.weight = weight_of(name);
  return added;
}

FairAccount& Tenants::account(const std::string& name) {
  return find_or_add(name).account;
}

void Tenants::reserve(const std::string& name, uint64_t bytes) noexcept {
  const auto found = tenants_.find(name);
  SLUICE_ASSERT(found != tenants_.end());
  found->second.reserved_bytes += bytes;
  ++found->second.sessions;
}

void Tenants::release(const std::string& name, uint64_t bytes, uint64_t served_bytes) {
  const auto found = tenants_.find(name);
  SLUICE_ASSERT(found != tenants_.end() && found->second.sessions > 0);
  found->second.reserved_bytes -= bytes;
  found->second.served_bytes += served_bytes;
  --found->second.sessions;
}

nlohmann::json Tenants::status(const std::map<std::string, uint64_t>& open_bytes) const {
  std::vector<const std::pair<const std::string, Tenant>*> order;
  for (const auto& t : tenants_) order.push_back(&t);
  const auto more = [](const auto* a, const auto* b) {
    return std::pair(a->second.reserved_bytes, a->second.refused) >
           std::pair(b->second.reserved_bytes, b->second.refused);
  };
  std::ranges::stable_sort(order, more);
  nlohmann::json list = nlohmann::json::array();
  for (const auto* entry : order) {
    if (list.size() == kMaxListed) break;
    const auto& [name, t] = *entry;
    const auto open = open_bytes.find(name);
    list.push_back({{"tenant", name},
                    {"weight", t.account.weight},
                    {"sessions", t.sessions},
                    {"reserved_bytes", t.reserved_bytes},
                    {"served_bytes", t.served_bytes + (open == open_bytes.end() ? 0 : open->second)},
                    {"refused", t.refused}});
  }
  return list;
}

}  // namespace sluice::reducer
