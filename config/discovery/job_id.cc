#include <algorithm>
#include <string_view>

#include "config/discovery/sources.h"

namespace sluice::config::discovery {
namespace {

constexpr size_t kLongest = 256;

bool is_name(const std::string& text) {
  return text.size() <= kLongest && std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

// Of the launchers, the one nearest to the processes first. torchrun says "none" where nobody gave an id.
constexpr std::string_view kOfLaunchers[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "TRAINING_JOB_NAME",
                                             "PMIX_NAMESPACE"};

}  // namespace

Result<std::string> job_id(const Surroundings& here) {
  if (auto own = here.variable("SLUICE_JOB_ID")) {
    if (is_name(*own)) return std::move(*own);
    return fail(Errc::kInvalidArgument, "SLUICE_JOB_ID: 1 to " + std::to_string(kLongest) +
                                            " printable characters without spaces are wanted");
  }
  for (const std::string_view variable : kOfLaunchers) {
    auto said = here.variable(variable);
    if (said && *said != "none" && is_name(*said)) return std::move(*said);
  }
  return std::string();
}

}  // namespace sluice::config::discovery
