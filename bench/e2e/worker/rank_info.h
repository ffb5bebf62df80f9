// Describes the ranks of a run for the reports, and divides them into hosts. Struct RankInfo is one rank;
// ranks exchange it with WorkerSession::gather().
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
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

// Makes this process a rank of its host, before it creates a session: SLUICE_HOST_ID divides the ranks of a
// machine into hosts of `ranks_per_host` consecutive ranks, and SLUICE_HOSTS lets those of a host send their
// sum once.
void join_host(uint32_t rank, uint32_t ranks_per_host);

// Returns the number of hosts, or of workers if the library finds the hosts.
[[nodiscard]] uint32_t host_count(const WorkerOptions& worker) noexcept;
// Returns "4 workers", or "4 workers on 2 hosts x 2 ranks".
[[nodiscard]] std::string workers_text(const WorkerOptions& worker);
// Returns the number for JSON files; null if the library finds the hosts.
[[nodiscard]] nlohmann::ordered_json ranks_per_host_json(const WorkerOptions& worker);

}  // namespace sluice::bench
