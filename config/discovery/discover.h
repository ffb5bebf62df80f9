// Who am I, and where are the reducers? Asks the sources in order until one of them knows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/discovery/found.h"
#include "config/discovery/surroundings.h"

namespace sluice::config::discovery {

struct Outcome {
  std::optional<Found> found;
  struct Passed {
    Source source;
    std::string why;
  };
  std::vector<Passed> passed;  // those that were asked before, or all when nothing was found
};

// The words of SLUICE_DISCOVERY: "auto", "none" and the sources' names.
[[nodiscard]] std::string source_words();
[[nodiscard]] bool is_source_word(std::string_view word) noexcept;

// `wanted` is one of those words; empty: what SLUICE_DISCOVERY says, else auto. With auto a source that is
// there and wrong ends the search: a job that goes on with half of its nodes elsewhere would hang.
// kInvalidArgument and kSystem: what is configured is wrong. kTimeout: the network did not say in time.
// Blocks only where the DNS is asked, at most SLUICE_DISCOVERY_TIMEOUT.
[[nodiscard]] Result<Outcome> discover(const Surroundings& here, std::string_view wanted = {});

}  // namespace sluice::config::discovery
