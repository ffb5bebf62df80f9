"""Networks that fall apart under a job: a rank and a reducer lose each other while everybody else hears both, without a word from TCP. The job goes on
with what all ranks can reach, and no rank is taken for lost."""

import json
import os
import signal

from partition_relay import FROM, TO, PartitionRelay
from sluice_process import SluiceTest, main, until

RANKS, REDUCERS = 3, 3
ARBITER = 0  # the first of the list
COLUMNS = 7  # of a whole line of progress; the second is operations
BRIEF = os.environ.get("SLUICE_TEST_BRIEF") == "1"  # under sanitizers, which take their time
# Silence that is borne: more than a busy machine lets a process wait for its turn.
PEER_TIMEOUT, RESUME_TIMEOUT = ("5s", "2s") if BRIEF else ("3s", "1s")
PARTED = (1,) if BRIEF else (0, 1)  # 0 is the one that looks for reducers that come back
HOSTS = [f"127.0.1.{rank + 1}" for rank in range(RANKS)]


class Partition(SluiceTest):
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

    def all_run(self):
        for running in self.ranks:
            self.assertFalse(running.ended(), running.stderr())
        return True

    def sessions(self, reducer):
        self.all_run()
        return self.status(self.reducers[reducer][1])["session_list"]

    def in_use(self, reducer):
        """The session is here with all its ranks, and has made sums."""
        there = self.sessions(reducer)
        return len(there) == 1 and there[0].get("absent_ranks", 0) == 0 and there[0]["served_bytes"] > 0

    def operations(self):
        rows = [line.split() for line in self.ranks[0].stdout().splitlines() if not line.startswith("#")]
        return max((int(row[1]) for row in rows if len(row) == COLUMNS), default=0)

    def goes_on(self):
        before = self.operations()
        until("the job goes on", lambda: self.all_run() and self.operations() > before + 50)

    def expect_left(self, reducer):
        """The session has changed its view, and goes on without this one."""
        other = (reducer + 1) % REDUCERS
        until(f"the session has left reducer {reducer}", lambda: any(s["roster_version"] > 0 for s in self.sessions(other)))
        self.assertGreater(self.relays[reducer].held, 0)
        self.goes_on()

    def expect_tried_again(self, reducer):
        """Whole for rank 0, which takes it in again once it is another, and in vain: a second one has come and gone."""
        other = (reducer + 1) % REDUCERS
        until(f"reducer {reducer} was taken in again, and left", lambda: any(s["roster_version"] >= 3 for s in self.sessions(other)))
        self.goes_on()

    def finish(self):
        self.ranks[0].signal(signal.SIGINT)
        for rank, running in enumerate(self.ranks):
            self.assertEqual(running.wait(), 0, f"rank {rank}: {running.stderr()}")
        self.assertEqual(json.loads((self.folder / "soak-0.json").read_text())["nwrong"], 0)
        # The one that is parted may say it of a rank that had joined it alone, and gave that up.
        for running in [*self.ranks, *(reducer for (reducer, _), relay in zip(self.reducers, self.relays) if relay.held == 0)]:
            self.assertNotIn("peer_lost", running.stderr())

    def test_a_rank_and_a_reducer(self):
        for rank in PARTED:
            with self.subTest(rank=rank):
                self.start_job()
                self.relays[1].part(HOSTS[rank], TO, FROM)
                self.expect_left(1)
                if rank != 0:
                    self.expect_tried_again(1)
                self.finish()

    def test_a_rank_and_the_arbiter(self):
        for rank in PARTED:
            with self.subTest(rank=rank):
                self.start_job()
                self.relays[ARBITER].part(HOSTS[rank], TO, FROM)
                self.expect_left(ARBITER)
                if rank != 0:
                    self.expect_tried_again(ARBITER)
                self.finish()

    def test_a_rank_that_the_arbiter_does_not_hear(self):
        self.start_job()
        self.relays[ARBITER].part(HOSTS[1], TO)
        self.expect_left(ARBITER)
        self.finish()

    def test_a_rank_that_does_not_hear_the_arbiter(self):
        self.start_job()
        self.relays[ARBITER].part(HOSTS[1], FROM)
        self.expect_left(ARBITER)
        self.finish()

    def test_a_rank_and_a_reducer_that_come_together_again(self):
        self.start_job()
        self.relays[1].part(HOSTS[1], TO, FROM)
        self.expect_left(1)
        self.relays[1].join()
        until("the reducer is taken in again", lambda: self.in_use(1) and self.sessions(1)[0]["roster_version"] >= 2)
        self.goes_on()
        self.finish()


if __name__ == "__main__":
    main()
