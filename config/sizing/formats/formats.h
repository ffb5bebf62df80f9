// Writes a plan as a report and as deployment files, one file per format. All outputs end with a newline.
// Values that the user must supply are shell variables that must be set, or capitalized words that a comment
// explains.
#pragma once

#include <string>
#include <string_view>

#include "config/sizing/plan.h"
#include "core/result.h"

namespace sluice::config {

// Returns a report for people: the verdict, the numbers and the warnings.
[[nodiscard]] std::string plan_as_text(const Plan& plan);

// Returns one JSON object. Existing keys are stable; new keys may be added.
[[nodiscard]] std::string plan_as_json(const Plan& plan);

// Returns an SVG plot of the time of an allreduce by pool size: with co-located reducers, by the pool alone
// and by a ring. The same plan gives the same bytes. Requires pool_sizes.
[[nodiscard]] std::string plan_as_svg(const Plan& plan);

// The formats below require a job name that is_job_name() accepts. They return kInvalidArgument when the plan
// does not fit the platform, such as VM types of another provider or too few nodes.
//
// Returns shell commands that write and create a Vertex AI custom job with its three worker pools: the chief,
// the other workers and the reducers.
[[nodiscard]] Result<std::string> plan_as_gcloud(const Plan& plan, const std::string& job);
// Returns deploy/kubernetes/jobset/jobset.yaml with the plan's numbers. Workers wait until the reducers are
// ready, and the end of the workers ends the job.
[[nodiscard]] Result<std::string> plan_as_jobset(const Plan& plan, const std::string& job);
// Returns an overlay over deploy/kubernetes/overlays/tcp with the number, type and resources of the reducers.
[[nodiscard]] Result<std::string> plan_as_kustomize(const Plan& plan, const std::string& job);
// Returns deploy/slurm/hetjob.sbatch with the plan's numbers: workers in group 0, reducers in group 1.
[[nodiscard]] Result<std::string> plan_as_sbatch(const Plan& plan, const std::string& job);

// True for a DNS label of 1 to 40 of a-z, 0-9 and '-' that begins with a letter and does not end with '-'.
[[nodiscard]] bool is_job_name(std::string_view text) noexcept;

// Returns the verdict and the warnings in lines of at most 100 characters that begin with "# ".
[[nodiscard]] std::string plan_as_comment(const Plan& plan);

// Returns the CPUs that a reducer's container or task requests: an integer, one more than it keeps busy.
[[nodiscard]] uint64_t requested_cpus(const Plan& plan) noexcept;
// Returns the memory that it requests, in GiB.
[[nodiscard]] uint64_t requested_gibibytes(const Plan& plan) noexcept;

// Appends `text` to `out` in lines of at most 100 characters, broken at spaces. The first line begins with
// `first_prefix`, the others with `next_prefix`. A longer word gets its own line.
void append_wrapped(std::string& out, std::string_view text, std::string_view first_prefix,
                    std::string_view next_prefix);

}  // namespace sluice::config
