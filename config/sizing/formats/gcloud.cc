#include <fmt/format.h>

#include <array>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/formats/templates.h"

namespace sluice::config {
namespace {

struct Accelerator {
  std::string_view machines;  // prefix of the machine types
  std::string_view type;      // AcceleratorType in Vertex AI
};

constexpr std::array<Accelerator, 7> kAccelerators{{{"a2-highgpu-", "NVIDIA_TESLA_A100"},
                                                    {"a2-megagpu-", "NVIDIA_TESLA_A100"},
                                                    {"a2-ultragpu-", "NVIDIA_A100_80GB"},
                                                    {"a3-highgpu-", "NVIDIA_H100_80GB"},
                                                    {"a3-megagpu-", "NVIDIA_H100_MEGA_80GB"},
                                                    {"a3-ultragpu-", "NVIDIA_H200_141GB"},
                                                    {"a4-highgpu-", "NVIDIA_B200"}}};

// The machines of a worker pool. A value that begins with '$' is a shell variable of the output.
struct Machine {
  std::string type;
  std::string accelerator = {};  // empty: none
  uint64_t accelerators = 0;
};

Machine worker_machine(const Plan& plan) {
  // The table names a machine with attached GPUs "n1-highmem-96+8xV100".
  const std::string& name = plan.worker.type;
  const size_t plus = name.find('+');
  Machine out{.type = name.empty() ? "$WORKER_MACHINE_TYPE" : name.substr(0, plus),
              .accelerator = "$ACCELERATOR_TYPE",
              .accelerators = plan.gpus_per_node};
  if (plus != std::string::npos && name.ends_with("xV100")) out.accelerator = "NVIDIA_TESLA_V100";
  for (const Accelerator& known : kAccelerators) {
    if (out.type.starts_with(known.machines)) out.accelerator = known.type;
  }
  return out;
}

// Returns a command that fails while a required variable is not set, before anything is written or started.
std::string require_variables(const Machine& worker, const Machine& reducer) {
  std::string out =
      ": \"${REGION:?for example us-central1}\" \\\n"
      "  \"${WORKER_IMAGE:?image with your training, sluice and the NCCL plugin}\" \\\n"
      "  \"${REDUCER_IMAGE:?the image sluice-auto in your registry}\" \\\n"
      "  \"${TRAINING:?worker command, separated by commas: python, train.py}\" \\\n"
      "  \"${KEY_FILE:?path of the pool key (sluice keygen) in containers: /gcs/BUCKET/pool.key}\"";
  if (worker.type.starts_with('$')) out += " \\\n  \"${WORKER_MACHINE_TYPE:?a machine type with GPUs}\"";
  if (worker.accelerator.starts_with('$'))
    out += " \\\n  \"${ACCELERATOR_TYPE:?the AcceleratorType of Vertex AI}\"";
  if (reducer.type.starts_with('$')) out += " \\\n  \"${REDUCER_MACHINE_TYPE:?a machine type}\"";
  return out + " &&\n";
}

struct Container {
  std::string_view image;
  std::string command;  // arguments, separated by commas
  std::vector<EnvVariable> env;
};

std::string pool(const Machine& machine, uint64_t replicas, const Container& container) {
  std::string out = fmt::format("  - machineSpec:\n      machineType: {}\n", machine.type);
  if (!machine.accelerator.empty())
    out += fmt::format("      acceleratorType: {}\n      acceleratorCount: {}\n", machine.accelerator,
                       machine.accelerators);
  out += fmt::format(
      "    replicaCount: {}\n"
      "    containerSpec:\n"
      "      imageUri: \"{}\"\n"
      "      command: [{}]\n"
      "      env:\n",
      replicas, container.image, container.command);
  for (const auto& [name, value] : container.env)
    out += fmt::format("        - {{name: {}, value: \"{}\"}}\n", name, value);
  return out;
}

}  // namespace

Result<std::string> plan_as_gcloud(const Plan& plan, const std::string& job) {
  for (const VmType* vm : {&plan.worker, &plan.reducer}) {
    if (!vm->provider.empty() && vm->provider != "gcp")
      return invalid("--format gcloud: " + vm->type + " is a VM type of " + vm->provider + ", not of gcp");
  }
  if (plan.request.workers < 2)
    return invalid("--format gcloud: requires at least 2 workers, one per worker pool");
  const Machine worker_vm = worker_machine(plan);
  const Machine reducer_vm{.type = plan.reducer.type.empty() ? "$REDUCER_MACHINE_TYPE" : plan.reducer.type};
  Container worker{
      .image = "$WORKER_IMAGE", .command = "sluice, auto, --, $TRAINING", .env = nccl_variables()};
  worker.env.push_back({"SLUICE_KEY_FILE", "$KEY_FILE"});
  // `sluice auto` requires a command after "--", although a reducer does not run it.
  const Container reducer{
      .image = "$REDUCER_IMAGE",
      .command =
          fmt::format("sluice, auto, --lanes-per-session, \"{}\", --memory-limit, \"{}\", --, \"true\"",
                      plan.lanes_per_session, size_text(plan.memory_limit)),
      .env = {{"SLUICE_KEY_FILE", "$KEY_FILE"}}};
  std::string out = plan_as_comment(plan);
  out += fmt::format(
      "#\n"
      "# Set the variables below first. Every node reads its role and its port from CLUSTER_SPEC. Vertex AI\n"
      "# stops the reducers when the chief, the only node of the first pool, has ended. Evaluators are a\n"
      "# fourth pool.\n"
      "{}cat >{}.yaml <<JOB &&\n"
      "workerPoolSpecs:\n",
      require_variables(worker_vm, reducer_vm), job);
  out += pool(worker_vm, 1, worker) + pool(worker_vm, plan.request.workers - 1, worker) +
         pool(reducer_vm, plan.chosen.count, reducer);
  return out +
         fmt::format(
             "JOB\ngcloud ai custom-jobs create --region=\"$REGION\" --display-name={0} --config={0}.yaml\n",
             job);
}

}  // namespace sluice::config
