"""Renders the manifests of deploy/kubernetes for the tests, and finds their problems. Importing it continues in the interpreter of
scripts/schema_env.sh, or ends the process with 77 if kubectl or the packages of that environment are missing."""

import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import deploy_case
from deploy_case import DEADLINE_S

POOLS = ["base", "overlays/tcp", "overlays/rdma", "overlays/hostnetwork"]
CUSTOM_KINDS = ["jobset", "kubeflow"]
FOLDERS = [*POOLS, "installer", "worker", *CUSTOM_KINDS]
COMPONENTS = ["tls", "models", "monitors"]


def enter_environment():
    """Continues in the interpreter with the schemas, or skips the test."""
    folder = deploy_case.ROOT / "build/schema-venv"
    interpreter = folder / "bin/python"
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    created = subprocess.run([deploy_case.ROOT / "scripts/schema_env.sh", folder], stdout=subprocess.PIPE, text=True, timeout=400, check=False)
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
def rendered(folder, *components):
    """Returns the objects of a folder of deploy/kubernetes, with components."""
    if not components:
        return list(yaml.safe_load_all(kustomize(kubernetes() / folder)))
    with tempfile.TemporaryDirectory(dir=deploy_case.ROOT / "build") as work:
        paths = [os.path.relpath(kubernetes() / path, work) for path in (folder, *(f"components/{name}" for name in components))]
        Path(work, "kustomization.yaml").write_text(yaml.safe_dump({"resources": paths[:1], "components": paths[1:]}))
        return list(yaml.safe_load_all(kustomize(work)))


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
            *rules.check_worker_secrets(objects), *rules.check_disruption_budgets(objects), *rules.check_privileges(objects), *rules.check_discovery(objects, pool_replicas(), discover)]
