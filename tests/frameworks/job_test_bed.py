"""Class JobTest runs scripts of frameworks with the installed package: the backend has the name "sluice" there without an import."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from package_test_bed import ROOT, PackageTest, kill, unpack_wheel, variables  # noqa: E402
from sluice_process import DEADLINE_S, until  # noqa: E402

EXAMPLES = ROOT / "examples"
JOB_S = 4 * DEADLINE_S  # of a whole job: every process of it imports a framework


class JobTest(PackageTest):
    def setUp(self):
        super().setUp()
        _, self.reducer = self.start_reducer()
        self.common = {"PYTHONPATH": str(unpack_wheel(self.folder)), "SLUICE_REDUCERS": self.reducer, "MASTER_ADDR": "127.0.0.1", "HOME": str(self.folder)}

    def start_ranks_of(self, script, ranks, *arguments, per_rank=lambda rank: {}, **extra):
        """Starts an example as torchrun does, but each rank as a child of the test. per_rank(rank) returns variables of one rank."""
        common = {**self.common, "MASTER_PORT": str(self.reserve_port()), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), **extra}
        return [self.python(EXAMPLES / script, *arguments, RANK=str(rank), LOCAL_RANK=str(rank), **{**common, **per_rank(rank)}) for rank in range(ranks)]

    def run_ranks_of(self, *arguments, **how):
        """The same, to the end. Returns what rank 0 prints."""
        return self.outputs(self.start_ranks_of(*arguments, **how))[0]

    def start_command(self, *command, **extra):
        """Starts a launcher, whose processes are a group of their own, which is killed at the end of the test. stderr is part of stdout."""
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
                                   env=variables(**{**self.common, **extra}), start_new_session=True)
        self.addCleanup(kill_group, process)
        return process

    def run_command(self, *command, expect=0, **extra):
        process = self.start_command(*command, **extra)
        printed, _ = process.communicate(timeout=JOB_S)
        self.assertEqual(process.returncode, expect, printed)
        return printed

    def lines(self, printed, pattern=r"step \d+ loss \S+"):
        """Returns the lines of an output that match, of which there must be some."""
        found = re.findall(rf"^(?:\(.*\) )?({pattern})$", printed, re.MULTILINE)
        self.assertTrue(found, printed)
        return found

    def expect_training(self, lines):
        """Checks that lines such as "step 3 loss 0.5" show a falling loss."""
        losses = [float(line.split()[-1]) for line in lines]
        self.assertLess(losses[-1], losses[0], lines)

    def reduced_bytes(self):
        """Returns how many bytes the reducer has received from ranks."""
        return self.status(self.reducer)["data"]["bytes_in"]

    def expect_error_when_a_rank_dies(self, ranks, error):
        """Kills the last rank after its third step; each other rank must end with the error, a regular expression, within DEADLINE_S."""
        for _ in until_line(ranks[0], "step 3 "):
            pass
        ranks[-1].kill()
        for rank in ranks[:-1]:
            _, errors = rank.communicate(timeout=DEADLINE_S)
            self.assertNotEqual(rank.returncode, 0)
            self.assertRegex(errors, error)


def until_line(process, begin):
    """Yields the lines of a process up to the first that begins with the text, or its last."""
    for line in process.stdout:
        yield line
        if line.startswith(begin):
            return


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    kill(process)


__all__ = ["EXAMPLES", "JOB_S", "JobTest", "until", "until_line"]
