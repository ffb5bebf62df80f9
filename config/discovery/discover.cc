#include "config/discovery/discover.h"

#include <algorithm>
#include <utility>

#include "config/discovery/sources.h"
#include "config/plain_text.h"

namespace sluice::config::discovery {
namespace {

Answer ask(Source source, const Surroundings& here, bool by_name) {
  switch (source) {
    case Source::kStatic: return from_static_list(here);
    case Source::kFile: return from_file(here);
    case Source::kClusterSpec: return from_cluster_spec(here);
    case Source::kTfConfig: return from_tf_config(here, by_name);
    case Source::kSageMaker: return from_sagemaker(here);
    case Source::kKubernetes: return from_kubernetes(here);
    case Source::kSlurm: return from_slurm(here);
  }
  return NotHere{.why = "no such source"};
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

std::string source_words() {
  std::string words = "auto";
  for (const Source source : kSources) words += ", " + std::string(to_string(source));
  return words + ", none";
}

bool is_source_word(std::string_view word) noexcept {
  return word == "auto" || word == "none" ||
         std::ranges::any_of(kSources, [&](Source source) { return word == to_string(source); });
}

Result<Outcome> discover(const Surroundings& here, std::string_view wanted) {
  const std::string said = here.variable("SLUICE_DISCOVERY").value_or("auto");
  const std::string where = wanted.empty() ? "SLUICE_DISCOVERY=" + plain(said) : plain(wanted);
  if (wanted.empty()) wanted = said;
  Outcome outcome;
  if (wanted == "none") return outcome;
  const bool any = wanted == "auto";
  const auto is_wanted = [&](Source source) { return any || to_string(source) == wanted; };
  if (std::ranges::none_of(kSources, is_wanted))
    return fail(Errc::kInvalidArgument, where + " is none of " + source_words());

  for (const Source source : kSources) {
    if (!is_wanted(source)) continue;
    auto answer = ask(source, here, !any);
    if (!answer) return tl::unexpected(answer.error());
    if (auto* not_here = std::get_if<NotHere>(&*answer)) {
      outcome.passed.push_back({.source = source, .why = std::move(not_here->why)});
      continue;
    }
    auto job = job_id(here);
    if (!job) return tl::unexpected(job.error());
    outcome.found = std::get<Found>(std::move(*answer));
    outcome.found->source = source;
    outcome.found->job = std::move(*job);
    break;
  }
  return outcome;
}

}  // namespace sluice::config::discovery
