// Finds this process's role and the reducer addresses from the platform's environment. The sources are tried
// in order until one of them is configured.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/discovery/discovery_result.h"
#include "config/discovery/environment.h"

namespace sluice::config::discovery {

struct Outcome {
  std::optional<DiscoveryResult> result;  // empty: no source is configured
  struct SkippedSource {
    Source source;
    std::string reason;
  };
  std::vector<SkippedSource> skipped;  // the sources tried before `result` was found
};

// Returns the accepted values of SLUICE_DISCOVERY: "auto", "none" and the names of the sources.
[[nodiscard]] std::string source_names();
[[nodiscard]] bool is_source_name(std::string_view name) noexcept;

// `source` is one of source_names(); empty: the value of SLUICE_DISCOVERY, otherwise auto. With auto, a
// source that is configured wrongly ends the search: continuing could split the nodes of one job over two
// pools, and the job would hang. Returns kInvalidArgument or kSystem for a wrong configuration, kTimeout when
// DNS did not answer in time. Blocks only for DNS, at most SLUICE_DISCOVERY_TIMEOUT.
[[nodiscard]] Result<Outcome> discover(const Environment& env, std::string_view source = {});

}  // namespace sluice::config::discovery
