// What CLUSTER_SPEC and TF_CONFIG share: lists of "host:port" by role, and a task that says which entry this
// process is.
#pragma once

#include <string>
#include <vector>

#include "config/discovery/bounded_json.h"
#include "config/discovery/found.h"

namespace sluice::config::discovery {

struct RoleNames {
  const char* reducers;              // key of the reducers' list in `cluster`
  std::vector<std::string> workers;  // keys of the workers', in the order in which they are numbered
};

// The reducers of the document and this process's part in it. NotHere where the list of reducers is missing
// or empty; `task` may be missing, and the role is unknown then.
[[nodiscard]] Answer read_roles(const JsonPlace& document, const RoleNames& names);

}  // namespace sluice::config::discovery
