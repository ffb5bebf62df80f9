"""Network partitions under a job: a rank and a reducer lose each other silently, while all others reach both.

The job continues with the reducers that all ranks reach, and no rank is declared lost."""

import json
import os
import signal

from partition_relay import FROM, TO, PartitionRelay
from sluice_process import SluiceTest, main, until

RANKS, REDUCERS = 3, 3
ARBITER = 0  # the first of the list
COLUMNS = 7  # of a complete line of progress; column 2 is the number of operations
BRIEF = os.environ.get("SLUICE_TEST_BRIEF") == "1"  # for sanitizers, which are slow
# Longer than a busy machine keeps a process from running.
PEER_TIMEOUT, RESUME_TIMEOUT = ("5s", "2s") if BRIEF else ("3s", "1s")
PARTITIONED_RANKS = (1,) if BRIEF else (0, 1)  # rank 0 looks for reducers to add again
HOSTS = [f"127.0.1.{rank + 1}" for rank in range(RANKS)]


class PartitionTest(SluiceTest):
    def start_job(self):
        self.reducers = [self.start_reducer("--peer-timeout", PEER_TIMEOUT, "--heartbeat", "100ms", "--lanes", "1") for _ in range(REDUCERS)]
        self.relays = [PartitionRelay(address) for _, address in self.reducers]
        for relay in self.relays:
            self.addCleanup(relay.close)
        pool = ",".join(relay.address for relay in self.relays)
        session = os.urandom(16).hex()
        self.ranks = [self.start("bench", "soak", "--duration", "0", "--interval", "100ms", "--seed", "5", "--max-size", "64K", "--connect", pool,
                                 "--workers", RANKS, "--rank", rank, "--session", session, "--interface", host, "--json", self.folder / f"soak-{rank}.json",
                                 env={"SLUICE_RESUME_TIMEOUT": RESUME_TIMEOUT}) for rank, host in enumerate(HOSTS)]
        until("the job runs on all reducers", lambda: all(self.in_use(r) for r in range(REDUCERS)))

    def expect_running(self):
        for running in self.ranks:
            self.assertFalse(running.ended(), running.stderr())
        return True

    def sessions(self, reducer):
        self.expect_running()
        return self.status(self.reducers[reducer][1])["session_list"]

    def in_use(self, reducer):
        """Whether the session is on this reducer, with all its ranks, and has reduced something."""
        there = self.sessions(reducer)
        return len(there) == 1 and there[0].get("absent_ranks", 0) == 0 and there[0]["served_bytes"] > 0

    def operations(self):
        rows = [line.split() for line in self.ranks[0].stdout().splitlines() if not line.startswith("#")]
        return max((int(row[1]) for row in rows if len(row) == COLUMNS), default=0)

    def expect_progress(self):
        before = self.operations()
        until("the job continues", lambda: self.expect_running() and self.operations() > before + 50)

    def expect_removed(self, reducer):
        """The session has changed its view and continues without this reducer."""
        other = (reducer + 1) % REDUCERS
        until(f"the session has removed reducer {reducer}", lambda: any(s["roster_version"] > 0 for s in self.sessions(other)))
        self.assertGreater(self.relays[reducer].held, 0)
        self.expect_progress()

    def expect_added_and_removed_again(self, reducer):
        """Rank 0 reaches the reducer and adds it again under a new id, which the session removes once more."""
        other = (reducer + 1) % REDUCERS
        until(f"reducer {reducer} was added and removed again", lambda: any(s["roster_version"] >= 3 for s in self.sessions(other)))
        self.expect_progress()

    def finish(self):
        self.ranks[0].signal(signal.SIGINT)
        for rank, running in enumerate(self.ranks):
            self.assertEqual(running.wait(), 0, f"rank {rank}: {running.stderr()}")
        self.assertEqual(json.loads((self.folder / "soak-0.json").read_text())["nwrong"], 0)
        # The partitioned reducer may report peer_lost for a rank that joined it alone and gave up.
        for running in [*self.ranks, *(reducer for (reducer, _), relay in zip(self.reducers, self.relays) if relay.held == 0)]:
            self.assertNotIn("peer_lost", running.stderr())

    def start_and_partition(self, rank, reducer, *directions):
        self.start_job()
        self.relays[reducer].partition(HOSTS[rank], *directions)
        self.expect_removed(reducer)

    def check_both_directions(self, reducer):
        for rank in PARTITIONED_RANKS:
            with self.subTest(rank=rank):
                self.start_and_partition(rank, reducer, TO, FROM)
                if rank != 0:
                    self.expect_added_and_removed_again(reducer)
                self.finish()

    def test_between_a_rank_and_a_reducer(self):
        self.check_both_directions(1)

    def test_between_a_rank_and_the_arbiter(self):
        self.check_both_directions(ARBITER)

    def test_the_arbiter_does_not_hear_a_rank(self):
        self.start_and_partition(1, ARBITER, TO)
        self.finish()

    def test_a_rank_does_not_hear_the_arbiter(self):
        self.start_and_partition(1, ARBITER, FROM)
        self.finish()

    def test_a_rank_and_a_reducer_after_the_partition_ends(self):
        self.start_and_partition(1, 1, TO, FROM)
        self.relays[1].heal()
        until("the reducer is added again", lambda: self.in_use(1) and self.sessions(1)[0]["roster_version"] >= 2)
        self.expect_progress()
        self.finish()


if __name__ == "__main__":
    main()
