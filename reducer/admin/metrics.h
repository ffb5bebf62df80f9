// A reducer's status as Prometheus reads it: docs/metrics.md has the names and what they mean. No label has
// values that clients choose: no job, tenant, rank or address.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/result.h"
#include "reducer/admin/host_facts.h"

namespace sluice::reducer::admin {

// Text format 0.0.4. `status`: Conductor::status_json(). `build`: labels of sluice_build_info beside the
// version. kUnsupported in a build without prometheus-cpp.
[[nodiscard]] Result<std::string> metrics_text(const nlohmann::json& status,
                                               const std::map<std::string, std::string>& build,
                                               const HostFacts& host);

}  // namespace sluice::reducer::admin
