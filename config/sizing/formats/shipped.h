// Files of this tree that are built into the program: what is pasted is what deploy/ ships and tests/deploy
// runs, with other figures. So neither can drift from the other.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::config {

// Generated (CMakeLists.txt).
extern const std::string_view kNcclConf;       // config/nccl.conf
extern const std::string_view kShippedJobSet;  // deploy/kubernetes/jobset/jobset.yaml
extern const std::string_view kShippedSbatch;  // deploy/slurm/hetjob.sbatch

struct Figure {
  std::string_view shipped;  // with as much around it as makes it the only one
  std::string planned;
};

// `text` with each figure's `planned` where its `shipped` stands. That a `shipped` stands there once is an
// invariant of the tree: who edits a file of deploy/ so that it doesn't is told by an assert in sizing_test.
[[nodiscard]] std::string with_figures(std::string_view text, std::span<const Figure> figures);

struct Switch {
  std::string name;
  std::string value;
};

// What a worker's NCCL must be told so that it offloads.
[[nodiscard]] std::vector<Switch> nccl_switches();

}  // namespace sluice::config
