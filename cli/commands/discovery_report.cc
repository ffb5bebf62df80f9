#include "cli/commands/discovery_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include "bench/e2e/process/exit_codes.h"

namespace sluice::cli {

namespace discovery = config::discovery;
using bench::Failure;

discovery::Outcome discover_or_fail(const std::string& source) {
  auto outcome = discovery::discover(discovery::process_environment(environ), source);
  if (outcome) return std::move(*outcome);
  const Error& e = outcome.error();
  throw Failure(e.code == Errc::kTimeout ? bench::kExitUnavailable : bench::kExitConfig, e.text);
}

std::string skipped_sources_text(const discovery::Outcome& outcome) {
  std::string out;
  for (const auto& skipped : outcome.skipped)
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", discovery::to_string(skipped.source),
                       skipped.reason);
  return out;
}

std::string discovery_text(const discovery::DiscoveryResult& result) {
  std::string out = fmt::format("role {}", discovery::to_string(result.role));
  if (result.index) out += fmt::format(" {}", *result.index);
  out += fmt::format(", {} reducers", result.reducers.size());
  if (result.workers != 0) out += fmt::format(", {} workers", result.workers);
  out += fmt::format(", source {}", discovery::to_string(result.source));
  if (!result.job.empty()) out += fmt::format(", job {}", result.job);
  for (const std::string& note : result.notes) out += "; " + note;
  return out;
}

std::string endpoint_list(const discovery::DiscoveryResult& result) {
  std::string out;
  for (const config::Endpoint& e : result.reducers) out += (out.empty() ? "" : ",") + config::to_string(e);
  return out;
}

}  // namespace sluice::cli
