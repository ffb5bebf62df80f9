// Asks running reducers for their status: HELLO, STATUS_QUERY, STATUS_REPLY (wire/PROTOCOL.md sections 4 and
// 5). Cold path.
#pragma once

#include <optional>
#include <string>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "wire/sha256.h"

namespace sluice::bench {

// What a tool proves itself with; a pool without a key needs neither.
struct Credentials {
  std::string job = "default";
  std::optional<wire::Digest> token;
};

// From a pool key or from a job token; both empty: none. Errors: what the file reader says.
[[nodiscard]] Result<Credentials> read_credentials(const std::string& key_file, const std::string& token_file,
                                                   const std::string& job);

// The JSON text of one reducer. kUnauthenticated when it refuses this token, or does not prove that it knows
// it; kTimeout, kReset, kSystem when it can't be reached within `timeout`.
[[nodiscard]] Result<std::string> query_status(const config::Endpoint& reducer,
                                               const Credentials& credentials, Nanos timeout);

// What a pool has used so far, added up over its reducers; differences of two are what a stretch of work
// cost.
struct PoolUsage {
  double cpu_seconds = 0;
  double bytes_received = 0;  // payload of contributions that went into sums
};
[[nodiscard]] Result<PoolUsage> query_usage(const std::vector<config::Endpoint>& pool,
                                            const Credentials& credentials, Nanos timeout);

}  // namespace sluice::bench
