// Queries running reducers for their status: HELLO, STATUS_QUERY, STATUS_REPLY (docs/reference/protocol.md
// sections 4 and 5). Cold path.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/join/handshake.h"

namespace sluice::bench {

// The credentials that the variables name, to which commands export their options. Throws
// Failure(kExitConfig).
[[nodiscard]] engine::Identity identity_of_process();

// Returns the status of a reducer as JSON text. Errors: kUnauthenticated when the reducer refuses the token
// or does not prove that it knows the token; kTimeout, kReset or kSystem when it is not reachable within
// `timeout`.
[[nodiscard]] Result<std::string> query_status(const config::Endpoint& reducer,
                                               const engine::Identity& identity, Nanos timeout);

struct StatusAnswer {
  wire::Welcome welcome;
  std::string json;
};
// The same on a connection with this purpose: kStatus, or kDrain, which makes the reducer drain.
[[nodiscard]] Result<StatusAnswer> request_status(const config::Endpoint& reducer,
                                                  const engine::Identity& identity, wire::Purpose purpose,
                                                  Nanos timeout);

// The resources that the reducers of a pool have used since their start. The difference of two values is the
// cost of the work in between.
struct PoolUsage {
  double cpu_seconds = 0;
  double bytes_received = 0;  // payload of the contributions that were reduced
};
[[nodiscard]] Result<PoolUsage> query_usage(const std::vector<config::Endpoint>& pool,
                                            const engine::Identity& identity, Nanos timeout);

// Class PoolCpuMeter measures the CPU time of the reducers of a pool per byte received.
class PoolCpuMeter {
 public:
  PoolCpuMeter(std::vector<config::Endpoint> pool, engine::Identity identity)
      : pool_(std::move(pool)), identity_(std::move(identity)) {}

  // Begins a measurement.
  void start();
  // Returns the CPU seconds per 1e9 bytes since start(); -1 without start(), or when the reducers did not
  // answer or received nothing.
  [[nodiscard]] double seconds_per_gb() const;

 private:
  std::vector<config::Endpoint> pool_;
  engine::Identity identity_;
  std::optional<PoolUsage> before_;
};

}  // namespace sluice::bench
