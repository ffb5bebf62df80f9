// Whose sessions are at this reducer: what each tenant may reserve, has reserved, and weighs beside others.
// Conductor thread only.
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
  // Of refusals and bytes of tenants that have no session and no weight of their own, so many are remembered.
  static constexpr size_t kRemembered = 256;
  // In status.
  static constexpr size_t kListed = 16;

  struct Tenant {
    FairAccount account;
    bool given = false;  // a weight by the operator: never forgotten
    uint64_t reserved_bytes = 0;
    uint32_t sessions = 0;
    uint64_t refused = 0;       // for memory
    uint64_t served_bytes = 0;  // of sessions that are over
  };

  // `options` outlives it.
  explicit Tenants(const ReducerOptions& options);

  // After a change of the options' weights. While no turn of the shares reads them.
  void weigh_again();

  [[nodiscard]] uint32_t weight_of(const std::string& name) const;
  // Why a session of `bytes` can't be had for `name`; counted. `reserved_in_all` is the pool's.
  [[nodiscard]] std::optional<Error> refuses(const std::string& name, uint64_t bytes,
                                             uint64_t reserved_in_all);
  // Of a tenant that refuses() was asked of last; stays where it is while the tenant has reserved something.
  [[nodiscard]] FairAccount& account(const std::string& name);
  void reserve(const std::string& name, uint64_t bytes) noexcept;
  void release(const std::string& name, uint64_t bytes, uint64_t served_bytes);

  // The largest by reserved memory, then by refusals, at most kListed. `open_bytes`: served by open sessions.
  [[nodiscard]] nlohmann::json status(const std::map<std::string, uint64_t>& open_bytes) const;

 private:
  Tenant& find(const std::string& name);

  const ReducerOptions& options_;
  std::map<std::string, Tenant> tenants_;
};

}  // namespace sluice::reducer
