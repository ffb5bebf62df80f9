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
#include "wire/sha256.h"

namespace sluice::bench {

// The identity of a tool; a pool without a key needs no token.
struct Credentials {
  std::string job = "default";
  std::optional<wire::Digest> token;
};

// Reads a pool key or a job token; without files the credentials have no token. Errors: those of
// read_secret_file().
[[nodiscard]] Result<Credentials> read_credentials(const std::string& key_file, const std::string& token_file,
                                                   const std::string& job);

// Returns the status of a reducer as JSON text. Errors: kUnauthenticated when the reducer refuses the token
// or does not prove that it knows the token; kTimeout, kReset or kSystem when it is not reachable within
// `timeout`.
[[nodiscard]] Result<std::string> query_status(const config::Endpoint& reducer,
                                               const Credentials& credentials, Nanos timeout);

// The resources that the reducers of a pool have used since their start. The difference of two values is the
// cost of the work in between.
struct PoolUsage {
  double cpu_seconds = 0;
  double bytes_received = 0;  // payload of the contributions that were reduced
};
[[nodiscard]] Result<PoolUsage> query_usage(const std::vector<config::Endpoint>& pool,
                                            const Credentials& credentials, Nanos timeout);

// Class PoolCpuMeter measures the CPU time of the reducers of a pool per byte received.
class PoolCpuMeter {
 public:
  PoolCpuMeter(std::vector<config::Endpoint> pool, Credentials credentials)
      : pool_(std::move(pool)), credentials_(std::move(credentials)) {}

  // Begins a measurement.
  void start();
  // Returns the CPU seconds per 1e9 bytes since start(); -1 without start(), or when the reducers did not
  // answer or received nothing.
  [[nodiscard]] double seconds_per_gb() const;

 private:
  std::vector<config::Endpoint> pool_;
  Credentials credentials_;
  std::optional<PoolUsage> before_;
};

}  // namespace sluice::bench
