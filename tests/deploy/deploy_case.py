"""Common functions of the deployment tests: paths of the source tree and the build, skipping, waiting, commands."""

import argparse
import os
import re
import socket
import subprocess
import sys
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("functional", "capabilities")]

import capabilities  # noqa: E402
import probes  # noqa: E402
import sluice_process  # noqa: E402
from capabilities import skip  # noqa: E402, F401: used by the tests of this folder
from sluice_process import DEADLINE_S  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BUILD = None


def main(*needed):
    """Runs a test file. Arguments: --root TREE --build FOLDER and the arguments of unittest. Exits with 77 if all cases were
    skipped or the machine lacks one of the capabilities `needed`."""
    global ROOT, BUILD
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--build", type=Path, required=True)
    arguments, rest = parser.parse_known_args()
    ROOT, BUILD = arguments.root.resolve(), arguments.build.resolve()
    sluice_process.PROGRAM = str(program())
    capabilities.require(*needed)
    result = unittest.main(argv=[sys.argv[0], *rest], module="__main__", verbosity=2, exit=False).result
    for reason in sorted({reason for _, reason in result.skipped}):
        print(f"skipped: {reason}")
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped and len(result.skipped) >= result.testsRun else 0)


def program(name="sluice"):
    return BUILD / "bin" / name


def need(*tools):
    """Skips the test if one of the programs is missing."""
    capabilities.need(*(capabilities.PROGRAM + tool for tool in tools))


def environment(extra=None):
    """Returns the environment without variables of Sluice, NCCL and systemd, plus `extra`."""
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith(("SLUICE_", "NCCL_")) and key not in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")}
    clean["PATH"] += probes.SYSTEM_PATH
    clean.update(extra or {})
    return clean


def until(what, condition, process=None):
    """Polls condition() until its value is neither None nor False and returns the value. Fails after DEADLINE_S or if `process`
    exits. `what` describes the condition in the error."""
    def value_or_exit():
        value = condition()
        if (value is None or value is False) and process is not None and process.poll() is not None:
            raise AssertionError(f"the process exited with code {process.returncode} before: {what}")
        return value

    return sluice_process.until(what, value_or_exit)


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port():
    """Returns a port that is free for TCP and UDP, for programs that cannot choose a free port themselves."""
    for _ in range(50):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            tcp.bind(("127.0.0.1", 0))
            try:
                udp.bind(tcp.getsockname())
            except OSError:
                continue
            return tcp.getsockname()[1]
    raise AssertionError("no port is free for both TCP and UDP")


def version():
    return (ROOT / "VERSION").read_text().strip()


def command_paths():
    """Returns all commands as [["sluice"], ["sluice", "bench"], ...], read from the --help texts of the program."""
    found, open_paths = [], [[]]
    while open_paths:
        path = open_paths.pop(0)
        found.append(["sluice", *path])
        help_text = subprocess.run([program(), *path, "--help"], capture_output=True, text=True, check=True, timeout=DEADLINE_S, env=environment()).stdout
        listed = re.search(r"^Subcommands:\n((?:  .*\n|\n)*)", help_text, re.MULTILINE)
        for line in (listed.group(1) if listed else "").splitlines():
            if match := re.match(r"  (\S+)", line):
                open_paths.append([*path, match.group(1)])
    return found


class DeployTest(sluice_process.SluiceTest):
    def start_process(self, command, log=subprocess.DEVNULL, env=None):
        """Starts a command that writes to the file `log`. The process is killed at the end of the test."""
        if log != subprocess.DEVNULL:
            log = self.enterContext(open(log, "wb"))
        process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env or environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def expect_exit(self, process, log, code=0):
        self.assertEqual(process.wait(DEADLINE_S), code, log.read_text())

    def terminate(self, process, log):
        """Asks the process to end; its exit code must be 0."""
        process.terminate()
        self.expect_exit(process, log)

    def command(self, *arguments, expect=0, timeout=DEADLINE_S, **options):
        """Runs a command until it exits. Fails if the exit code is not `expect` (None: any code). Returns the
        CompletedProcess; its stdout includes stderr."""
        options.setdefault("env", environment())
        done = subprocess.run([*map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                              errors="replace", timeout=timeout, check=False, **options)
        if expect is not None:
            self.assertEqual(done.returncode, expect, f"{' '.join(map(str, arguments))}\n{done.stdout}")
        return done
