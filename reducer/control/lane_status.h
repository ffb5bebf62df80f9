// What the lanes of a reducer have done, as its status shows it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "reducer/lane/lane_counters.h"
#include "reducer/lane/lane_thread.h"

namespace sluice::reducer {

// Adds to `status`: data, transports, folded, operations, straggler_waits, operation_durations,
// lane_busy_seconds, lane_fold_seconds. `rdma_pairs`: lane connections that are there now and go over a
// device. Any thread.
void add_lanes(nlohmann::json& status, std::span<const std::unique_ptr<LaneThread>> lanes,
               uint64_t rdma_pairs);

// Adds to `into` what is not 0, by the reason's name.
void add_reasons(nlohmann::json& into, const std::array<Counter, kErrcSlots>& counts);

}  // namespace sluice::reducer
