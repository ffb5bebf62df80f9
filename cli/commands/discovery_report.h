// Runs discovery for `sluice discover` and `sluice auto`, and formats its results.
#pragma once

#include <string>

#include "config/discovery/discover.h"

namespace sluice::cli {

// Queries the named source; empty: SLUICE_DISCOVERY, otherwise auto. Throws Failure: kExitConfig for an
// invalid configuration, kExitUnavailable when DNS does not answer in time.
[[nodiscard]] config::discovery::Outcome discover_or_fail(const std::string& source);

// Returns "static: SLUICE_REDUCERS is not set; file: ...".
[[nodiscard]] std::string skipped_sources_text(const config::discovery::Outcome& outcome);
// Returns "role reducer 1, 2 reducers, 3 workers, source cluster-spec, job 77; trial 3".
[[nodiscard]] std::string discovery_text(const config::discovery::DiscoveryResult& result);
// Returns "a:7470,b:7471*2", the format of SLUICE_REDUCERS.
[[nodiscard]] std::string endpoint_list(const config::discovery::DiscoveryResult& result);

}  // namespace sluice::cli
