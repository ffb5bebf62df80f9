"""Two jobs on one reducer whose link is too narrow for both: bytes by weight, and nothing lost to a job that stops reading. Network namespaces of this test
alone; needs root, exit 77 without. What is asserted are bytes of one job against bytes of the other in the same stretch of time."""

import signal
import sys
import time

import bed_probe
import sluice_process
from sluice_process import SluiceTest, until

from two_jobs import JOBS, TwoJobs  # noqa: E402: bed_probe says where it is

RATE, WORKERS = "200mbit", 2
LARGE = ["-b", "4M", "-e", "4M", "-m", "2", "-n", "100000", "-c", "0"]
SETTLE_BYTES, BYTES = 100_000_000, 200_000_000


class FairPool(SluiceTest):
    def begin(self, reducer_options=(), **tenants):
        jobs = self.enterContext(TwoJobs(sluice_process.PROGRAM, WORKERS, RATE, "0", reducer_options))
        for job, tenant in tenants.items():
            jobs.start(job, LARGE, tenant)
        return jobs

    def moved(self, jobs, total):
        """What each job moves while both together move so much."""
        before = jobs.served()
        until(f"{total} bytes", lambda: sum(jobs.served().values()) >= sum(before.values()) + total)
        after = jobs.served()
        return {job: after[job] - before[job] for job in JOBS}

    def test_bytes_by_weight(self):
        jobs = self.begin(["--weight", "one=1,three=3"], a="one", b="three")
        self.moved(jobs, SETTLE_BYTES)
        moved = self.moved(jobs, BYTES)
        ratio = moved["b"] / moved["a"]
        print(f"weights 1:3, bytes 1:{ratio:.3f}", file=sys.stderr)
        self.assertGreater(ratio, 3 * 0.85)
        self.assertLess(ratio, 3 * 1.15)

    def held_ms(self, jobs, tenant):
        return sum(entry["held_ms"] for entry in jobs.status()["session_list"] if entry["tenant"] == tenant)

    def test_a_job_that_stops_costs_the_other_nothing(self):
        jobs = self.begin(["--weight", "one=1,three=3"], a="one", b="three")
        self.moved(jobs, SETTLE_BYTES)
        began = time.monotonic()
        moved = self.moved(jobs, SETTLE_BYTES)
        both = sum(moved.values()) / (time.monotonic() - began)
        self.assertGreater(self.held_ms(jobs, "one"), 0)
        jobs.signal("b", 0, signal.SIGSTOP)  # one rank of the job with the larger share
        self.moved(jobs, BYTES // 10)  # what the other had under way
        held = self.held_ms(jobs, "one")
        began = time.monotonic()
        moved = self.moved(jobs, SETTLE_BYTES)
        alone = moved["a"] / (time.monotonic() - began)
        print(f"both: {both * 8e-6:.1f} Mb/s, the one when the other has stopped: {alone * 8e-6:.1f} Mb/s", file=sys.stderr)
        self.assertEqual((moved["b"], self.held_ms(jobs, "one") - held), (0, 0))
        # Nor is it lost: it goes on, and has its share again.
        jobs.signal("b", 0, signal.SIGCONT)
        self.moved(jobs, SETTLE_BYTES)
        self.assertGreater(self.moved(jobs, SETTLE_BYTES)["b"], 0)


if __name__ == "__main__":
    why = bed_probe.why_no_bed()
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    sluice_process.main()
