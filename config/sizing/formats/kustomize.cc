#include <fmt/format.h>

#include "config/sizes.h"
#include "config/sizing/formats/formats.h"

namespace sluice::config {

Result<std::string> plan_as_kustomize(const Plan& plan, const std::string& job) {
  std::string out = plan_as_comment(plan);
  out += fmt::format(
      "#\n"
      "# Save as deploy/kubernetes/FOLDER/kustomization.yaml and apply it:\n"
      "#   kubectl apply -k deploy/kubernetes/FOLDER\n"
      "apiVersion: kustomize.config.k8s.io/v1beta1\n"
      "kind: Kustomization\n"
      "resources:\n"
      "  - ../overlays/tcp  # or another overlay of deploy/kubernetes/overlays\n"
      "commonAnnotations:\n"
      "  sluice/planned-for: \"{}: {} workers of {} Gbps\"\n"
      "replicas:\n"
      "  - name: sluice-reducer\n"
      "    count: {}\n"
      "patches:\n"
      "  - target:\n"
      "      kind: StatefulSet\n"
      "      name: sluice-reducer\n"
      "    patch: |-\n"
      "      apiVersion: apps/v1\n"
      "      kind: StatefulSet\n"
      "      metadata:\n"
      "        name: sluice-reducer\n"
      "      spec:\n"
      "        template:\n"
      "          spec:\n",
      job, plan.request.workers, plan.worker.gbps, plan.chosen.count);
  if (!plan.reducer.type.empty()) {
    out += fmt::format(
        "            nodeSelector:\n"
        "              node.kubernetes.io/instance-type: \"{}\"\n",
        plan.reducer.type);
  }
  out += fmt::format(
      "            containers:\n"
      "              - name: reducer\n"
      "                env:\n"
      "                  - name: SLUICE_LANES_PER_SESSION\n"
      "                    value: \"{0}\"\n"
      "                  - name: SLUICE_MEMORY_LIMIT\n"
      "                    value: \"{1}\"\n"
      "                resources:\n"
      "                  requests: {{cpu: \"{2}\", memory: \"{3}Gi\"}}\n"
      "                  limits: {{cpu: \"{2}\", memory: \"{3}Gi\"}}\n",
      plan.lanes_per_session, size_text(plan.memory_limit), requested_cpus(plan), requested_gibibytes(plan));
  return out;
}

}  // namespace sluice::config
