#include <fmt/format.h>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/formats/shipped.h"

namespace sluice::config {
namespace {

// Before a pod's restartPolicy.
std::string on_instances(const VmType& vm, std::string_view restart_policy) {
  std::string out;
  if (!vm.type.empty()) {
    out = fmt::format(
        "              nodeSelector:\n"
        "                node.kubernetes.io/instance-type: \"{}\"\n",
        vm.type.substr(0, vm.type.find('+')));
  }
  return out + std::string(restart_policy);
}

std::string indexed(uint64_t pods) {
  return fmt::format("          parallelism: {0}\n          completions: {0}\n", pods);
}

}  // namespace

Result<std::string> plan_as_jobset(const Plan& plan, const std::string& job) {
  constexpr std::string_view kShippedResources =
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
  const std::string processors = fmt::format("cpu: \"{}\"", processors_to_ask(plan));
  const std::string memory = fmt::format("memory: {}Gi", gibibytes_to_ask(plan));
  std::string out = plan_as_comment(plan);
  out +=
      "#\n"
      "# Put images for REDUCER_IMAGE (sluice-reducer), PLUGIN_IMAGE (sluice-plugin) and WORKER_IMAGE (your\n"
      "# training), and your command for torchrun's. The pool's key: sluice keygen --out pool.key &&\n"
      "# kubectl create secret generic sluice-pool-key --from-file=pool.key\n"
      "#\n";
  return out +
         with_figures(
             kShippedJobSet,
             std::vector<Figure>{
                 {"  name: training\n", fmt::format("  name: {}\n", job)},
                 {"          parallelism: 2\n          completions: 2\n", indexed(reducers)},
                 {kReducersRestart, on_instances(plan.reducer, kReducersRestart)},
                 {"image: sluice-reducer\n", "image: REDUCER_IMAGE\n"},
                 {"                      value: 24G\n",
                  fmt::format("                      value: {}\n"
                              "                    - name: SLUICE_LANES_PER_SESSION\n"
                              "                      value: \"{}\"\n",
                              size_text(plan.memory_limit), plan.lanes_per_session)},
                 {kShippedResources, fmt::format("                    requests:\n"
                                                 "                      {0}\n"
                                                 "                      {1}\n"
                                                 "                    limits:\n"
                                                 "                      {0}\n"
                                                 "                      {1}\n",
                                                 processors, memory)},
                 {"          parallelism: 4\n          completions: 4\n", indexed(workers)},
                 {kWorkersRestart, on_instances(plan.worker, kWorkersRestart)},
                 {"image: sluice-plugin\n", "image: PLUGIN_IMAGE\n"},
                 {"image: your-training-image\n", "image: WORKER_IMAGE\n"},
                 {"--nnodes=4\n", fmt::format("--nnodes={}\n", workers)},
                 {"--nproc-per-node=8\n", fmt::format("--nproc-per-node={}\n", plan.gpus_per_node)},
                 {"                    - name: SLUICE_REDUCER_COUNT\n                      value: \"2\"\n",
                  fmt::format("                    - name: SLUICE_REDUCER_COUNT\n                      "
                              "value: \"{}\"\n",
                              reducers)},
                 {"nvidia.com/gpu: \"8\"\n", fmt::format("nvidia.com/gpu: \"{}\"\n", plan.gpus_per_node)},
             });
}

}  // namespace sluice::config
