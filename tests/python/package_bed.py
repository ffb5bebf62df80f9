"""The package from the source tree over the built libsluice, in the environment of scripts/python_env.sh: reducers, and ranks as processes."""

import argparse
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gpu_client" / "python"
sys.path.insert(0, str(ROOT / "tests" / "functional"))

import sluice_process  # noqa: E402
from sluice_process import DEADLINE_S, SluiceTest  # noqa: E402


def main():
    """Entry of every test file, in the interpreter that in_environment.py starts: --sluice PROGRAM --library FILE, then what unittest takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", type=Path, required=True, help="the program under test")
    parser.add_argument("--library", type=Path, required=True, help="libsluice under test")
    arguments, rest = parser.parse_known_args()
    os.environ["SLUICE_LIBRARY"] = str(arguments.library.resolve())  # read with the first session, in this process and in those that it starts
    sluice_process.PROGRAM = str(arguments.sluice.resolve())
    unittest.main(argv=[sys.argv[0], *rest], module="__main__", verbosity=2)


def variables(**extra):
    """Of a process that imports the package. One thread for each rank's arithmetic: ranks share the processors."""
    library = {name: value for name, value in os.environ.items() if name in ("SLUICE_LIBRARY", "SLUICE_CUDA_DRIVER")}
    return sluice_process.environment({"PYTHONPATH": str(PACKAGE / "src"), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                                       "PYTHONDONTWRITEBYTECODE": "1", **library, **extra})


def open_session(reducers, **options):
    """In this process: a session of one rank, or of `rank` among `ranks`, that doesn't wait long for anything."""
    import sluice

    settings = {"session_id": os.urandom(16), "rank": 0, "ranks": 1, "join_timeout_ms": 20_000, "linger_ms": 2000, "resume_timeout_ms": 200}
    return sluice.Session(reducers, **{**settings, **options})


class PackageTest(SluiceTest):
    def python(self, *arguments, **extra):
        """A process of this interpreter, ended with the test."""
        process = subprocess.Popen([sys.executable, "-B", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL, env=variables(**extra))
        self.addCleanup(end, process)
        return process

    def start_ranks(self, script, ranks, reducers, *arguments):
        """`script` of this folder as `ranks` processes. In its environment are RANK, WORLD_SIZE, REDUCERS, SESSION_ID (hex), and STORE, a file for
        torch.distributed to meet at."""
        common = {"WORLD_SIZE": str(ranks), "REDUCERS": reducers, "SESSION_ID": os.urandom(16).hex(),
                  "STORE": str(self.folder / f"store-{time.monotonic_ns()}")}
        path = Path(__file__).parent / script
        return [self.python(path, *arguments, RANK=str(rank), **common) for rank in range(ranks)]

    def outputs(self, processes, expect=0):
        """What they printed, once all have ended with `expect`."""
        printed = []
        for process in processes:
            try:
                out, error = process.communicate(timeout=2 * DEADLINE_S)  # of every process some seconds go to torch's import
            except subprocess.TimeoutExpired:
                self.fail(f"{process.args} does not end")
            self.assertEqual(process.returncode, expect, f"{process.args}\n{out}{error}")
            printed.append(out)
        return printed

    def run_ranks(self, *arguments):
        return self.outputs(self.start_ranks(*arguments))


def end(process):
    if process.poll() is None:
        process.kill()
    process.communicate()


def session_of_environment(**options):
    """In a rank's process: the session that its environment describes."""
    import sluice

    return sluice.Session(os.environ["REDUCERS"], session_id=bytes.fromhex(os.environ["SESSION_ID"]), rank=int(os.environ["RANK"]),
                          ranks=int(os.environ["WORLD_SIZE"]), **options)
