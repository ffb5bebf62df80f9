#include "config/discovery/discover.h"

#include <algorithm>
#include <utility>

#include "config/discovery/sources.h"
#include "config/printable_text.h"

namespace sluice::config::discovery {
namespace {

SourceResult query_source(Source source, const Environment& env, bool requested) {
  switch (source) {
    case Source::kStatic: return from_static_list(env);
    case Source::kFile: return from_file(env);
    case Source::kClusterSpec: return from_cluster_spec(env);
    case Source::kTfConfig: return from_tf_config(env, requested);
    case Source::kSageMaker: return from_sagemaker(env);
    case Source::kKubernetes: return from_kubernetes(env);
    case Source::kSlurm: return from_slurm(env);
    case Source::kJobHosts: return from_job_hosts(env);
  }
  return NotConfigured{.reason = "unknown source"};
}

constexpr size_t kMaxJobId = 256;

bool is_job_id(const std::string& text) {
  return text.size() <= kMaxJobId && std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

// The innermost launcher comes first. torchrun sets "none" when the user gave no id.
constexpr std::string_view kLauncherVariables[] = {
    "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID",    "TRAINING_JOB_NAME", "CLOUD_ML_JOB_ID",
    "SKYPILOT_TASK_ID",    "PBS_JOBID",       "LSB_JOBID",         "FLUX_JOB_ID",
    "AWS_BATCH_JOB_ID",    "AZ_BATCH_JOB_ID", "RAY_JOB_ID",        "PMIX_NAMESPACE"};

// Returns SLUICE_JOB_ID, otherwise the job name set by a launcher, otherwise an empty string. Returns
// kInvalidArgument when SLUICE_JOB_ID is not a valid name; an invalid name from a launcher is skipped.
Result<std::string> job_id(const Environment& env) {
  if (auto own = env.variable("SLUICE_JOB_ID")) {
    if (is_job_id(*own)) return std::move(*own);
    return invalid("SLUICE_JOB_ID: expected 1 to " + std::to_string(kMaxJobId) +
                   " printable characters without spaces");
  }
  for (const std::string_view variable : kLauncherVariables) {
    auto value = env.variable(variable);
    // The trials of a hyperparameter search on Vertex AI have the same job id.
    if (value && variable == "CLOUD_ML_JOB_ID") {
      if (const auto trial = env.variable("CLOUD_ML_TRIAL_ID")) *value += "." + *trial;
    }
    if (value && *value != "none" && is_job_id(*value)) return std::move(*value);
  }
  return std::string();
}

// Names the reducers of the platform that SLUICE_REDUCERS replaces, because a job with both is often a
// mistake.
std::optional<std::string> replaced_reducers(const Environment& env, const std::vector<Endpoint>& used) {
  for (const Source source : {Source::kClusterSpec, Source::kTfConfig, Source::kSageMaker}) {
    const SourceResult queried = query_source(source, env, false);
    const auto* const found = queried ? std::get_if<DiscoveryResult>(&*queried) : nullptr;
    if (found == nullptr) continue;
    if (found->reducers == used) return std::nullopt;
    return "SLUICE_REDUCERS replaces the " + std::to_string(found->reducers.size()) + " reducers of " +
           std::string(to_string(source));
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Role role) noexcept {
  static constexpr std::string_view kNames[] = {"unknown", "reducer", "worker"};
  return kNames[static_cast<size_t>(role)];
}

std::string_view to_string(Source source) noexcept {
  static constexpr std::string_view kNames[] = {"static",    "file",       "cluster-spec", "tf-config",
                                                "sagemaker", "kubernetes", "slurm",        "job-hosts"};
  static_assert(std::size(kNames) == std::size(kSources));
  return kNames[static_cast<size_t>(source)];
}

std::string source_names() {
  std::string names = "auto";
  for (const Source source : kSources) names += ", " + std::string(to_string(source));
  return names + ", none";
}

bool is_source_name(std::string_view name) noexcept {
  return name == "auto" || name == "none" ||
         std::ranges::any_of(kSources, [&](Source source) { return name == to_string(source); });
}

Result<Outcome> discover(const Environment& env, std::string_view requested) {
  const std::string variable = env.variable("SLUICE_DISCOVERY").value_or("auto");
  const std::string origin =
      requested.empty() ? "SLUICE_DISCOVERY=" + printable(variable) : printable(requested);
  if (requested.empty()) requested = variable;
  Outcome outcome;
  if (requested == "none") return outcome;
  const bool try_all = requested == "auto";
  const auto is_selected = [&](Source source) { return try_all || to_string(source) == requested; };
  if (std::ranges::none_of(kSources, is_selected))
    return invalid(origin + ": expected one of " + source_names());

  for (const Source source : kSources) {
    if (!is_selected(source)) continue;
    SLUICE_ASSIGN_OR_RETURN(queried, query_source(source, env, !try_all));
    if (auto* not_configured = std::get_if<NotConfigured>(&queried)) {
      outcome.skipped.push_back({.source = source, .reason = std::move(not_configured->reason)});
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(job, job_id(env));
    outcome.result = std::get<DiscoveryResult>(std::move(queried));
    outcome.result->source = source;
    outcome.result->job = std::move(job);
    if (source == Source::kStatic || source == Source::kFile) {
      if (auto note = replaced_reducers(env, outcome.result->reducers))
        outcome.result->notes.push_back(std::move(*note));
    }
    break;
  }
  return outcome;
}

}  // namespace sluice::config::discovery
