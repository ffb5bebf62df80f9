// A plan as people read it, and as what they would paste. One file each. All end with a line break; what a
// person has to fill in is a shell variable that must be set, or a word in capitals that a comment names.
#pragma once

#include <string>
#include <string_view>

#include "config/sizing/plan.h"
#include "core/result.h"

namespace sluice::config {

// A report: the verdict, the figures, what to mind.
[[nodiscard]] std::string plan_as_text(const Plan& plan);

// One object. Keys stay as they are; new ones may come.
[[nodiscard]] std::string plan_as_json(const Plan& plan);

// The formats below take `job`: the job's name, as is_job_name() has it. kInvalidArgument says why there is
// nothing to paste: other types than that platform has, too few nodes.
//
// A shell's lines that write the configuration of a custom job with the three worker pools that Vertex AI
// wants (one chief, the other workers, the reducers) and create it.
[[nodiscard]] Result<std::string> plan_as_gcloud(const Plan& plan, const std::string& job);
// deploy/kubernetes/jobset/jobset.yaml with these figures: workers that wait until the reducers are ready,
// and whose end ends all.
[[nodiscard]] Result<std::string> plan_as_jobset(const Plan& plan, const std::string& job);
// An overlay over deploy/kubernetes/overlays/tcp: how many reducers, of which type, with how much.
[[nodiscard]] Result<std::string> plan_as_kustomize(const Plan& plan, const std::string& job);
// deploy/slurm/hetjob.sbatch with these figures: workers in its first group, reducers in its second.
[[nodiscard]] Result<std::string> plan_as_sbatch(const Plan& plan, const std::string& job);

// A label of the DNS: 1 to 40 of a-z, 0-9 and '-', a letter first, no '-' at its end.
[[nodiscard]] bool is_job_name(std::string_view text) noexcept;

// The verdict and the warnings, each in lines of at most 100 characters that begin with "# ".
[[nodiscard]] std::string plan_as_comment(const Plan& plan);

// Processors that a reducer's container or task asks for: a whole number, one more than it keeps busy.
[[nodiscard]] uint64_t processors_to_ask(const Plan& plan) noexcept;
// Memory that it asks for, in GiB.
[[nodiscard]] uint64_t gibibytes_to_ask(const Plan& plan) noexcept;

}  // namespace sluice::config
