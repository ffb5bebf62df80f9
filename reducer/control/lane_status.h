// The lanes' part of a reducer's status.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "reducer/lane/lane_counters.h"
#include "reducer/lane/lane_thread.h"

namespace sluice::reducer {

// Adds the sums of the lanes' counters to `status`: data, transports, folded, operations, straggler_waits,
// operation_durations, lane_busy_seconds and lane_fold_seconds. `rdma_pairs` is the number of open lane
// connections that use RDMA. Any thread.
void add_lanes(nlohmann::json& status, std::span<const std::unique_ptr<LaneThread>> lanes,
               uint64_t rdma_pairs);

// Adds the counts that are not 0 to `into`, by the name of the reason.
void add_reasons(nlohmann::json& into, const std::array<Counter, kErrcCounters>& counts);

}  // namespace sluice::reducer
