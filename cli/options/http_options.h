// Converts --http-listen of a reducer.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/admin/http_server.h"

namespace sluice::cli {

inline constexpr uint16_t kHttpPort = 9470;

// Throws Failure(kExitUsage).
[[nodiscard]] reducer::admin::HttpOptions http_options(const std::string& listen);

}  // namespace sluice::cli
