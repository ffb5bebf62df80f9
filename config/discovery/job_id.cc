#include <algorithm>
#include <string_view>

#include "config/discovery/sources.h"

namespace sluice::config::discovery {
namespace {

constexpr size_t kMaxJobId = 256;

bool is_job_id(const std::string& text) {
  return text.size() <= kMaxJobId && std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

// The innermost launcher comes first. torchrun sets "none" when the user gave no id.
constexpr std::string_view kLauncherVariables[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "TRAINING_JOB_NAME",
                                                   "PMIX_NAMESPACE"};

}  // namespace

Result<std::string> job_id(const Environment& env) {
  if (auto own = env.variable("SLUICE_JOB_ID")) {
    if (is_job_id(*own)) return std::move(*own);
    return fail(Errc::kInvalidArgument, "SLUICE_JOB_ID: expected 1 to " + std::to_string(kMaxJobId) +
                                            " printable characters without spaces");
  }
  for (const std::string_view variable : kLauncherVariables) {
    auto value = env.variable(variable);
    if (value && *value != "none" && is_job_id(*value)) return std::move(*value);
  }
  return std::string();
}

}  // namespace sluice::config::discovery
