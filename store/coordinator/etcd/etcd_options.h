// Where etcd is, and how its coordinator uses it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::store {

inline constexpr uint16_t kEtcdPort = 2379;

struct EtcdOptions {
  std::vector<config::Endpoint> endpoints;  // servers of one etcd cluster
  std::string root = "sluice/";             // precedes all keys, so that others can use the same etcd
  Nanos request_timeout = 2 * kSecond;      // of a call, with all servers that it tries
  // etcd's history of all keys that is kept, and how many changes are compacted at once at least.
  Nanos history = 300 * kSecond;
  int64_t least_compacted = 1000;
};

// Parses "etcd://host[:port],...", or "http://host[:port],...", without user, path and weights. Errors:
// kInvalidArgument; kUnsupported for https.
[[nodiscard]] Result<EtcdOptions> parse_etcd_url(std::string_view url);

}  // namespace sluice::store
