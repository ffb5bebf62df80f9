#include <fmt/format.h>

#include <array>

#include "config/sizing/formats/formats.h"

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

// A value that the shell asks for where it is not set, so that nothing is started with it missing.
std::string ask(std::string_view variable, std::string_view what) {
  return fmt::format("${{{}:?{}}}", variable, what);
}

// "machine-type=a2-highgpu-8g,accelerator-type=NVIDIA_TESLA_A100,accelerator-count=8"
std::string machine(const Plan& plan) {
  const VmType& vm = plan.worker;
  if (vm.type.empty()) {
    return fmt::format("machine-type={},accelerator-type={},accelerator-count={}",
                       ask("WORKER_MACHINE_TYPE", "a machine type with GPUs"),
                       ask("ACCELERATOR_TYPE", "the GPU, as Vertex AI calls it"), plan.gpus_per_node);
  }
  // The table writes machines to which GPUs are added as "n1-highmem-96+8xV100".
  const size_t plus = vm.type.find('+');
  const std::string type = vm.type.substr(0, plus);
  std::string gpu = ask("ACCELERATOR_TYPE", "the GPU, as Vertex AI calls it");
  if (plus != std::string::npos && vm.type.ends_with("xV100")) gpu = "NVIDIA_TESLA_V100";
  for (const Accelerator& known : kAccelerators) {
    if (type.starts_with(known.machines)) gpu = known.type;
  }
  return fmt::format("machine-type={},accelerator-type={},accelerator-count={}", type, gpu,
                     plan.gpus_per_node);
}

std::string pool(const std::string& machine, uint64_t replicas, const std::string& image) {
  return fmt::format("  --worker-pool-spec=\"{},replica-count={},container-image-uri={}\"", machine, replicas,
                     image);
}

}  // namespace

Result<std::string> plan_as_gcloud(const Plan& plan, const std::string& job) {
  for (const VmType* vm : {&plan.worker, &plan.reducer}) {
    if (!vm->provider.empty() && vm->provider != "gcp")
      return fail(Errc::kInvalidArgument, "--format gcloud: " + vm->type + " is of " + vm->provider);
  }
  if (plan.request.workers < 2)
    return fail(Errc::kInvalidArgument, "--format gcloud: three pools take 2 workers or more");
  const std::string worker_image = ask("WORKER_IMAGE", "image of your training, with the NCCL plugin in it");
  const std::string reducer =
      plan.reducer.type.empty() ? ask("REDUCER_MACHINE_TYPE", "a machine type") : plan.reducer.type;
  std::string out = plan_as_comment(plan);
  out +=
      "#\n"
      "# Set REGION, WORKER_IMAGE and REDUCER_IMAGE before. REDUCER_IMAGE is the image sluice-auto: it finds "
      "in\n"
      "# CLUSTER_SPEC that it is of the third pool, and the port it is to listen on. SLUICE_KEY_FILE names "
      "the\n"
      "# pool's key in both images. Vertex AI ends the reducers when the chief, alone in the first pool, has "
      "ended.\n";
  out += fmt::format("gcloud ai custom-jobs create \\\n  --region=\"{}\" \\\n  --display-name={} \\\n",
                     ask("REGION", "for example us-central1"), job);
  out += pool(machine(plan), 1, worker_image) + " \\\n";
  out += pool(machine(plan), plan.request.workers - 1, worker_image) + " \\\n";
  out += pool("machine-type=" + reducer, plan.chosen.count,
              ask("REDUCER_IMAGE", "the image sluice-auto in your registry")) +
         "\n";
  return out;
}

}  // namespace sluice::config
