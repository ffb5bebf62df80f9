// Decides whether the reducers of a pool are ready, for `sluice check pool` and `sluice wait`.
//
// A pure function of their status.
#pragma once

#include <string>
#include <vector>

#include "cli/commands/pool/pool_query.h"

namespace sluice::cli {

struct PoolCheck {
  std::vector<std::string> reducers;  // a line for each, in the order of the list
  std::vector<std::string> problems;  // why the pool is not ready; empty: it is
  std::vector<std::string> notes;     // what could not be checked
};

// The pool is ready if every reducer answers and accepts sessions, and every fault-tolerant session is on all
// of them with all ranks and in one view. Then any one of them may be drained: its sessions have the others.
// Sessions without fault tolerance keep their first reducers and are not judged.
[[nodiscard]] PoolCheck check_pool(const PoolSample& sample);

}  // namespace sluice::cli
