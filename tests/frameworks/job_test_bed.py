"""Class JobTest runs scripts of frameworks with the installed package: the backend has the name "sluice" there without an import."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from package_test_bed import LOST_S, ROOT, PackageTest, kill, unpack_wheel, variables  # noqa: E402
from sluice_process import DEADLINE_S, until  # noqa: E402

EXAMPLES = ROOT / "examples"
JOB_S = 4 * DEADLINE_S  # of a whole job: every process of it imports a framework


class JobTest(PackageTest):
    def setUp(self):
        super().setUp()
        _, self.reducer = self.start_reducer()
        self.end = self.folder / "end"
        self.common = {"PYTHONPATH": str(unpack_wheel(self.folder)), "SLUICE_REDUCERS": self.reducer, "MASTER_ADDR": "127.0.0.1", "HOME": str(self.folder),
                       "END_OF_WORKER": str(self.end)}

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
        self.addCleanup(self.kill_job_processes)  # before: a process that left the group may hold the pipe
        return process

    def run_command(self, *command, expect=0, **extra):
        process = self.start_command(*command, **extra)
        printed, _ = process.communicate(timeout=JOB_S)
        self.assertEqual(process.returncode, expect, printed)
        return printed

    def run_command_with_lost_worker(self, error, *command, expect, **extra):
        """The same for a job of which a worker calls end_of_worker.end_with(). The launcher must print the error, a regular expression, within LOST_S."""
        self.end.unlink(missing_ok=True)
        process = self.start_command(*command, **extra)
        printed, reported = "", None
        limit = threading.Timer(JOB_S, self.kill_job_processes)
        limit.start()
        for line in process.stdout:
            printed += line
            if reported is None and re.search(error, printed):
                reported = time.monotonic()
        self.assertTrue(limit.is_alive(), f"processes of the job are left after {JOB_S} s\n{printed}")
        limit.cancel()
        self.assertEqual(process.wait(DEADLINE_S), expect, printed)
        self.assertIsNotNone(reported, printed)
        seconds = reported - float(self.end.read_text())
        print(f"{error}: after {seconds:.1f} s", flush=True)
        self.assertGreater(seconds, 0)
        self.assertLess(seconds, LOST_S)
        return printed

    def job_processes(self):
        """Returns the ids of the processes of all jobs of this test, also of those that left their group, with their command lines."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"HOME={self.folder}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it has ended
        return found

    def expect_no_process(self, named=""):
        """Checks that the processes whose command lines contain the text end within LOST_S."""
        def left():
            return [line for line in self.job_processes().values() if named in line]
        deadline = time.monotonic() + LOST_S
        while left() and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(left(), [])

    def kill_job_processes(self):
        def none_is_left():
            left = self.job_processes()
            for process_id in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGKILL)
            return not left
        until("the processes of the job end", none_is_left)

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
        """Kills the last rank after its third step; each other rank must end with the error, a regular expression, within LOST_S."""
        for _ in until_line(ranks[0], "step 3 "):
            pass
        ranks[-1].kill()
        deadline = time.monotonic() + LOST_S
        for rank in ranks[:-1]:
            _, errors = rank.communicate(timeout=max(0.0, deadline - time.monotonic()))
            self.assertNotEqual(rank.returncode, 0)
            self.assertRegex(errors, error)
        print(f"{error}: within {LOST_S - deadline + time.monotonic():.1f} s", flush=True)
        self.expect_no_process()


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


__all__ = ["EXAMPLES", "JOB_S", "ROOT", "JobTest", "until", "until_line"]
