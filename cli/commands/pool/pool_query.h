// Queries all reducers of a pool for their status, for `sluice top`, `sluice check pool` and `sluice wait`.
//
// Blocks on the network. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/e2e/pool/pool_status.h"
#include "config/endpoints.h"
#include "core/units.h"

namespace sluice::cli {

struct PoolSample {
  struct Reducer {
    std::string name;                 // "host:port"
    Nanos at = 0;                     // time of the reply
    nlohmann::json status = nullptr;  // null: no reply
    std::string error = {};
  };
  std::vector<Reducer> reducers;  // in the order of the list
};

// Queries in parallel, so that an unreachable reducer does not delay the others. Each has `timeout`.
[[nodiscard]] PoolSample query_pool(const std::vector<config::Endpoint>& pool,
                                    const engine::Identity& identity, Nanos timeout);

}  // namespace sluice::cli
