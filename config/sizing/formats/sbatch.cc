#include <fmt/format.h>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"

namespace sluice::config {
namespace {

// The same course as deploy/slurm/hetjob.sbatch, which says more on each step.
constexpr std::string_view kCourse = R"(set -euo pipefail
if (($# == 0)); then
  echo "no command: sbatch THIS_FILE COMMAND [ARGUMENT...]" >&2
  exit 64
fi

# The key is this job's alone and ends with it; all nodes see the folder that the job was submitted from.
folder=$SLURM_SUBMIT_DIR/.sluice-$SLURM_JOB_ID
mkdir -m 0700 "$folder"
trap 'rm -rf "$folder"' EXIT
sluice keygen --out "$folder/pool.key"
export SLUICE_KEY_FILE=$folder/pool.key

list=()
while read -r host; do list+=("$host:7470"); done < <(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_1")
reducers=$(IFS=,; echo "${list[*]}")

# A reducer that is lost must not take the others with it, whatever the site's defaults are.
)";

constexpr std::string_view kTraining = R"(pool=$!
# The training begins when all of them answer; after two minutes it is not going to.
for ((tries = 1;; ++tries)); do
  sluice status --reducers "$reducers" >/dev/null && break
  if ((tries == 120)) || ! kill -0 "$pool" 2>/dev/null; then
    echo "the reducers do not answer" >&2
    exit 69
  fi
  sleep 1
done

code=0
SLUICE_REDUCERS=$reducers NCCL_NET_PLUGIN=sluice NCCL_COLLNET_ENABLE=1 srun --het-group=0 "$@" || code=$?

# SIGTERM by scancel: srun answers its own by killing the tasks.
scancel --signal=TERM "$SLURM_JOB_ID_HET_GROUP_1.0" || true
wait "$pool" || echo "the reducers ended with $?" >&2
exit "$code"
)";

}  // namespace

Result<std::string> plan_as_sbatch(const Plan& plan, const std::string& job) {
  std::string out = fmt::format(
      "#!/usr/bin/env bash\n"
      "# usage: sbatch THIS_FILE COMMAND [ARGUMENT...]\n"
      "# COMMAND runs once on each GPU node. Add each group's --partition and --time; reducers are {} here.\n"
      "#\n",
      plan.reducer.type.empty() ? fmt::format("nodes of {:g} Gbps", plan.reducer.gbps) : plan.reducer.type);
  out += plan_as_comment(plan);
  out += fmt::format(
      "#SBATCH --job-name={}\n"
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node=1\n"
      "#SBATCH --gpus-per-node={}\n"
      "#SBATCH --exclusive\n"
      "#SBATCH hetjob\n"
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node=1\n"
      "#SBATCH --exclusive\n",
      job, plan.request.workers, plan.gpus_per_node, plan.chosen.count);
  out += kCourse;
  out += fmt::format(
      "srun --het-group=1 --cpu-bind=none --kill-on-bad-exit=0 --wait=0 \\\n"
      "  sluice reducer --listen '*:7470' --http-listen '*:9470' \\\n"
      "  --lanes-per-session {} --memory-limit {} &\n",
      plan.lanes_per_session, size_text(plan.memory_limit));
  return out + std::string(kTraining);
}

}  // namespace sluice::config
