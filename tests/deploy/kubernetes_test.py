"""The manifests of deploy/kubernetes: each kustomization is rendered, its objects checked against the API's schemas, and what they say against the program.
Exit 77 without kubectl, or where scripts/schema_env.sh cannot have the schemas."""

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
CUSTOM = ["jobset", "kubeflow"]
POOLS = FOLDERS[:4]


def enter_environment():
    """Goes on in the interpreter that has the schemas, or ends as skipped."""
    folder = deploy_case.ROOT / "build/schema-venv"
    interpreter = folder / "bin/python"
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    made = subprocess.run([deploy_case.ROOT / "scripts/schema_env.sh", folder], stdout=subprocess.PIPE, text=True, timeout=280, check=False)
    if made.returncode == 77:
        deploy_case.skip(f"needs pypi: {made.stdout.strip()}")
    if made.returncode != 0:
        sys.exit(made.returncode)
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


def sluice(*words, **how):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    environment.update(how.pop("env", {}))
    return subprocess.run([deploy_case.program(), *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment, **how)


@functools.cache
def reducer_help():
    return sluice("reducer", "--help").stdout


def reducer_variables():
    return set(re.findall(r"Env:(SLUICE_\w+)", reducer_help()))


def plugin_variables():
    """Those of the table of its page, and of the page on discovery, which it does too."""
    page = (deploy_case.ROOT / "docs/nccl-plugin.md").read_text(encoding="utf-8")
    table = {name for row in re.findall(r"^\| (`SLUICE_.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(SLUICE_\w+)`", row)}
    return table | set(re.findall(r"SLUICE_(?:DISCOVERY|REDUCER_)\w+", (deploy_case.ROOT / "docs/discovery.md").read_text(encoding="utf-8")))


def nccl_conf():
    lines = (deploy_case.ROOT / "config/nccl.conf").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def pool_replicas():
    return next(thing["spec"]["replicas"] for thing in rendered("base") if thing["kind"] == "StatefulSet")


def discover(told):
    """The reducers that a worker with these variables finds."""
    done = sluice("discover", "--format", "hosts", env=told)
    return done.stdout.split() if done.returncode == 0 else done.stderr


def every_rule(objects):
    """What is wrong by any rule but the schemas."""
    drain = rules.seconds(re.search(r"--drain-timeout TIME=(\S+)", reducer_help()).group(1))
    return [*rules.names_meet(objects), *rules.ports_meet(objects), *rules.reducers_fit(objects, drain),
            *rules.known_words(objects, reducer_variables(), plugin_variables(), nccl_conf()), *rules.keys_can_be_read(objects),
            *rules.least_rights(objects),
            *rules.reducers_found(objects, pool_replicas(), discover)]


class Manifests(unittest.TestCase):
    def expect_none(self, problems):
        if problems:
            self.fail("\n" + "\n".join(problems))

    def test_every_folder_is_rendered_here(self):
        there = {file.parent.relative_to(kubernetes()).as_posix() for file in kubernetes().rglob("kustomization.yaml")}
        self.assertEqual(there - {"components/network-policy"}, set(FOLDERS))

    def test_schemas(self):
        for folder in FOLDERS:
            self.expect_none([f"{folder}: {problem}" for thing in rendered(folder) for problem in schema.problems_of(thing)])

    def test_what_they_say(self):
        for folder in FOLDERS:
            self.expect_none([f"{folder}: {problem}" for problem in every_rule(rendered(folder))])

    def test_overlays_say_what_they_are_for(self):
        specs = {folder: next(thing["spec"]["template"]["spec"] for thing in rendered(folder) if thing["kind"] == "StatefulSet") for folder in POOLS}
        told = {folder: rules.variables(spec["containers"][0], rendered(folder)) for folder, spec in specs.items()}
        self.assertEqual(told["overlays/tcp"].get("SLUICE_TRANSPORT"), "tcp")
        self.assertEqual([bool(specs[folder].get("hostNetwork")) for folder in POOLS], [False, False, True, True])
        rdma = specs["overlays/rdma"]["containers"][0]
        self.assertEqual(rdma["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["IPC_LOCK"]})
        self.assertEqual([key for key in rdma["resources"]["limits"] if key.startswith("rdma/")], ["rdma/hca_shared_devices_a"])

    def test_images_are_of_this_version(self):
        version = (deploy_case.ROOT / "VERSION").read_text(encoding="utf-8").strip()
        for folder in FOLDERS:
            for where, _, spec, _ in rules.all_pods(rendered(folder)):
                for container in rules.containers(spec):
                    self.assertIn(container["image"], (f"sluice-reducer:{version}", f"sluice-plugin:{version}", "your-training-image:latest"), where)

    def test_images_are_renamed_in_one_place(self):
        """By the overlay of docs/kubernetes.md, whatever the folder is that it stands over."""
        page = (deploy_case.ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
        shown = re.search(r"^    # my-workers/kustomization.yaml.*\n((?:    .*\n)+)", page, re.MULTILINE).group(1)
        for of in FOLDERS:
            with self.subTest(of), tempfile.TemporaryDirectory(dir=deploy_case.ROOT / "build") as folder:
                overlay = yaml.safe_load(shown)
                overlay["resources"] = [os.path.relpath(kubernetes() / of, folder)]
                if (configuration := kubernetes() / of / "images.yaml").exists():
                    shutil.copy(configuration, folder)
                else:
                    del overlay["configurations"]
                Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(overlay))
                done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                images = re.findall(r"image: (\S+)", done.stdout)
                self.assertTrue(images)
                self.assertEqual([image for image in images if not image.startswith("YOUR-REGISTRY/")], [])


class Planted(unittest.TestCase):
    """An error of each sort, made in what is right: it must be found, or the checks above see nothing."""

    def expect_found(self, folder, change, words, find):
        objects = copy.deepcopy(rendered(folder))
        self.assertFalse(find(objects))
        change({thing["kind"]: thing for thing in objects})
        found = find(objects)
        self.assertTrue(any(words in problem for problem in found), f"wanted {words!r} in {found}")

    def expect_refused(self, folder, change, words):
        self.expect_found(folder, change, words, lambda objects: [problem for thing in objects for problem in schema.problems_of(thing)])

    def expect_contradicted(self, folder, change, words):
        self.expect_found(folder, change, words, every_rule)

    @staticmethod
    def pod(kinds, kind="StatefulSet"):
        return kinds[kind]["spec"]["template"]["spec"]

    def test_keys_and_words(self):
        def misspelt(kinds):
            kinds["StatefulSet"]["spec"]["podManagmentPolicy"] = "Parallel"
        self.expect_refused("base", misspelt, "podManagmentPolicy")

        def deep(kinds):
            self.pod(kinds)["containers"][0]["livenessProbe"]["httpGet"]["paths"] = "/"
        self.expect_refused("base", deep, "paths")

        def text(kinds):
            kinds["StatefulSet"]["spec"]["replicas"] = "two"
        self.expect_refused("base", text, "replicas")

        def policy(kinds):
            kinds["StatefulSet"]["spec"]["podManagementPolicy"] = "AtOnce"
        self.expect_refused("base", policy, "AtOnce")

        def kind(kinds):
            kinds["StatefulSet"]["apiVersion"] = "apps/v1beta1"
        self.expect_refused("base", kind, "has no StatefulSet")

        def host_path(kinds):
            self.pod(kinds, "DaemonSet")["volumes"][0]["hostPath"]["type"] = "CreateDirectory"
        self.expect_refused("installer", host_path, "CreateDirectory")

    def test_keys_and_words_of_custom_kinds(self):

        def paralelism(kinds):
            kinds["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 2
        self.expect_refused("jobset", paralelism, "paralelism")

        def status(kinds):
            kinds["JobSet"]["spec"]["replicatedJobs"][1]["dependsOn"][0]["status"] = "Running"
        self.expect_refused("jobset", status, "Running")

        def runtime(kinds):
            kinds["ClusterTrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["container"] = []
        self.expect_refused("kubeflow", runtime, "container")

        def nodes(kinds):
            kinds["TrainJob"]["spec"]["trainer"]["numNodes"] = "4"
        self.expect_refused("kubeflow", nodes, "numNodes")

    def test_names_and_ports(self):
        def probe(kinds):
            self.pod(kinds)["containers"][0]["readinessProbe"]["httpGet"]["port"] = "htpp"
        self.expect_contradicted("base", probe, "htpp")

        def service(kinds):
            kinds["Service"]["spec"]["ports"][0]["port"] = 7471
        self.expect_contradicted("base", service, "7471")

        def listen(kinds):
            kinds["ConfigMap"]["data"]["SLUICE_LISTEN"] = "*:7480"
        self.expect_contradicted("overlays/tcp", listen, "7480")

        def policy(kinds):
            kinds["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"] = "date"
        self.expect_contradicted("overlays/tcp", policy, "date")

        def selector(kinds):
            kinds["Service"]["spec"]["selector"]["app.kubernetes.io/name"] = "sluice"
        self.expect_contradicted("base", selector, "selects no pods")

        def config(kinds):
            self.pod(kinds)["containers"][0]["envFrom"][0]["configMapRef"]["name"] = "reducer"
        self.expect_contradicted("base", config, "there is no ConfigMap reducer")

        def volume(kinds):
            self.pod(kinds, "DaemonSet")["volumes"][0]["name"] = "host"
        self.expect_contradicted("installer", volume, "not there")

    def test_what_a_reducer_gets(self):
        def grace(kinds):
            self.pod(kinds)["terminationGracePeriodSeconds"] = 90
        self.expect_contradicted("base", grace, "may drain for 90 s")

        def grace_of_job(kinds):
            kinds["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 25
        self.expect_contradicted("jobset", grace_of_job, "may drain for 25 s")

        def memory(kinds):
            self.pod(kinds)["containers"][0]["resources"]["limits"]["memory"] = "24Gi"
        self.expect_contradicted("base", memory, "leaves too little")

        def processors(kinds):
            for of in self.pod(kinds)["containers"][0]["resources"].values():
                of["cpu"] = "15500m"
        self.expect_contradicted("base", processors, "not whole")

        def unknown(kinds):
            kinds["ConfigMap"]["data"]["SLUICE_DRAIN_TIME"] = "9s"
        self.expect_contradicted("base", unknown, "SLUICE_DRAIN_TIME")

        def unsaid(kinds):
            del kinds["ConfigMap"]["data"]["SLUICE_MEMORY_LIMIT"]
        self.expect_contradicted("base", unsaid, "is not told SLUICE_MEMORY_LIMIT")

        def root(kinds):
            self.pod(kinds)["securityContext"]["runAsNonRoot"] = False
        self.expect_contradicted("base", root, "too much")

        def together(kinds):
            del self.pod(kinds)["affinity"]
        self.expect_contradicted("base", together, "to one node")

        def privileged(kinds):
            self.pod(kinds, "DaemonSet")["initContainers"][0]["securityContext"]["privileged"] = True
        self.expect_contradicted("installer", privileged, "privileged")

    def test_what_a_worker_gets(self):
        def variable(kinds):
            kinds["Pod"]["spec"]["containers"][0]["env"].append({"name": "SLUICE_REDUCER", "value": "a:1"})
        self.expect_contradicted("worker", variable, "no variable SLUICE_REDUCER")

        def switch(kinds):
            kinds["Pod"]["spec"]["containers"][0]["env"] = [e for e in kinds["Pod"]["spec"]["containers"][0]["env"] if e["name"] != "NCCL_COLLNET_ENABLE"]
        self.expect_contradicted("worker", switch, "NCCL_COLLNET_ENABLE")

        def fewer(kinds):
            kinds["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] = 3
        self.expect_contradicted("jobset", fewer, "reducers-0-2")

        def nobodys(kinds):
            del kinds["Pod"]["spec"]["securityContext"]
        self.expect_contradicted("worker", nobodys, "worker cannot read /run/secrets/sluice")

        def for_root_alone(kinds):
            self.pod(kinds)["volumes"][0]["secret"]["defaultMode"] = 0o400
        self.expect_contradicted("base", for_root_alone, "reducer cannot read /run/secrets/sluice")

        def pattern(kinds):
            next(e for e in kinds["Pod"]["spec"]["containers"][0]["env"] if e["name"] == "SLUICE_REDUCER_POD_PATTERN")["value"] = "sluice-reducer-%d.reducers"
        self.expect_contradicted("worker", pattern, "sluice-reducer-0.reducers:7470")


class Live(unittest.TestCase):
    """A reducer that is told what the manifests tell it."""

    def test_settings_are_accepted_and_probes_answered(self):
        for folder in [*POOLS, *CUSTOM]:
            with self.subTest(folder), tempfile.TemporaryDirectory() as at:
                self.expect_answers(folder, Path(at))

    def expect_answers(self, folder, at):
        container = next(c for _, _, spec, _ in rules.all_pods(rendered(folder)) for c in spec["containers"] if rules.is_reducer(c))
        told = rules.variables(container, rendered(folder))
        self.assertEqual(sluice("keygen", "--out", at / "pool.key").returncode, 0)
        # What the cluster gives, and what only one of several on this machine can have.
        told.update(SLUICE_LANES="2", SLUICE_KEY_FILE=str(at / "pool.key"), SLUICE_LISTEN="127.0.0.1:0", SLUICE_HTTP_LISTEN="127.0.0.1:0",
                    SLUICE_HTTP_PORT_FILE=str(at / "port"), SLUICE_MEMORY_LIMIT="64M")
        self.assertNotIn(None, told.values())
        environment = {**{name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}, **told}
        with open(at / "log", "wb") as log:
            process = subprocess.Popen([deploy_case.program(), "reducer"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            deploy_case.until("the reducer says its HTTP port", (at / "port").exists, process)
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = container[probe]["httpGet"]["path"]
                with urllib.request.urlopen(f"http://127.0.0.1:{(at / 'port').read_text().strip()}{path}", timeout=DEADLINE_S) as answer:
                    self.assertEqual(answer.status, 200, path)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
        self.assertEqual(process.returncode, 0)


class Plan(unittest.TestCase):
    """What `sluice plan` writes for Kubernetes goes with what lies here."""

    EIGHT = ["plan", "--workers", 8, "--worker-gbps", 100, "--reducer-type", "n1-highcpu-16", "--format"]

    def test_its_overlay_is_a_folder_beside_the_others(self):
        text = sluice(*self.EIGHT, "kustomize").stdout
        with tempfile.TemporaryDirectory() as at:
            tree = shutil.copytree(kubernetes(), Path(at, "kubernetes"))
            (tree / "planned").mkdir()
            (tree / "planned/kustomization.yaml").write_text(text)
            done = subprocess.run(["kubectl", "kustomize", tree / "planned"], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        objects = list(yaml.safe_load_all(done.stdout))
        self.assertEqual(next(thing["spec"]["replicas"] for thing in objects if thing["kind"] == "StatefulSet"), 25)
        self.assertIn("NetworkPolicy", {thing["kind"] for thing in objects})
        self.assertEqual([problem for thing in objects for problem in schema.problems_of(thing)] + every_rule(objects), [])

    def job_set(self, *options):
        text = sluice(*self.EIGHT, "jobset", *options).stdout
        for placeholder, image in (("REDUCER_IMAGE", "sluice-reducer"), ("PLUGIN_IMAGE", "sluice-plugin"), ("WORKER_IMAGE", "your-training-image")):
            self.assertEqual(text.count(f"image: {placeholder}\n"), 1)
            text = text.replace(f"image: {placeholder}\n", f"image: {image}\n")
        return yaml.safe_load(text)

    def test_its_job_set_keeps_every_rule(self):
        # With 4 reducers their figures read as the shipped workers' do; many communicators take much memory.
        for options in ([], ["--reducers", 4], ["--reducers", 2, "--communicators", 4096]):
            self.assertEqual(every_rule([self.job_set(*options)]), [], options)

    def test_its_job_set_is_as_its_definition_wants_it(self):
        self.assertEqual(schema.problems_of(self.job_set()), [])


if __name__ == "__main__":
    deploy_case.main()
