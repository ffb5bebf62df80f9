// A reducer's status in the text format of Prometheus. docs/reference/metrics.md describes the metrics.
//
// No label has a value that clients choose (job, tenant, rank, address), except the names of models: the
// status lists a bounded number of them.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/result.h"
#include "reducer/admin/host_facts.h"

namespace sluice::reducer::admin {

// Text format 0.0.4. `status` is the JSON of Reducer::status_json(); `build` has the labels of
// sluice_build_info besides the version. kUnsupported in a build without prometheus-cpp.
[[nodiscard]] Result<std::string> metrics_text(const nlohmann::json& status,
                                               const std::map<std::string, std::string>& build,
                                               const HostFacts& host);

}  // namespace sluice::reducer::admin
