"""Checks the objects that kustomize makes of deploy/kubernetes with the schemas of the API and with the program."""

import copy
import functools
import os
import re
import shutil
import signal
import tempfile
import unittest
import urllib.request
from pathlib import Path

import deploy_case
from deploy_case import DEADLINE_S
from kubernetes_case import COMPONENTS, CUSTOM_KINDS, FOLDERS, POOLS, all_rules, kubernetes, kustomize, rendered, schema_problems, sluice

from sluice_process import SluiceTest  # noqa: E402: deploy_case says where it is

import kubernetes_rules as rules  # noqa: E402: kubernetes_case has entered their environment
import yaml  # noqa: E402


class Manifests(unittest.TestCase):
    def test_all_folders_are_tested(self):
        existing = {file.parent.relative_to(kubernetes()).as_posix() for file in kubernetes().rglob("kustomization.yaml")}
        self.assertEqual(existing - {"components/network-policy"}, {*FOLDERS, *(f"components/{name}" for name in COMPONENTS)})

    def test_schemas_and_rules(self):
        for folders in [*((folder,) for folder in FOLDERS), *(("overlays/tcp", name) for name in COMPONENTS), ("overlays/rdma", *COMPONENTS)]:
            objects = rendered(*folders)
            self.assertEqual(schema_problems(objects) + all_rules(objects), [], folders)

    def test_monitors(self):
        objects = {item["kind"]: item for item in rendered("overlays/tcp", "monitors") if item["kind"] in ("PodMonitor", "PrometheusRule")}
        self.assertEqual(objects["PrometheusRule"]["spec"], yaml.safe_load((deploy_case.ROOT / "deploy/prometheus/rules.yml").read_text()))
        dashboard = next(item for item in rendered("overlays/tcp", "monitors") if item["metadata"]["name"] == "sluice-dashboard")
        self.assertEqual(dashboard["metadata"]["labels"], {"grafana_dashboard": "1"})
        self.assertEqual(dashboard["data"]["sluice.json"], (deploy_case.ROOT / "deploy/grafana/sluice.json").read_text())
        # What Prometheus makes of the discovered labels of a pod.
        discovered = {"__meta_kubernetes_namespace": "ns", "__meta_kubernetes_pod_name": "r-0", "__meta_kubernetes_pod_controller_name": "r"}
        labels = {}
        for step in objects["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["relabelings"]:
            joined = step.get("separator", ";").join(discovered[name] for name in step.get("sourceLabels", []))
            labels[step["targetLabel"]] = step.get("replacement", joined)
        self.assertEqual(labels, {"job": "sluice", "pool": "ns/r", "instance": "ns/r-0"})

    def test_overlays_set_their_options(self):
        specs = {folder: next(item["spec"]["template"]["spec"] for item in rendered(folder) if item["kind"] == "StatefulSet") for folder in POOLS}
        variables = {folder: rules.variables(spec["containers"][0], rendered(folder)) for folder, spec in specs.items()}
        self.assertEqual(variables["overlays/tcp"].get("SLUICE_TRANSPORT"), "tcp")
        self.assertEqual([bool(specs[folder].get("hostNetwork")) for folder in POOLS], [False, False, True, True])
        rdma = specs["overlays/rdma"]["containers"][0]
        self.assertEqual(rdma["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["IPC_LOCK"]})
        self.assertEqual([key for key in rdma["resources"]["limits"] if key.startswith("rdma/")], ["rdma/hca_shared_devices_a"])

    def test_images_have_this_version(self):
        version = (deploy_case.ROOT / "VERSION").read_text(encoding="utf-8").strip()
        for folder in FOLDERS:
            for where, _, spec, _ in rules.all_pods(rendered(folder)):
                for container in rules.containers(spec):
                    self.assertIn(container["image"], (f"sluice-reducer:{version}", f"sluice-plugin:{version}", "your-training-image:latest"), where)

    @staticmethod
    def overlay_of_the_page(name):
        page = (deploy_case.ROOT / "docs/guides/deploy-kubernetes.md").read_text(encoding="utf-8")
        return re.search(rf"^# {name}/kustomization.yaml[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL).group(1)

    def test_pool_of_the_page(self):
        with tempfile.TemporaryDirectory(dir=deploy_case.ROOT / "build") as folder:
            Path(folder, "kustomization.yaml").write_text(self.overlay_of_the_page("my-pool").replace("../sluice/deploy", os.path.relpath(deploy_case.ROOT / "deploy", folder)))
            objects = list(yaml.safe_load_all(kustomize(folder)))
        pool, = rules.of_kind(objects, "StatefulSet")
        self.assertEqual((pool["spec"]["replicas"], len(rules.of_kind(objects, "PodMonitor", "PrometheusRule", "NetworkPolicy"))), (4, 3))

    def test_overlay_of_the_page_renames_all_images(self):
        """The overlay of docs/guides/deploy-kubernetes.md works for all folders."""
        shown = self.overlay_of_the_page("my-workers")
        for base in FOLDERS:
            with self.subTest(base), tempfile.TemporaryDirectory(dir=deploy_case.ROOT / "build") as folder:
                overlay = yaml.safe_load(shown)
                overlay["resources"] = [os.path.relpath(kubernetes() / base, folder)]
                if (configuration := kubernetes() / base / "images.yaml").exists():
                    shutil.copy(configuration, folder)
                else:
                    del overlay["configurations"]
                Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(overlay))
                images = re.findall(r"image: (\S+)", kustomize(folder))
                self.assertTrue(images)
                self.assertEqual([image for image in images if not image.startswith("YOUR-REGISTRY/")], [])


class InsertedErrors(unittest.TestCase):
    """Inserts one error of each kind into correct manifests. The checks must find it."""

    CONTAINER = "spec.template.spec.containers.0"

    @staticmethod
    def change(objects, path, value):
        """Sets the value at `path`, "KIND.KEY.0.KEY"; None deletes it. A dot within a key is written as "~"."""
        kind, *keys, last = [int(key) if key.isdigit() else key.replace("~", ".") for key in path.split(".")]
        node = functools.reduce(lambda inner, key: inner[key], keys, {item["kind"]: item for item in objects}[kind])
        if value is None:
            del node[last]
        else:
            node[last] = value

    def expect_found(self, find, cases):
        """Each case: folder, path, value, and a text of the problem that `find` must return for the changed objects."""
        for folder, path, value, text in cases:
            with self.subTest(folder, path=path):
                objects = copy.deepcopy(rendered("overlays/tcp", folder) if folder in COMPONENTS else rendered(folder))
                self.assertFalse(find(objects))
                self.change(objects, path, value)
                found = find(objects)
                self.assertTrue(any(text in problem for problem in found), f"expected {text!r} in {found}")

    def expect_schema_problems(self, *cases):
        self.expect_found(schema_problems, cases)

    def expect_rule_problems(self, *cases):
        self.expect_found(all_rules, cases)

    def test_keys_and_values(self):
        self.expect_schema_problems(
            ("base", "StatefulSet.spec.podManagmentPolicy", "Parallel", "podManagmentPolicy"),
            ("base", f"StatefulSet.{self.CONTAINER}.livenessProbe.httpGet.paths", "/", "paths"),
            ("base", "StatefulSet.spec.replicas", "two", "replicas"),
            ("base", "StatefulSet.spec.podManagementPolicy", "AtOnce", "AtOnce"),
            ("base", "StatefulSet.apiVersion", "apps/v1beta1", "has no StatefulSet"),
            ("installer", "DaemonSet.spec.template.spec.volumes.0.hostPath.type", "CreateDirectory", "CreateDirectory"))

    def test_keys_and_values_of_custom_kinds(self):
        self.expect_schema_problems(
            ("jobset", "JobSet.spec.replicatedJobs.0.template.spec.paralelism", 2, "paralelism"),
            ("jobset", "JobSet.spec.replicatedJobs.1.dependsOn.0.status", "Running", "Running"),
            ("kubeflow", "ClusterTrainingRuntime.spec.template.spec.replicatedJobs.0.template.spec.template.spec.container", [], "container"),
            ("kubeflow", "TrainJob.spec.trainer.numNodes", "4", "numNodes"),
            ("monitors", "PodMonitor.spec.podMetricsEndpoints.0.relabelings.0.target", "job", "target"),
            ("monitors", "PrometheusRule.spec.groups.1.rules.0.annotation", {}, "annotation"))

    def test_names_and_ports(self):
        self.expect_rule_problems(
            ("base", f"StatefulSet.{self.CONTAINER}.readinessProbe.httpGet.port", "htpp", "htpp"),
            ("base", "Service.spec.ports.0.port", 7471, "7471"),
            ("overlays/tcp", "ConfigMap.data.SLUICE_LISTEN", "*:7480", "7480"),
            ("overlays/tcp", "NetworkPolicy.spec.ingress.0.ports.0.port", "date", "date"),
            ("monitors", "PodMonitor.spec.podMetricsEndpoints.0.port", "htpp", "htpp"),
            ("monitors", "PodMonitor.spec.selector.matchLabels.sluice-role", "reducers", "selects no pods"),
            ("base", "Service.spec.selector.app~kubernetes~io/name", "sluice", "selects no pods"),
            ("base", f"StatefulSet.{self.CONTAINER}.envFrom.0.configMapRef.name", "reducer", "there is no ConfigMap reducer"),
            ("installer", "DaemonSet.spec.template.spec.volumes.0.name", "host", "mounted but missing"))

    def test_reducer_options_and_resources(self):
        processors = rules.of_kind(rendered("base"), "StatefulSet")[0]["spec"]["template"]["spec"]["containers"][0]["resources"]
        self.expect_rule_problems(
            ("base", "StatefulSet.spec.template.spec.terminationGracePeriodSeconds", 90, "may drain for 90 s"),
            ("jobset", "JobSet.spec.replicatedJobs.0.template.spec.template.spec.terminationGracePeriodSeconds", 25, "may drain for 25 s"),
            ("base", f"StatefulSet.{self.CONTAINER}.resources.limits.memory", "24Gi", "leaves too little"),
            ("base", f"StatefulSet.{self.CONTAINER}.resources", {name: {**each, "cpu": "15500m"} for name, each in processors.items()}, "not an integer"),
            ("base", "ConfigMap.data.SLUICE_DRAIN_TIME", "9s", "SLUICE_DRAIN_TIME"),
            ("base", "ConfigMap.data.SLUICE_MEMORY_LIMIT", None, "has no SLUICE_MEMORY_LIMIT"),
            ("base", "StatefulSet.spec.template.spec.securityContext.runAsNonRoot", False, "too many privileges"),
            ("base", "StatefulSet.spec.template.spec.affinity", None, "on one node"),
            ("models", "StatefulSet.spec.volumeClaimTemplates.0.metadata.name", "model", "mounted but missing"),
            ("models", "ConfigMap.data.SLUICE_MEMORY_LIMIT", "24G", "leaves too little"),
            ("jobset", "JobSet.spec.replicatedJobs.0.template.spec.template.spec.containers.0.env", self.without("SLUICE_DRAIN_EXIT_CODE"), "counts as completed"),
            ("jobset", "JobSet.spec.replicatedJobs.0.template.spec.completions", 3, "minAvailable': 2"),
            ("kubeflow", "PodDisruptionBudget.spec.selector.matchLabels.jobset~sigs~k8s~io/jobset-name", "other", "expected one PodDisruptionBudget"),
            ("base", "PodDisruptionBudget.spec.maxUnavailable", 2, "expected one PodDisruptionBudget"),
            ("installer", "DaemonSet.spec.template.spec.initContainers.0.securityContext.privileged", True, "privileged"))

    @staticmethod
    def without(name):
        """Returns the variables of the JobSet's reducers without one."""
        return [entry for entry in rendered("jobset")[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"] if entry["name"] != name]

    def test_worker_variables_and_keys(self):
        variables = rules.of_kind(rendered("worker"), "Pod")[0]["spec"]["containers"][0]["env"]
        at = {entry["name"]: index for index, entry in enumerate(variables)}
        self.expect_rule_problems(
            ("worker", "Pod.spec.containers.0.env", [*variables, {"name": "SLUICE_REDUCER", "value": "a:1"}], "no variable SLUICE_REDUCER"),
            ("worker", f"Pod.spec.containers.0.env.{at['NCCL_COLLNET_ENABLE']}", None, "NCCL_COLLNET_ENABLE"),
            ("worker", f"Pod.spec.containers.0.env.{at['SLUICE_TOKEN_FILE']}.name", "SLUICE_KEY_FILE", "has the pool key"),
            ("worker", f"Pod.spec.containers.0.env.{at['SLUICE_JOB']}", None, "has no token"),
            ("jobset", "JobSet.spec.replicatedJobs.1.template.spec.template.spec.volumes.1.secret.secretName", "sluice-pool-key", "has the pool key"),
            ("jobset", "JobSet.spec.replicatedJobs.0.template.spec.completions", 3, "reducers-0-2"),
            ("worker", "Pod.spec.securityContext", None, "worker cannot read /run/secrets/sluice"),
            ("base", "StatefulSet.spec.template.spec.volumes.0.secret.defaultMode", 0o400, "reducer cannot read /run/secrets/sluice"),
            ("worker", f"Pod.spec.containers.0.env.{at['SLUICE_REDUCER_POD_PATTERN']}.value", "sluice-reducer-%d.reducers", "sluice-reducer-0.reducers:7470"))


class RunningReducer(SluiceTest):
    """Starts a reducer with the variables of the manifests."""

    def test_options_are_accepted_and_probes_succeed(self):
        key = self.make_key()
        for folder in [*POOLS, *CUSTOM_KINDS]:
            with self.subTest(folder):
                self.run_with_variables_of(folder, key)

    def run_with_variables_of(self, folder, key):
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        container = next(c for _, _, spec, _ in rules.all_pods(rendered(folder)) for c in spec["containers"] if rules.is_reducer(c))
        variables = rules.variables(container, rendered(folder))
        # Values of the cluster, and values that must differ between tests on one machine.
        variables.update(SLUICE_LANES="2", SLUICE_KEY_FILE=str(key), SLUICE_LISTEN="127.0.0.1:0", SLUICE_HTTP_LISTEN="127.0.0.1:0",
                         SLUICE_HTTP_PORT_FILE=str(port_file), SLUICE_MEMORY_LIMIT="64M")
        # kubernetes#120182: a drained pod of a Job is replaced only if it failed.
        self.assertEqual("SLUICE_DRAIN_EXIT_CODE" in variables, folder in CUSTOM_KINDS)
        self.assertNotIn(None, variables.values())
        reducer = self.start("reducer", env=variables)
        deploy_case.until("the reducer writes its HTTP port", port_file.exists, reducer.process)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port_file.read_text().strip()}{path}", timeout=DEADLINE_S) as response:
                self.assertEqual(response.status, 200, path)
        reducer.signal(signal.SIGTERM)
        self.assertEqual(reducer.wait(), int(variables.get("SLUICE_DRAIN_EXIT_CODE", 0)), reducer.stderr())


class Plan(unittest.TestCase):
    """The output of `sluice plan` for Kubernetes fits the manifests."""

    PLAN_FOR_8_WORKERS = ["plan", "--workers", 8, "--worker-gbps", 100, "--reducer-type", "n1-highcpu-16", "--format"]

    def test_planned_overlay_works_next_to_the_others(self):
        text = sluice(*self.PLAN_FOR_8_WORKERS, "kustomize").stdout
        with tempfile.TemporaryDirectory() as work:
            tree = shutil.copytree(kubernetes(), Path(work, "kubernetes"))
            (tree / "planned").mkdir()
            (tree / "planned/kustomization.yaml").write_text(text)
            objects = list(yaml.safe_load_all(kustomize(tree / "planned")))
        self.assertEqual(next(item["spec"]["replicas"] for item in objects if item["kind"] == "StatefulSet"), 25)
        self.assertIn("NetworkPolicy", {item["kind"] for item in objects})
        self.assertEqual(schema_problems(objects) + all_rules(objects), [])

    def job_set(self, *options):
        text = sluice(*self.PLAN_FOR_8_WORKERS, "jobset", *options).stdout
        for placeholder, image in (("REDUCER_IMAGE", "sluice-reducer"), ("PLUGIN_IMAGE", "sluice-plugin"), ("WORKER_IMAGE", "your-training-image")):
            self.assertEqual(text.count(f"image: {placeholder}\n"), 1)
            text = text.replace(f"image: {placeholder}\n", f"image: {image}\n")
        return list(yaml.safe_load_all(text))

    def test_planned_job_set_follows_the_rules(self):
        # With 4 reducers, the counts of reducers and of workers of the template are equal. Many communicators need much memory.
        for options in ([], ["--reducers", 4], ["--reducers", 2, "--communicators", 4096]):
            self.assertEqual(all_rules(self.job_set(*options)), [], options)

    def test_planned_job_set_matches_its_schema(self):
        self.assertEqual(schema_problems(self.job_set()), [])


if __name__ == "__main__":
    deploy_case.main()
