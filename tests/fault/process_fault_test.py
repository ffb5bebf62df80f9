"""Processes that are stopped, killed or never start, chosen by a seed, while a healthy job on the same reducers continues."""

import os
import random
import signal
import time

from sluice_process import SluiceTest, children_of, main, row_count, until

JOB = ("bench", "allreduce", "-b", "1K", "-e", "256K", "-f", "4", "-n", "3")
SEEDS = range(1, 4)
PEER_TIMEOUT_S = 4


class ProcessFaultTest(SluiceTest):
    def start_pool(self):
        pool = [self.start_reducer("--peer-timeout", f"{PEER_TIMEOUT_S}s", "--heartbeat", "200ms") for _ in range(2)]
        return [reducer for reducer, _ in pool], ",".join(address for _, address in pool)

    def reserved(self, pool):
        return [self.status(address)["memory"]["reserved_bytes"] for address in pool.split(",")]

    def expect_freed(self, pool, sessions):
        for address in pool.split(","):
            until(f"{address} has {sessions} sessions left",
                  lambda a=address: (s := self.status(a)["sessions"])["open"] == sessions and s["ending"] == 0)

    def test_a_killed_or_stopped_rank_is_reported_and_the_healthy_job_continues(self):
        for seed in SEEDS:
            choose = random.Random(seed)
            fault = (signal.SIGKILL, signal.SIGSTOP)[seed % 2]
            victim = choose.randrange(4)
            with self.subTest(seed=seed, fault=fault, victim=victim):
                _, pool = self.start_pool()
                healthy = self.start(*JOB, "-N", "0", "--workers", "2", "--connect", pool)
                until("the healthy job runs", lambda: row_count(healthy) >= 1)
                reserved = self.reserved(pool)
                ranks = self.start_ranks(pool, *JOB, "-N", "0", "--workers", "4", ranks=range(4), session=f"{seed:032x}")
                at = choose.randrange(1, 8)
                self.wait_for_rows(ranks[0], more_than=at - 1)
                ranks[victim].signal(fault)
                for rank, running in enumerate(ranks):
                    if rank == victim:
                        continue
                    self.assertEqual(running.wait(), 1, running.stderr())
                    self.assertIn(f"rank {victim}", running.stderr())
                if fault == signal.SIGSTOP:  # once it runs again, the rank gets the error too
                    ranks[victim].signal(signal.SIGCONT)
                    self.assertEqual(ranks[victim].wait(), 1)
                before = row_count(healthy)
                until("the healthy job continues", lambda: row_count(healthy) > before or healthy.ended())
                self.assertFalse(healthy.ended(), healthy.stderr())
                self.expect_freed(pool, 1)
                self.assertEqual(self.reserved(pool), reserved)

    def test_without_kept_results_a_lost_reducer_is_reported_on_every_rank(self):
        for seed in SEEDS:
            choose = random.Random(seed)
            victim = choose.randrange(2)
            fault = choose.choice([signal.SIGKILL, signal.SIGSTOP])
            with self.subTest(seed=seed, fault=fault, victim=victim):
                reducers, pool = self.start_pool()
                ranks = self.start_ranks(pool, *JOB, "-N", "0", "--workers", "3", "--no-keep", ranks=range(3), session=f"{seed:032x}")
                self.wait_for_rows(ranks[0])
                reducers[victim].signal(fault)
                for running in ranks:
                    self.assertEqual(running.wait(), 1, running.stderr())
                    self.assertIn(pool.split(",")[victim], running.stderr())
                other = pool.split(",")[1 - victim]
                until("the other reducer has freed the session", lambda: self.status(other)["memory"]["reserved_bytes"] == 0)

    def test_a_job_continues_after_a_pause_of_the_whole_machine(self):
        pool, addresses = self.start_pool()
        job = self.start(*JOB, "-N", "0", "--workers", "2", "--connect", addresses)
        self.wait_for_rows(job)
        processes = [*(reducer.pid for reducer in pool), job.pid, *children_of(job.pid)]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        end = time.monotonic() + 1.5 * PEER_TIMEOUT_S
        until("the pause is over", lambda: time.monotonic() > end)
        for process in reversed(processes):  # the ranks run before their reducers
            os.kill(process, signal.SIGCONT)
        before = row_count(job)
        until("the job continues", lambda: row_count(job) > before + 1 or job.ended())
        self.assertFalse(job.ended(), job.stderr())
        self.assertNotIn(" lost", job.stderr())

    def test_a_rank_that_never_joins_is_reported(self):
        _, pool = self.start_pool()
        ranks = self.start_ranks(pool, *JOB, "--workers", "4", "--join-timeout", "4s", ranks=(0, 3))
        for running in ranks:
            self.assertNotEqual(running.wait(), 0)
            self.assertIn("ranks 1, 2 did not join", running.stderr())
        self.expect_freed(pool, 0)


if __name__ == "__main__":
    main()
