// Reads the format that CLUSTER_SPEC and TF_CONFIG share: lists of "host:port" by role, and a task that names
// this process's entry.
#pragma once

#include <string>
#include <vector>

#include "config/discovery/discovery_result.h"
#include "config/discovery/json_node.h"

namespace sluice::config::discovery {

struct RoleNames {
  const char* reducers;              // key of the reducer list in `cluster`
  std::vector<std::string> workers;  // keys of the worker lists, in the order of worker indexes
};

// Returns the reducers of the document and this process's role. Returns NotConfigured when the reducer list
// is missing or empty. Without a `task` member the role is unknown.
[[nodiscard]] SourceResult read_roles(const JsonNode& document, const RoleNames& names);

}  // namespace sluice::config::discovery
