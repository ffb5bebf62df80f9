"""Runs the commands of docs/guides/deploy-platforms.md that need no GPU, with two reducers of this machine.

Compares all `sluice` commands of the README and the guides with the --help texts of the program. Missing launchers are skipped.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import unittest

import deploy_case
from deploy_case import DeployTest

from sluice_process import DEADLINE_S, SluiceTest, environment  # noqa: E402: deploy_case says where it is

LAUNCHERS = "docs/guides/deploy-platforms.md"
PAGES = ["README.md", "docs/get-started.md", *sorted(path.relative_to(deploy_case.ROOT).as_posix() for path in (deploy_case.ROOT / "docs/guides").glob("*.md"))]


def page(name):
    return (deploy_case.ROOT / name).read_text(encoding="utf-8")


def commands(name):
    """Returns the lines of the fenced code blocks of a page without indentation. Continued lines are joined."""
    blocks = re.findall(r"^( *)```\w*\n(.*?)^\1```$", page(name), re.MULTILINE | re.DOTALL)
    code = "".join(re.sub(rf"^{indentation}", "", block, flags=re.MULTILINE) for indentation, block in blocks)
    return re.sub(r"\\\n\s*", "", code).splitlines()


class Launchers(SluiceTest):
    def run_recipe(self, launcher, folder="", **extra):
        """Runs the command of the page that starts digits.sh with this launcher."""
        lines = [line for line in commands(LAUNCHERS) if line.startswith(launcher + " ") and "digits.sh" in line]
        self.assertEqual(len(lines), 1, lines)
        reducers = ",".join(self.start_reducer("--listen", "127.0.0.1:0")[1] for _ in range(2))
        path = f"{folder}:{deploy_case.program().parent}:{os.environ['PATH']}"
        done = subprocess.run(shlex.split(lines[0]), cwd=deploy_case.ROOT, env=environment({"SLUICE_REDUCERS": reducers, "PATH": path, **extra}),
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        workers = re.search(r"(?:-np|--nproc-per-node) (\d+)", lines[0]).group(1)
        self.assertRegex(done.stdout, rf"weights +bit-identical on {workers} workers")
        for reducer in reducers.split(","):
            self.status_after_sessions(reducer, 1)

    def test_mpirun(self):
        if shutil.which("mpirun") is None or "Open MPI" not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=DEADLINE_S,
                                                                                              check=False).stdout:
            self.skipTest("needs program:mpirun: mpirun of Open MPI is not installed")
        self.run_recipe("mpirun", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                        OMPI_MCA_btl="self,vader,tcp", OMPI_MCA_btl_tcp_if_include="lo", OMPI_MCA_oob_tcp_if_include="lo")

    def test_torchrun(self):
        folder = deploy_case.ROOT / "build/python-venv"
        if not (folder / "has-torch").exists():
            self.skipTest(f"needs pypi: {folder.relative_to(deploy_case.ROOT)} has no torch")
        self.run_recipe("torchrun", folder / "bin")


class SageMaker(DeployTest):
    def test_torchrun_gets_the_values_of_the_platform(self):
        """Runs start.sh of the page with a fake torchrun that prints its arguments."""
        self.write("torchrun", '#!/bin/sh\necho "$SLUICE_REDUCERS $SLUICE_KEY_FILE $*"\n').chmod(0o755)
        lines = commands(LAUNCHERS)
        first = next(i for i, line in enumerate(lines) if line.startswith("export SLUICE_KEY_FILE=/opt/ml"))
        script = self.write("start.sh", "\n".join(["#!/usr/bin/env bash", *lines[first:first + 2]]) + "\n")
        hosts = [f"algo-{i}" for i in range(1, 13)]
        groups = [{"instance_group_name": "reducer", "hosts": ["algo-1", "algo-3"]}, {"instance_group_name": "worker", "hosts": [*hosts[3:], "algo-2"]}]
        key = "/opt/ml/input/data/sluice/pool.key"

        def run(config):
            path = self.write("resourceconfig.json", config if isinstance(config, str) else json.dumps(config))
            variables = environment({"SLUICE_SM_RESOURCE_CONFIG": str(path), "PATH": f"{self.folder}:{deploy_case.program().parent}:{os.environ['PATH']}"})
            return subprocess.run(["bash", script], cwd=deploy_case.ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S,
                                  check=False)
        for host, rank in (("algo-2", 0), ("algo-4", 1), ("algo-12", 9)):
            done = run({"current_host": host, "hosts": hosts, "instance_groups": groups})
            self.assertEqual((done.returncode, done.stdout), (0, f"algo-1:7470,algo-3:7470 {key} --nnodes 10 --node-rank {rank} --master-addr algo-2 "
                                                              "--master-port 29500 --nproc-per-node 8 train.py\n"), done.stderr)
        # Without a group of reducers the workers reduce by themselves.
        done = run({"current_host": "algo-10", "hosts": hosts})
        self.assertEqual((done.returncode, done.stdout), (0, f"none {key} --nnodes 12 --node-rank 9 --master-addr algo-1 --master-port 29500 --nproc-per-node 8 "
                                                          "train.py\n"), done.stderr)
        for config, error in (("{", r"sluice: .*/resourceconfig.json:1:2: unexpected end of JSON"),
                              ({"current_host": "algo-99", "hosts": hosts, "instance_groups": groups}, r"sluice: .*: no host list contains this host")):
            done = run(config)
            self.assertEqual((done.returncode, done.stdout), (78, ""))
            self.assertRegex(done.stderr, error)


class Pages(unittest.TestCase):
    """Commands and options on the pages exist in the program."""

    @staticmethod
    def help_of(words):
        return subprocess.run([deploy_case.program(), *words, "--help"], capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment())

    def problems(self, name, lines):
        found = []
        for line in lines:
            if line.lstrip().startswith("helm "):
                continue  # a release has the name of the program
            for command in re.findall(r"(?<!python -m)(?:^|[\s|(])sluice ((?:[a-z-]+ ?)+[^|>)#]*)", line):
                words = command.split()
                arguments = words[:words.index("--")] if "--" in words else words
                subcommand = [] if arguments[0].startswith("-") else arguments[:1]
                help_run = self.help_of(subcommand)
                if " ".join(["Usage: sluice", *subcommand]) + " " not in help_run.stdout:
                    found.append(f"{name}: sluice has no command {' '.join(subcommand)}: {line}")
                elif arguments[1:] and re.fullmatch("[a-z][a-z-]*", arguments[1]) and (nested := self.help_of(arguments[:2])).returncode == 0:
                    help_run = nested
                help_text = help_run.stdout + (self.help_of(["reducer"]).stdout if subcommand == ["auto"] else "")
                for option in [word.split("=")[0] for word in arguments if word.startswith("--")]:
                    if not re.search(rf"{re.escape(option)}\b", help_text):
                        found.append(f"{name}: sluice {' '.join(subcommand)} has no {option}: {line}")
        return found

    def test_commands_and_options_exist(self):
        for name in PAGES:
            self.assertEqual(self.problems(name, commands(name) + re.findall(r"`(sluice [^`]+)`", page(name))), [])

    def test_unknown_options_are_found(self):
        self.assertTrue(self.problems("", ["sluice keygen --outfile pool.key"]))
        self.assertTrue(self.problems("", ["kubectl x | sluice keygem > pool.key"]))
        self.assertFalse(self.problems("", ["sluice keygen --out pool.key   # --never"]))


if __name__ == "__main__":
    deploy_case.main()
