#include <fmt/format.h>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/formats/templates.h"

namespace sluice::config {
namespace {

// Inserts a node selector before a pod's restartPolicy.
std::string with_node_selector(const VmType& vm, std::string_view restart_policy) {
  std::string out;
  if (!vm.type.empty()) {
    out = fmt::format(
        "              nodeSelector:\n"
        "                node.kubernetes.io/instance-type: \"{}\"\n",
        vm.type.substr(0, vm.type.find('+')));
  }
  return out + std::string(restart_policy);
}

std::string pod_count(uint64_t pods) {
  return fmt::format("          parallelism: {0}\n          completions: {0}\n", pods);
}

}  // namespace

Result<std::string> plan_as_jobset(const Plan& plan, const std::string& job) {
  constexpr std::string_view kTemplateResources =
      "                    requests:\n"
      "                      cpu: \"16\"\n"
      "                      memory: 32Gi\n"
      "                    limits:\n"
      "                      cpu: \"16\"\n"
      "                      memory: 32Gi\n";
  constexpr std::string_view kReducersRestart = "              restartPolicy: OnFailure\n";
  constexpr std::string_view kWorkersRestart = "              restartPolicy: Never\n";
  const uint64_t workers = plan.request.workers;
  const uint64_t reducers = plan.chosen.count;
  const std::string processors = fmt::format("cpu: \"{}\"", requested_cpus(plan));
  const std::string memory = fmt::format("memory: {}Gi", requested_gibibytes(plan));
  std::string out = plan_as_comment(plan);
  out +=
      "#\n"
      "# Replace REDUCER_IMAGE (sluice-reducer), PLUGIN_IMAGE (sluice-plugin) and WORKER_IMAGE (your "
      "training)\n"
      "# by your images, and torchrun's command by yours. Create the Secrets of "
      "docs/guides/deploy-kubernetes.md:\n"
      "# sluice-pool-key for the reducers, sluice-job-token for the workers.\n"
      "#\n";
  return out +
         fill_template(
             kJobSetTemplate,
             std::vector<Substitution>{
                 {"  name: training\n", fmt::format("  name: {}\n", job)},
                 {"          parallelism: 2\n          completions: 2\n", pod_count(reducers)},
                 {kReducersRestart, with_node_selector(plan.reducer, kReducersRestart)},
                 {"image: sluice-reducer\n", "image: REDUCER_IMAGE\n"},
                 {"                      value: 24G\n",
                  fmt::format("                      value: {}\n"
                              "                    - name: SLUICE_LANES_PER_SESSION\n"
                              "                      value: \"{}\"\n",
                              size_text(plan.memory_limit), plan.lanes_per_session)},
                 {kTemplateResources, fmt::format("                    requests:\n"
                                                  "                      {0}\n"
                                                  "                      {1}\n"
                                                  "                    limits:\n"
                                                  "                      {0}\n"
                                                  "                      {1}\n",
                                                  processors, memory)},
                 {"          parallelism: 4\n          completions: 4\n", pod_count(workers)},
                 {kWorkersRestart, with_node_selector(plan.worker, kWorkersRestart)},
                 {"image: sluice-plugin\n", "image: PLUGIN_IMAGE\n"},
                 {"image: your-training-image\n", "image: WORKER_IMAGE\n"},
                 {"--nnodes=4\n", fmt::format("--nnodes={}\n", workers)},
                 {"--nproc-per-node=8\n", fmt::format("--nproc-per-node={}\n", plan.gpus_per_node)},
                 {"                    - name: SLUICE_REDUCER_COUNT\n                      value: \"2\"\n",
                  fmt::format("                    - name: SLUICE_REDUCER_COUNT\n                      "
                              "value: \"{}\"\n",
                              reducers)},
                 {"nvidia.com/gpu: \"8\"\n", fmt::format("nvidia.com/gpu: \"{}\"\n", plan.gpus_per_node)},
                 {"  name: training-reducers\n", fmt::format("  name: {}-reducers\n", job)},
                 {"  minAvailable: 1\n", fmt::format("  minAvailable: {}\n", reducers - 1)},
                 {"jobset-name: training\n", fmt::format("jobset-name: {}\n", job)},
             });
}

}  // namespace sluice::config
