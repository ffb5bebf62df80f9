#include <fmt/format.h>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"

namespace sluice::config {
namespace {

// Pods of a JobSet: JOBSET-JOB-JOBINDEX-PODINDEX.SUBDOMAIN, the subdomain being the JobSet's name.
std::string reducer_list(const std::string& job, uint64_t count) {
  constexpr uint64_t kInLine = 4;
  std::string out;
  for (uint64_t i = 0; i < count; ++i) {
    if (i % kInLine == 0) out += "\n                        ";
    out += fmt::format("{0}-reducers-0-{1}.{0}:7470{2}", job, i, i + 1 < count ? "," : "");
    if (i + 1 < count && i % kInLine != kInLine - 1) out += ' ';
  }
  return out;
}

std::string instance_type(const VmType& vm) {
  if (vm.type.empty()) return {};
  return fmt::format(
      "              nodeSelector:\n"
      "                node.kubernetes.io/instance-type: \"{}\"\n",
      vm.type.substr(0, vm.type.find('+')));
}

// One pod to a node, among those of the same kind: bandwidth is the node's.
std::string apart(const std::string& job, std::string_view part) {
  return fmt::format(
      "              affinity:\n"
      "                podAntiAffinity:\n"
      "                  requiredDuringSchedulingIgnoredDuringExecution:\n"
      "                    - topologyKey: kubernetes.io/hostname\n"
      "                      labelSelector:\n"
      "                        matchLabels:\n"
      "                          jobset.sigs.k8s.io/jobset-name: {}\n"
      "                          jobset.sigs.k8s.io/replicatedjob-name: {}\n",
      job, part);
}

constexpr std::string_view kKeyVolume =
    "              volumes:\n"
    "                - name: key\n"
    "                  secret: {secretName: sluice-pool-key}\n";

constexpr std::string_view kKeyMount =
    "                  volumeMounts:\n"
    "                    - {name: key, mountPath: /etc/sluice, readOnly: true}\n";

std::string reducers(const Plan& plan, const std::string& job) {
  std::string out = fmt::format(
      "    - name: reducers\n"
      "      replicas: 1\n"
      "      template:\n"
      "        spec:\n"
      "          completionMode: Indexed\n"
      "          parallelism: {0}\n"
      "          completions: {0}\n"
      "          template:\n"
      "            spec:\n"
      "              restartPolicy: OnFailure\n"
      "              terminationGracePeriodSeconds: 60\n",
      plan.chosen.count);
  out += instance_type(plan.reducer) + apart(job, "reducers");
  out += fmt::format(
      "              securityContext: {{runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532}}\n"
      "              containers:\n"
      "                - name: reducer\n"
      "                  image: REDUCER_IMAGE\n"
      "                  args: [\"--key-file\", \"/etc/sluice/pool.key\", \"--lanes-per-session\", \"{0}\",\n"
      "                         \"--memory-limit\", \"{1}\"]\n"
      "                  ports:\n"
      "                    - {{name: data, containerPort: 7470}}\n"
      "                    - {{name: http, containerPort: 9470}}\n"
      "                  readinessProbe:\n"
      "                    httpGet: {{path: /readyz, port: http}}\n"
      "                    periodSeconds: 2\n"
      "                  resources:\n"
      "                    requests: {{cpu: \"{2}\", memory: \"{3}Gi\"}}\n"
      "                    limits: {{cpu: \"{2}\", memory: \"{3}Gi\"}}\n",
      plan.lanes_per_session, size_text(plan.memory_limit), processors_to_ask(plan), gibibytes_to_ask(plan));
  return out + std::string(kKeyMount) + std::string(kKeyVolume);
}

std::string workers(const Plan& plan, const std::string& job) {
  std::string out = fmt::format(
      "    - name: workers\n"
      "      dependsOn:\n"
      "        - {{name: reducers, status: Ready}}\n"
      "      replicas: 1\n"
      "      template:\n"
      "        spec:\n"
      "          completionMode: Indexed\n"
      "          parallelism: {0}\n"
      "          completions: {0}\n"
      "          backoffLimit: 0\n"
      "          template:\n"
      "            spec:\n"
      "              restartPolicy: Never\n",
      plan.request.workers);
  out += instance_type(plan.worker) + apart(job, "workers");
  out += fmt::format(
      "              containers:\n"
      "                - name: worker\n"
      "                  image: WORKER_IMAGE\n"
      "                  env:\n"
      "                    - {{name: NCCL_NET_PLUGIN, value: sluice}}\n"
      "                    - {{name: NCCL_COLLNET_ENABLE, value: \"1\"}}\n"
      "                    - {{name: SLUICE_KEY_FILE, value: /etc/sluice/pool.key}}\n"
      "                    - name: SLUICE_REDUCERS\n"
      "                      value: >-{0}\n"
      "                  resources:\n"
      "                    limits: {{nvidia.com/gpu: {1}}}\n",
      reducer_list(job, plan.chosen.count), plan.gpus_per_node);
  return out + std::string(kKeyMount) + std::string(kKeyVolume);
}

}  // namespace

Result<std::string> plan_as_jobset(const Plan& plan, const std::string& job) {
  std::string out = plan_as_comment(plan);
  out +=
      "#\n"
      "# Put images for REDUCER_IMAGE (sluice-reducer) and WORKER_IMAGE (your training, with the NCCL plugin "
      "in it).\n"
      "# The pool's key: sluice keygen --out pool.key && kubectl create secret generic sluice-pool-key\n"
      "# --from-file=pool.key\n"
      "apiVersion: jobset.x-k8s.io/v1alpha2\n"
      "kind: JobSet\n"
      "metadata:\n";
  out += fmt::format(
      "  name: {}\n"
      "spec:\n"
      "  network:\n"
      "    enableDNSHostnames: true\n"
      "    publishNotReadyAddresses: true\n"
      "  successPolicy:  # the reducers never end by themselves\n"
      "    operator: All\n"
      "    targetReplicatedJobs: [workers]\n"
      "  replicatedJobs:\n",
      job);
  return out + reducers(plan, job) + workers(plan, job);
}

}  // namespace sluice::config
