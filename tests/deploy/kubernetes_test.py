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


@functools.cache
def rendered(folder):
    done = subprocess.run(["kubectl", "kustomize", kubernetes() / folder], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    return list(yaml.safe_load_all(done.stdout))


def sluice(*arguments, **options):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    environment.update(options.pop("env", {}))
    return subprocess.run([deploy_case.program(), *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment, **options)


@functools.cache
def reducer_help():
    return sluice("reducer", "--help").stdout


def reducer_variables():
    return set(re.findall(r"Env:(SLUICE_\w+)", reducer_help()))


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


def all_rules(objects):
    """Returns the problems that all rules find. Schemas are checked separately."""
    drain = rules.seconds(re.search(r"--drain-timeout TIME=(\S+)", reducer_help()).group(1))
    return [*rules.check_references(objects), *rules.check_ports(objects), *rules.check_reducer_resources(objects, drain),
            *rules.check_variables(objects, reducer_variables(), plugin_variables(), nccl_conf()), *rules.check_key_access(objects),
            *rules.check_privileges(objects),
            *rules.check_discovery(objects, pool_replicas(), discover)]


class Manifests(unittest.TestCase):
    def expect_none(self, problems):
        if problems:
            self.fail("\n" + "\n".join(problems))

    def test_all_folders_are_tested(self):
        existing = {file.parent.relative_to(kubernetes()).as_posix() for file in kubernetes().rglob("kustomization.yaml")}
        self.assertEqual(existing - {"components/network-policy"}, set(FOLDERS))

    def test_schemas(self):
        for folder in FOLDERS:
            self.expect_none([f"{folder}: {problem}" for item in rendered(folder) for problem in schema.problems_of(item)])

    def test_rules(self):
        for folder in FOLDERS:
            self.expect_none([f"{folder}: {problem}" for problem in all_rules(rendered(folder))])

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
                done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                images = re.findall(r"image: (\S+)", done.stdout)
                self.assertTrue(images)
                self.assertEqual([image for image in images if not image.startswith("YOUR-REGISTRY/")], [])


class InsertedErrors(unittest.TestCase):
    """Inserts one error of each kind into correct manifests. The checks must find it."""

    def expect_found(self, folder, change, text, find):
        objects = copy.deepcopy(rendered(folder))
        self.assertFalse(find(objects))
        change({item["kind"]: item for item in objects})
        found = find(objects)
        self.assertTrue(any(text in problem for problem in found), f"expected {text!r} in {found}")

    def expect_schema_problem(self, folder, change, text):
        self.expect_found(folder, change, text, lambda objects: [problem for item in objects for problem in schema.problems_of(item)])

    def expect_rule_problem(self, folder, change, text):
        self.expect_found(folder, change, text, all_rules)

    @staticmethod
    def pod(kinds, kind="StatefulSet"):
        return kinds[kind]["spec"]["template"]["spec"]

    def test_keys_and_values(self):
        def misspelled(kinds):
            kinds["StatefulSet"]["spec"]["podManagmentPolicy"] = "Parallel"
        self.expect_schema_problem("base", misspelled, "podManagmentPolicy")

        def nested(kinds):
            self.pod(kinds)["containers"][0]["livenessProbe"]["httpGet"]["paths"] = "/"
        self.expect_schema_problem("base", nested, "paths")

        def text(kinds):
            kinds["StatefulSet"]["spec"]["replicas"] = "two"
        self.expect_schema_problem("base", text, "replicas")

        def policy(kinds):
            kinds["StatefulSet"]["spec"]["podManagementPolicy"] = "AtOnce"
        self.expect_schema_problem("base", policy, "AtOnce")

        def kind(kinds):
            kinds["StatefulSet"]["apiVersion"] = "apps/v1beta1"
        self.expect_schema_problem("base", kind, "has no StatefulSet")

        def host_path(kinds):
            self.pod(kinds, "DaemonSet")["volumes"][0]["hostPath"]["type"] = "CreateDirectory"
        self.expect_schema_problem("installer", host_path, "CreateDirectory")

    def test_keys_and_values_of_custom_kinds(self):
        def paralelism(kinds):
            kinds["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 2
        self.expect_schema_problem("jobset", paralelism, "paralelism")

        def status(kinds):
            kinds["JobSet"]["spec"]["replicatedJobs"][1]["dependsOn"][0]["status"] = "Running"
        self.expect_schema_problem("jobset", status, "Running")

        def runtime(kinds):
            kinds["ClusterTrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["container"] = []
        self.expect_schema_problem("kubeflow", runtime, "container")

        def nodes(kinds):
            kinds["TrainJob"]["spec"]["trainer"]["numNodes"] = "4"
        self.expect_schema_problem("kubeflow", nodes, "numNodes")

    def test_names_and_ports(self):
        def probe(kinds):
            self.pod(kinds)["containers"][0]["readinessProbe"]["httpGet"]["port"] = "htpp"
        self.expect_rule_problem("base", probe, "htpp")

        def service(kinds):
            kinds["Service"]["spec"]["ports"][0]["port"] = 7471
        self.expect_rule_problem("base", service, "7471")

        def listen(kinds):
            kinds["ConfigMap"]["data"]["SLUICE_LISTEN"] = "*:7480"
        self.expect_rule_problem("overlays/tcp", listen, "7480")

        def policy(kinds):
            kinds["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"] = "date"
        self.expect_rule_problem("overlays/tcp", policy, "date")

        def selector(kinds):
            kinds["Service"]["spec"]["selector"]["app.kubernetes.io/name"] = "sluice"
        self.expect_rule_problem("base", selector, "selects no pods")

        def config(kinds):
            self.pod(kinds)["containers"][0]["envFrom"][0]["configMapRef"]["name"] = "reducer"
        self.expect_rule_problem("base", config, "there is no ConfigMap reducer")

        def volume(kinds):
            self.pod(kinds, "DaemonSet")["volumes"][0]["name"] = "host"
        self.expect_rule_problem("installer", volume, "mounted but missing")

    def test_reducer_options_and_resources(self):
        def grace(kinds):
            self.pod(kinds)["terminationGracePeriodSeconds"] = 90
        self.expect_rule_problem("base", grace, "may drain for 90 s")

        def grace_of_job(kinds):
            kinds["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 25
        self.expect_rule_problem("jobset", grace_of_job, "may drain for 25 s")

        def memory(kinds):
            self.pod(kinds)["containers"][0]["resources"]["limits"]["memory"] = "24Gi"
        self.expect_rule_problem("base", memory, "leaves too little")

        def processors(kinds):
            for resources in self.pod(kinds)["containers"][0]["resources"].values():
                resources["cpu"] = "15500m"
        self.expect_rule_problem("base", processors, "not an integer")

        def unknown(kinds):
            kinds["ConfigMap"]["data"]["SLUICE_DRAIN_TIME"] = "9s"
        self.expect_rule_problem("base", unknown, "SLUICE_DRAIN_TIME")

        def missing(kinds):
            del kinds["ConfigMap"]["data"]["SLUICE_MEMORY_LIMIT"]
        self.expect_rule_problem("base", missing, "has no SLUICE_MEMORY_LIMIT")

        def root(kinds):
            self.pod(kinds)["securityContext"]["runAsNonRoot"] = False
        self.expect_rule_problem("base", root, "too many privileges")

        def no_anti_affinity(kinds):
            del self.pod(kinds)["affinity"]
        self.expect_rule_problem("base", no_anti_affinity, "on one node")

        def privileged(kinds):
            self.pod(kinds, "DaemonSet")["initContainers"][0]["securityContext"]["privileged"] = True
        self.expect_rule_problem("installer", privileged, "privileged")

    def test_worker_variables_and_keys(self):
        def variable(kinds):
            kinds["Pod"]["spec"]["containers"][0]["env"].append({"name": "SLUICE_REDUCER", "value": "a:1"})
        self.expect_rule_problem("worker", variable, "no variable SLUICE_REDUCER")

        def switch(kinds):
            kinds["Pod"]["spec"]["containers"][0]["env"] = [e for e in kinds["Pod"]["spec"]["containers"][0]["env"] if e["name"] != "NCCL_COLLNET_ENABLE"]
        self.expect_rule_problem("worker", switch, "NCCL_COLLNET_ENABLE")

        def fewer(kinds):
            kinds["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] = 3
        self.expect_rule_problem("jobset", fewer, "reducers-0-2")

        def no_security_context(kinds):
            del kinds["Pod"]["spec"]["securityContext"]
        self.expect_rule_problem("worker", no_security_context, "worker cannot read /run/secrets/sluice")

        def only_root(kinds):
            self.pod(kinds)["volumes"][0]["secret"]["defaultMode"] = 0o400
        self.expect_rule_problem("base", only_root, "reducer cannot read /run/secrets/sluice")

        def pattern(kinds):
            next(e for e in kinds["Pod"]["spec"]["containers"][0]["env"] if e["name"] == "SLUICE_REDUCER_POD_PATTERN")["value"] = "sluice-reducer-%d.reducers"
        self.expect_rule_problem("worker", pattern, "sluice-reducer-0.reducers:7470")


class RunningReducer(unittest.TestCase):
    """Starts a reducer with the variables of the manifests."""

    def test_options_are_accepted_and_probes_succeed(self):
        for folder in [*POOLS, *CUSTOM_KINDS]:
            with self.subTest(folder), tempfile.TemporaryDirectory() as work:
                self.run_with_variables_of(folder, Path(work))

    def run_with_variables_of(self, folder, work):
        container = next(c for _, _, spec, _ in rules.all_pods(rendered(folder)) for c in spec["containers"] if rules.is_reducer(c))
        variables = rules.variables(container, rendered(folder))
        self.assertEqual(sluice("keygen", "--out", work / "pool.key").returncode, 0)
        # Values of the cluster, and values that must differ between tests on one machine.
        variables.update(SLUICE_LANES="2", SLUICE_KEY_FILE=str(work / "pool.key"), SLUICE_LISTEN="127.0.0.1:0", SLUICE_HTTP_LISTEN="127.0.0.1:0",
                         SLUICE_HTTP_PORT_FILE=str(work / "port"), SLUICE_MEMORY_LIMIT="64M")
        self.assertNotIn(None, variables.values())
        environment = {**{name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}, **variables}
        with open(work / "log", "wb") as log:
            process = subprocess.Popen([deploy_case.program(), "reducer"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            deploy_case.until("the reducer writes its HTTP port", (work / "port").exists, process)
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = container[probe]["httpGet"]["path"]
                with urllib.request.urlopen(f"http://127.0.0.1:{(work / 'port').read_text().strip()}{path}", timeout=DEADLINE_S) as response:
                    self.assertEqual(response.status, 200, path)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
        self.assertEqual(process.returncode, 0)


class Plan(unittest.TestCase):
    """The output of `sluice plan` for Kubernetes fits the manifests."""

    PLAN_FOR_8_WORKERS = ["plan", "--workers", 8, "--worker-gbps", 100, "--reducer-type", "n1-highcpu-16", "--format"]

    def test_planned_overlay_works_next_to_the_others(self):
        text = sluice(*self.PLAN_FOR_8_WORKERS, "kustomize").stdout
        with tempfile.TemporaryDirectory() as work:
            tree = shutil.copytree(kubernetes(), Path(work, "kubernetes"))
            (tree / "planned").mkdir()
            (tree / "planned/kustomization.yaml").write_text(text)
            done = subprocess.run(["kubectl", "kustomize", tree / "planned"], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        objects = list(yaml.safe_load_all(done.stdout))
        self.assertEqual(next(item["spec"]["replicas"] for item in objects if item["kind"] == "StatefulSet"), 25)
        self.assertIn("NetworkPolicy", {item["kind"] for item in objects})
        self.assertEqual([problem for item in objects for problem in schema.problems_of(item)] + all_rules(objects), [])

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
