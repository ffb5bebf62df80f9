#include <fmt/format.h>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/formats/shipped.h"

namespace sluice::config {

Result<std::string> plan_as_sbatch(const Plan& plan, const std::string& job) {
  const std::string reducers =
      plan.reducer.type.empty() ? fmt::format("nodes of {:g} Gbps", plan.reducer.gbps) : plan.reducer.type;
  std::string switches;
  for (const auto& [name, value] : nccl_switches()) switches += fmt::format("{}={} ", name, value);
  return with_figures(
      kShippedSbatch,
      std::vector<Figure>{
          {"#SBATCH --job-name=sluice\n",
           fmt::format(
               "#\n{}# Reducers are {} here: make that group 1's --partition.\n#SBATCH --job-name={}\n",
               plan_as_comment(plan), reducers, job)},
          {"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n",
           fmt::format("#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={}\n",
                       plan.request.workers, plan.gpus_per_node)},
          {"#SBATCH --partition=cpu\n#SBATCH --nodes=2\n",
           fmt::format("#SBATCH --partition=cpu\n#SBATCH --nodes={}\n", plan.chosen.count)},
          {"--key-file \"$folder/pool.key\" &\n",
           fmt::format("--key-file \"$folder/pool.key\" \\\n  --lanes-per-session {} --memory-limit {} &\n",
                       plan.lanes_per_session, size_text(plan.memory_limit))},
          // Here for nodes whose nccl.conf does not say it.
          {"srun --het-group=0 \"$@\"", fmt::format("\\\n  {}\\\n  srun --het-group=0 \"$@\"", switches)},
      });
}

}  // namespace sluice::config
