"""Two jobs share one reducer over a link that is too slow for both: bytes follow the weights, and a stopped job does not slow the other.

Runs in network namespaces of its own; exits with 77 if the machine does not allow them. The assertions compare the bytes of the two jobs in the same
interval, or one job's rate beside a stopped job with its rate alone. The shaped rate of the link bounds both, not the machine."""

import signal
import statistics
import sys
import time
from pathlib import Path

import sluice_process
from sluice_process import SluiceTest, until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/test_network"))

from capabilities import enter_namespaces, require  # noqa: E402: sluice_process says where it is
from two_jobs import JOBS, TwoJobs  # noqa: E402

RATE, WORKERS = "100mbit", 2  # low enough for a busy machine
LARGE = ["-b", "4M", "-e", "4M", "-m", "2", "-n", "100000", "-c", "0"]
# 12 s for the shares to settle, and three times 8 s.
SETTLE_BYTES, BYTES, INTERVALS = 150_000_000, 100_000_000, 3
INTERVAL_BYTES, QUEUED_BYTES = 60_000_000, 20_000_000


class FairPoolTest(SluiceTest):
    def begin(self):
        return self.enterContext(TwoJobs(sluice_process.PROGRAM, WORKERS, RATE, "0", ["--weight", "one=1,three=3"]))

    def moved(self, jobs, total):
        """The bytes that each job moves while both together move `total`."""
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
        for _ in range(INTERVALS):
            moved = self.moved(jobs, BYTES)
            ratios.append(moved["b"] / moved["a"])
        print("weights 1:3, bytes 1:" + ", 1:".join(f"{ratio:.3f}" for ratio in ratios), file=sys.stderr)
        # The median, since a busy machine may keep a job from using its share for a while.
        self.assertGreater(statistics.median(ratios), 3 * 0.9)
        self.assertLess(statistics.median(ratios), 3 * 1.1)

    def held_ms(self, jobs, tenant):
        return sum(entry["held_ms"] for entry in jobs.status()["session_list"] if entry["tenant"] == tenant)

    def test_a_stopped_job_does_not_slow_the_other(self):
        jobs = self.begin()
        jobs.start("a", LARGE, "one")
        self.moved(jobs, QUEUED_BYTES)
        alone = self.per_second(jobs, INTERVAL_BYTES)["a"]
        jobs.start("b", LARGE, "three")
        self.moved(jobs, SETTLE_BYTES)
        together = self.per_second(jobs, INTERVAL_BYTES)
        self.assertGreater(together["b"], 0)
        self.assertGreater(self.held_ms(jobs, "one"), 0)
        jobs.signal("b", 0, signal.SIGSTOP)  # one rank of the job with the larger share
        self.moved(jobs, QUEUED_BYTES)  # the bytes that the stopped job had in flight
        held = self.held_ms(jobs, "one")
        intervals = [self.per_second(jobs, INTERVAL_BYTES // 2) for _ in range(INTERVALS)]
        self.assertEqual(({each["b"] for each in intervals}, self.held_ms(jobs, "one") - held), ({0}, 0))
        beside = max(each["a"] for each in intervals)  # a busy machine may keep the job from using the link for a while
        print("Mb/s of job a: " + ", ".join(f"{when} {rate * 8e-6:.1f}" for when, rate in (
            ("alone", alone), ("beside job b", together["a"]), ("while job b is stopped", beside))), file=sys.stderr)
        self.assertGreater(beside, 0.9 * alone)
        self.assertGreater(beside, 0.9 * sum(together.values()))
        # The stopped job is not lost: it continues with its share.
        jobs.signal("b", 0, signal.SIGCONT)
        self.moved(jobs, INTERVAL_BYTES)
        self.assertGreater(self.moved(jobs, INTERVAL_BYTES)["b"], 0)


if __name__ == "__main__":
    enter_namespaces()
    require("network-namespaces")
    sluice_process.main()
