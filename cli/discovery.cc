#include "cli/discovery.h"

#include <fmt/format.h>
#include <unistd.h>

#include "bench/e2e/exit_codes.h"

namespace sluice::cli {

namespace discovery = config::discovery;
using bench::Failure;

discovery::Outcome discover_here(const std::string& source) {
  auto outcome = discovery::discover(discovery::process_surroundings(environ), source);
  if (outcome) return std::move(*outcome);
  const Error& e = outcome.error();
  throw Failure(e.code == Errc::kTimeout ? bench::kExitUnavailable : bench::kExitConfig, e.text);
}

std::string words_on_passed(const discovery::Outcome& outcome) {
  std::string out;
  for (const auto& passed : outcome.passed)
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", discovery::to_string(passed.source), passed.why);
  return out;
}

std::string words_on(const discovery::Found& found) {
  std::string out = fmt::format("role {}", discovery::to_string(found.role));
  if (found.index) out += fmt::format(" {}", *found.index);
  out += fmt::format(", {} reducers", found.reducers.size());
  if (found.workers != 0) out += fmt::format(", {} workers", found.workers);
  out += fmt::format(", by {}", discovery::to_string(found.source));
  if (!found.job.empty()) out += fmt::format(", job {}", found.job);
  for (const std::string& note : found.notes) out += "; " + note;
  return out;
}

std::string list_of(const discovery::Found& found) {
  std::string out;
  for (const config::Endpoint& e : found.reducers) out += (out.empty() ? "" : ",") + config::to_string(e);
  return out;
}

}  // namespace sluice::cli
