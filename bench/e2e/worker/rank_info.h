// Struct RankInfo describes one rank for the reports. Ranks exchange it with WorkerSession::gather().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/worker/worker_session.h"

namespace sluice::bench {

struct RankInfo {
  uint32_t rank = 0;
  int pid = 0;
  std::string host;  // host name up to the first dot
};

// Returns all ranks of the session in order. Collective.
[[nodiscard]] std::vector<RankInfo> gather_ranks(WorkerSession& session);

}  // namespace sluice::bench
