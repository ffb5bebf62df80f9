"""Renders the kustomizations of deploy/kubernetes and checks their objects with the schemas of the API and with the program.

Exits with 77 if kubectl is missing or scripts/schema_env.sh cannot download the schemas.
"""

import copy
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

import deploy_case
from deploy_case import DEADLINE_S

from sluice_process import SluiceTest  # noqa: E402: deploy_case says where it is

FOLDERS = ["base", "overlays/tcp", "overlays/rdma", "overlays/hostnetwork", "installer", "worker", "jobset", "kubeflow"]
CUSTOM_KINDS = ["jobset", "kubeflow"]
POOLS = FOLDERS[:4]


def enter_environment():
    """Continues in the interpreter with the schemas, or skips the test."""
    folder = deploy_case.ROOT / "build/schema-venv"
    interpreter = folder / "bin/python"
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    created = subprocess.run([deploy_case.ROOT / "scripts/schema_env.sh", folder], stdout=subprocess.PIPE, text=True, timeout=280, check=False)
    if created.returncode == 77:
        deploy_case.skip(f"needs pypi: {created.stdout.strip()}")
    if created.returncode != 0:
        sys.exit(created.returncode)
    sys.stdout.flush()
    os.execv(interpreter, [interpreter, "-B", *sys.argv])


deploy_case.capabilities.require("program:kubectl")
enter_environment()

import kubernetes_rules as rules  # noqa: E402
import kubernetes_schema as schema  # noqa: E402
import yaml  # noqa: E402


def kubernetes():
    return deploy_case.ROOT / "deploy/kubernetes"


def kustomize(folder):
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    return done.stdout


@functools.cache
def rendered(folder):
    return list(yaml.safe_load_all(kustomize(kubernetes() / folder)))


def sluice(*arguments, env=None):
    return subprocess.run([deploy_case.program(), *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                          env=deploy_case.environment(env))


@functools.cache
def reducer_help():
    return sluice("reducer", "--help").stdout


def plugin_variables():
    """Returns the variables in the table of docs/guides/nccl.md and the discovery variables of docs/guides/deploy-platforms.md."""
    page = (deploy_case.ROOT / "docs/guides/nccl.md").read_text(encoding="utf-8")
    table = {name for row in re.findall(r"^\| (`SLUICE_.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(SLUICE_\w+)`", row)}
    return table | set(re.findall(r"SLUICE_(?:DISCOVERY|REDUCER_)\w+", (deploy_case.ROOT / "docs/guides/deploy-platforms.md").read_text(encoding="utf-8")))


def nccl_conf():
    lines = (deploy_case.ROOT / "config/nccl.conf").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def pool_replicas():
    return next(item["spec"]["replicas"] for item in rendered("base") if item["kind"] == "StatefulSet")


def discover(variables):
    """Returns the reducers that a worker with these variables finds, or the error text."""
    done = sluice("discover", "--format", "hosts", env=variables)
    return done.stdout.split() if done.returncode == 0 else done.stderr


def schema_problems(objects):
    return [problem for item in objects for problem in schema.problems_of(item)]


def all_rules(objects):
    """Returns the problems that all rules find. Schemas are checked separately."""
    drain = rules.seconds(re.search(r"--drain-timeout TIME=(\S+)", reducer_help()).group(1))
    return [*rules.check_references(objects), *rules.check_ports(objects), *rules.check_reducer_resources(objects, drain),
            *rules.check_variables(objects, set(re.findall(r"Env:(SLUICE_\w+)", reducer_help())), plugin_variables(), nccl_conf()), *rules.check_key_access(objects),
            *rules.check_privileges(objects), *rules.check_discovery(objects, pool_replicas(), discover)]


class Manifests(unittest.TestCase):
    def test_all_folders_are_tested(self):
        existing = {file.parent.relative_to(kubernetes()).as_posix() for file in kubernetes().rglob("kustomization.yaml")}
        self.assertEqual(existing - {"components/network-policy"}, set(FOLDERS))

    def test_schemas(self):
        for folder in FOLDERS:
            self.assertEqual(schema_problems(rendered(folder)), [], folder)

    def test_rules(self):
        for folder in FOLDERS:
            self.assertEqual(all_rules(rendered(folder)), [], folder)

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

    def test_overlay_of_the_page_renames_all_images(self):
        """The overlay of docs/guides/deploy-kubernetes.md works for all folders."""
        page = (deploy_case.ROOT / "docs/guides/deploy-kubernetes.md").read_text(encoding="utf-8")
        shown = re.search(r"^# my-workers/kustomization.yaml[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL).group(1)
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
                objects = copy.deepcopy(rendered(folder))
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
            ("kubeflow", "TrainJob.spec.trainer.numNodes", "4", "numNodes"))

    def test_names_and_ports(self):
        self.expect_rule_problems(
            ("base", f"StatefulSet.{self.CONTAINER}.readinessProbe.httpGet.port", "htpp", "htpp"),
            ("base", "Service.spec.ports.0.port", 7471, "7471"),
            ("overlays/tcp", "ConfigMap.data.SLUICE_LISTEN", "*:7480", "7480"),
            ("overlays/tcp", "NetworkPolicy.spec.ingress.0.ports.0.port", "date", "date"),
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
            ("installer", "DaemonSet.spec.template.spec.initContainers.0.securityContext.privileged", True, "privileged"))

    def test_worker_variables_and_keys(self):
        variables = rules.of_kind(rendered("worker"), "Pod")[0]["spec"]["containers"][0]["env"]
        at = {entry["name"]: index for index, entry in enumerate(variables)}
        self.expect_rule_problems(
            ("worker", "Pod.spec.containers.0.env", [*variables, {"name": "SLUICE_REDUCER", "value": "a:1"}], "no variable SLUICE_REDUCER"),
            ("worker", f"Pod.spec.containers.0.env.{at['NCCL_COLLNET_ENABLE']}", None, "NCCL_COLLNET_ENABLE"),
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
        self.assertNotIn(None, variables.values())
        reducer = self.start("reducer", env=variables)
        deploy_case.until("the reducer writes its HTTP port", port_file.exists, reducer.process)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port_file.read_text().strip()}{path}", timeout=DEADLINE_S) as response:
                self.assertEqual(response.status, 200, path)
        self.expect_drained(reducer)


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
        return yaml.safe_load(text)

    def test_planned_job_set_follows_the_rules(self):
        # With 4 reducers, the counts of reducers and of workers of the template are equal. Many communicators need much memory.
        for options in ([], ["--reducers", 4], ["--reducers", 2, "--communicators", 4096]):
            self.assertEqual(all_rules([self.job_set(*options)]), [], options)

    def test_planned_job_set_matches_its_schema(self):
        self.assertEqual(schema.problems_of(self.job_set()), [])


if __name__ == "__main__":
    deploy_case.main()
