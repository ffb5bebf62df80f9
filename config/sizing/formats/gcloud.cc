#include <fmt/format.h>

#include <array>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"
#include "config/sizing/formats/shipped.h"

namespace sluice::config {
namespace {

struct Accelerator {
  std::string_view machines;  // how the types' names begin
  std::string_view type;      // Vertex AI's name of the GPU, its AcceleratorType
};

constexpr std::array<Accelerator, 7> kAccelerators{{{"a2-highgpu-", "NVIDIA_TESLA_A100"},
                                                    {"a2-megagpu-", "NVIDIA_TESLA_A100"},
                                                    {"a2-ultragpu-", "NVIDIA_A100_80GB"},
                                                    {"a3-highgpu-", "NVIDIA_H100_80GB"},
                                                    {"a3-megagpu-", "NVIDIA_H100_MEGA_80GB"},
                                                    {"a3-ultragpu-", "NVIDIA_H200_141GB"},
                                                    {"a4-highgpu-", "NVIDIA_B200"}}};

// What Vertex AI runs on the nodes of a pool. Words that begin with '$' are variables of the pasted text.
struct Machine {
  std::string type;
  std::string accelerator = {};  // empty: none
  uint64_t accelerators = 0;
};

Machine worker_machine(const Plan& plan) {
  // The table writes machines to which GPUs are added as "n1-highmem-96+8xV100".
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

// Nothing is started, and nothing is written, while one of them is missing.
std::string wanted(const Machine& worker, const Machine& reducer) {
  std::string out =
      ": \"${REGION:?for example us-central1}\" \\\n"
      "  \"${WORKER_IMAGE:?your training, with sluice and the NCCL plugin in it}\" \\\n"
      "  \"${REDUCER_IMAGE:?the image sluice-auto in your registry}\" \\\n"
      "  \"${TRAINING:?the command of a worker, with commas between its words: python, train.py}\" \\\n"
      "  \"${KEY_FILE:?where containers see the key of sluice keygen: /gcs/BUCKET/pool.key}\"";
  if (worker.type.starts_with('$')) out += " \\\n  \"${WORKER_MACHINE_TYPE:?a machine type with GPUs}\"";
  if (worker.accelerator.starts_with('$'))
    out += " \\\n  \"${ACCELERATOR_TYPE:?the GPU, as Vertex AI calls it}\"";
  if (reducer.type.starts_with('$')) out += " \\\n  \"${REDUCER_MACHINE_TYPE:?a machine type}\"";
  return out + " &&\n";
}

struct Container {
  std::string_view image;
  std::string command;  // words, with commas between
  std::vector<Switch> env;
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
      return fail(Errc::kInvalidArgument, "--format gcloud: " + vm->type + " is of " + vm->provider);
  }
  if (plan.request.workers < 2)
    return fail(Errc::kInvalidArgument, "--format gcloud: three pools take 2 workers or more");
  const Machine worker_vm = worker_machine(plan);
  const Machine reducer_vm{.type = plan.reducer.type.empty() ? "$REDUCER_MACHINE_TYPE" : plan.reducer.type};
  Container worker{
      .image = "$WORKER_IMAGE", .command = "sluice, auto, --, $TRAINING", .env = nccl_switches()};
  worker.env.push_back({"SLUICE_KEY_FILE", "$KEY_FILE"});
  // A reducer never runs what stands behind "--", but `sluice auto` wants it.
  const Container reducer{
      .image = "$REDUCER_IMAGE",
      .command =
          fmt::format("sluice, auto, --lanes-per-session, \"{}\", --memory-limit, \"{}\", --, \"true\"",
                      plan.lanes_per_session, size_text(plan.memory_limit)),
      .env = {{"SLUICE_KEY_FILE", "$KEY_FILE"}}};
  std::string out = plan_as_comment(plan);
  out += fmt::format(
      "#\n"
      "# Set the variables below before. Every node finds its part, and the port to listen on, in\n"
      "# CLUSTER_SPEC. Vertex AI ends the reducers when the chief, alone in the first pool, has ended.\n"
      "{}"
      "cat >{}.yaml <<JOB &&\n"
      "workerPoolSpecs:\n",
      wanted(worker_vm, reducer_vm), job);
  out += pool(worker_vm, 1, worker) + pool(worker_vm, plan.request.workers - 1, worker) +
         pool(reducer_vm, plan.chosen.count, reducer);
  return out +
         fmt::format(
             "JOB\ngcloud ai custom-jobs create --region=\"$REGION\" --display-name={0} --config={0}.yaml\n",
             job);
}

}  // namespace sluice::config
