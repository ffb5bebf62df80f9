#include <fmt/format.h>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/formats/templates.h"

namespace sluice::config {

Result<std::string> plan_as_sbatch(const Plan& plan, const std::string& job) {
  const std::string reducers =
      plan.reducer.type.empty() ? fmt::format("nodes of {:g} Gbps", plan.reducer.gbps) : plan.reducer.type;
  std::string variables;
  for (const auto& [name, value] : nccl_variables()) variables += fmt::format("{}={} ", name, value);
  return fill_template(
      kSbatchTemplate,
      std::vector<Substitution>{
          {"#SBATCH --job-name=sluice\n", fmt::format("#\n{}# The reducers are {}: set the --partition of "
                                                      "group 1 accordingly.\n#SBATCH --job-name={}\n",
                                                      plan_as_comment(plan), reducers, job)},
          {"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n",
           fmt::format("#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={}\n",
                       plan.request.workers, plan.gpus_per_node)},
          {"#SBATCH --partition=cpu\n#SBATCH --nodes=2\n",
           fmt::format("#SBATCH --partition=cpu\n#SBATCH --nodes={}\n", plan.chosen.count)},
          {"--key-file \"$folder/pool.key\" &\n",
           fmt::format("--key-file \"$folder/pool.key\" \\\n  --lanes-per-session {} --memory-limit {} &\n",
                       plan.lanes_per_session, size_text(plan.memory_limit))},
          // For nodes whose nccl.conf does not set these variables.
          {"srun --het-group=0 \"$@\"", fmt::format("\\\n  {}\\\n  srun --het-group=0 \"$@\"", variables)},
      });
}

}  // namespace sluice::config
