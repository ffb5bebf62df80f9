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
  }
  return NotConfigured{.reason = "unknown source"};
}

}  // namespace

std::string_view to_string(Role role) noexcept {
  switch (role) {
    case Role::kReducer: return "reducer";
    case Role::kWorker: return "worker";
    case Role::kUnknown: break;
  }
  return "unknown";
}

std::string_view to_string(Source source) noexcept {
  switch (source) {
    case Source::kStatic: return "static";
    case Source::kFile: return "file";
    case Source::kClusterSpec: return "cluster-spec";
    case Source::kTfConfig: return "tf-config";
    case Source::kSageMaker: return "sagemaker";
    case Source::kKubernetes: return "kubernetes";
    case Source::kSlurm: return "slurm";
  }
  return "unknown";
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
    return fail(Errc::kInvalidArgument, origin + ": expected one of " + source_names());

  for (const Source source : kSources) {
    if (!is_selected(source)) continue;
    auto queried = query_source(source, env, !try_all);
    if (!queried) return tl::unexpected(queried.error());
    if (auto* not_configured = std::get_if<NotConfigured>(&*queried)) {
      outcome.skipped.push_back({.source = source, .reason = std::move(not_configured->reason)});
      continue;
    }
    auto job = job_id(env);
    if (!job) return tl::unexpected(job.error());
    outcome.result = std::get<DiscoveryResult>(std::move(*queried));
    outcome.result->source = source;
    outcome.result->job = std::move(*job);
    break;
  }
  return outcome;
}

}  // namespace sluice::config::discovery
