// Class Tenants keeps each tenant's memory reservation, limit, weight and counters.
//
// Control thread only.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/result.h"
#include "reducer/fair/fair_shares.h"
#include "reducer/reducer.h"

namespace sluice::reducer {

class Tenants {
 public:
  // Bound on the tenants that are remembered without a session and without a weight of their own.
  static constexpr size_t kMaxRemembered = 256;
  // Bound on the tenants in status().
  static constexpr size_t kMaxListed = 16;

  struct Tenant {
    FairAccount account;
    bool has_own_weight = false;  // set by the operator: never forgotten
    uint64_t reserved_bytes = 0;
    uint32_t sessions = 0;
    uint64_t refused = 0;       // joins refused by a memory limit
    uint64_t served_bytes = 0;  // of ended sessions
  };

  // `options` must outlive this object.
  explicit Tenants(const ReducerOptions& options);

  // Applies changed weights of the options. The caller prevents concurrent updates of the fair shares.
  void update_weights();

  [[nodiscard]] uint32_t weight_of(const std::string& name) const;
  // The error if `name` cannot reserve `bytes` for a session, which is counted; empty if it can.
  // `total_reserved` is the reservation of all tenants.
  [[nodiscard]] std::optional<Error> check_limits(const std::string& name, uint64_t bytes,
                                                  uint64_t total_reserved);
  // Call right after check_limits(). The reference stays valid while the tenant has a reservation.
  [[nodiscard]] FairAccount& account(const std::string& name);
  void reserve(const std::string& name, uint64_t bytes) noexcept;
  void release(const std::string& name, uint64_t bytes, uint64_t served_bytes);

  // The tenants with the most reserved memory, then the most refusals. `open_bytes`: served by open sessions,
  // by tenant.
  [[nodiscard]] nlohmann::json status(const std::map<std::string, uint64_t>& open_bytes) const;

 private:
  Tenant& find_or_add(const std::string& name);

  const ReducerOptions& options_;
  std::map<std::string, Tenant> tenants_;
};

}  // namespace sluice::reducer
