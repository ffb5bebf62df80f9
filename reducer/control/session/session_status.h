// session_status(): one session in the reducer's status. Control thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "reducer/control/session/session.h"
#include "wire/extension.h"

namespace sluice::reducer {

// JSON keys and metric labels of the kinds of findings, in their order.
inline constexpr std::array<const char*, wire::kFindingKindCount> kFindingNames = {"non_finite", "outlier",
                                                                                   "zeros"};

// The id of a reducer in hexadecimal, because JSON readers may keep only 53 bits of a number.
[[nodiscard]] std::string id_text(uint64_t id);
// Names at most `max_ranks` ranks for each property.
[[nodiscard]] nlohmann::json session_status(ControlLoop& loop, const Session& session, size_t max_ranks);

}  // namespace sluice::reducer
