// Fills files of deploy/ that are embedded in the program. `sluice plan` writes the same files that
// tests/deploy tests, with other numbers, so the two cannot diverge.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::config {

// Generated (CMakeLists.txt).
extern const std::string_view kNcclConf;        // config/nccl.conf
extern const std::string_view kJobSetTemplate;  // deploy/kubernetes/jobset/jobset.yaml
extern const std::string_view kSbatchTemplate;  // deploy/slurm/hetjob.sbatch

struct Substitution {
  std::string_view original;  // with enough context to occur only once
  std::string replacement;
};

// Returns `text` with each `original` replaced. Asserts that each `original` occurs exactly once: sizing_test
// fails when an edit of deploy/ breaks that.
[[nodiscard]] std::string fill_template(std::string_view text, std::span<const Substitution> substitutions);

struct EnvVariable {
  std::string name;
  std::string value;
};

// Returns the NCCL variables that a worker needs for offloading, from config/nccl.conf.
[[nodiscard]] std::vector<EnvVariable> nccl_variables();

}  // namespace sluice::config
