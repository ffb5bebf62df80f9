"""Two jobs on one reducer whose link is too narrow for both: bytes by weight, and nothing lost to a job that stops reading. Network namespaces of this test
alone; exit 77 where none can be made. What is asserted are bytes of one job against bytes of the other in the same stretch of time, and of a job beside one
that has stopped against the same job alone: the link's shaped rate bounds both, not the machine."""

import signal
import statistics
import sys
import time
from pathlib import Path

import sluice_process
from sluice_process import SluiceTest, until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/netbed"))

from capabilities import enter_namespaces, require  # noqa: E402: sluice_process says where it is
from two_jobs import JOBS, TwoJobs  # noqa: E402

RATE, WORKERS = "100mbit", 2  # what a machine with other things to do still carries
LARGE = ["-b", "4M", "-e", "4M", "-m", "2", "-n", "100000", "-c", "0"]
# 12 s, in which shares have settled, and three times 8 s.
SETTLE_BYTES, BYTES, STRETCHES = 150_000_000, 100_000_000, 3
STRETCH_BYTES, QUEUED_BYTES = 60_000_000, 20_000_000


class FairPool(SluiceTest):
    def begin(self):
        return self.enterContext(TwoJobs(sluice_process.PROGRAM, WORKERS, RATE, "0", ["--weight", "one=1,three=3"]))

    def moved(self, jobs, total):
        """What each job moves while both together move so much."""
        before = jobs.served()
        until(f"{total} bytes", lambda: sum(jobs.served().values()) >= sum(before.values()) + total)
        after = jobs.served()
        return {job: after[job] - before[job] for job in JOBS}

    def per_second(self, jobs, total):
        began = time.monotonic()
        moved = self.moved(jobs, total)
        seconds = time.monotonic() - began
        return {job: of / seconds for job, of in moved.items()}

    def test_bytes_by_weight(self):
        jobs = self.begin()
        jobs.start("a", LARGE, "one")
        jobs.start("b", LARGE, "three")
        self.moved(jobs, SETTLE_BYTES)
        ratios = []
        for _ in range(STRETCHES):
            moved = self.moved(jobs, BYTES)
            ratios.append(moved["b"] / moved["a"])
        print("weights 1:3, bytes 1:" + ", 1:".join(f"{ratio:.3f}" for ratio in ratios), file=sys.stderr)
        # A job that a busy machine does not let run wants less than its share meanwhile: hence the median.
        self.assertGreater(statistics.median(ratios), 3 * 0.9)
        self.assertLess(statistics.median(ratios), 3 * 1.1)

    def held_ms(self, jobs, tenant):
        return sum(entry["held_ms"] for entry in jobs.status()["session_list"] if entry["tenant"] == tenant)

    def test_a_job_that_stops_costs_the_other_nothing(self):
        jobs = self.begin()
        jobs.start("a", LARGE, "one")
        self.moved(jobs, QUEUED_BYTES)
        alone = self.per_second(jobs, STRETCH_BYTES)["a"]
        jobs.start("b", LARGE, "three")
        self.moved(jobs, SETTLE_BYTES)
        together = self.per_second(jobs, STRETCH_BYTES)
        self.assertGreater(together["b"], 0)
        self.assertGreater(self.held_ms(jobs, "one"), 0)
        jobs.signal("b", 0, signal.SIGSTOP)  # one rank of the job with the larger share
        self.moved(jobs, QUEUED_BYTES)  # what the other had under way
        held = self.held_ms(jobs, "one")
        beside = self.per_second(jobs, STRETCH_BYTES)
        self.assertEqual((beside["b"], self.held_ms(jobs, "one") - held), (0, 0))
        print("Mb/s of the one: " + ", ".join(f"{when} {rate * 8e-6:.1f}" for when, rate in (
            ("alone", alone), ("beside the other", together["a"]), ("when that has stopped", beside["a"]))), file=sys.stderr)
        self.assertGreater(beside["a"], 0.9 * alone)
        self.assertGreater(beside["a"], 0.9 * sum(together.values()))
        # Nor is it lost: it goes on, and has its share again.
        jobs.signal("b", 0, signal.SIGCONT)
        self.moved(jobs, STRETCH_BYTES)
        self.assertGreater(self.moved(jobs, STRETCH_BYTES)["b"], 0)


if __name__ == "__main__":
    enter_namespaces()
    require("network-namespaces")
    sluice_process.main()
