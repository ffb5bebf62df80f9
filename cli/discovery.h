// What `sluice discover` and `sluice auto` share: asking the surroundings of this process, in a person's
// words.
#pragma once

#include <string>

#include "config/discovery/discover.h"

namespace sluice::cli {

// By the source of this name; empty: SLUICE_DISCOVERY, else auto. Throws Failure: kExitConfig for what is
// malformed, kExitUnavailable when the network does not say in time, kExitUsage for a name that is none.
[[nodiscard]] config::discovery::Outcome discover_here(const std::string& source);

// "static: SLUICE_REDUCERS is not set; file: ..."
[[nodiscard]] std::string words_on_passed(const config::discovery::Outcome& outcome);
// "role reducer 1 of 2, 3 workers, by cluster-spec, job 77; trial 3"
[[nodiscard]] std::string words_on(const config::discovery::Found& found);
// "a:7470,b:7471*2": as SLUICE_REDUCERS takes it.
[[nodiscard]] std::string list_of(const config::discovery::Found& found);

}  // namespace sluice::cli
