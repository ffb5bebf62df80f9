"""`sluice check pool` and `sluice wait`: a rolling restart under a job, an idle pool, and sessions that are not everywhere."""

import re

from sluice_process import SluiceTest, main, row_count, until

ALLREDUCE = ("bench", "allreduce", "-b", "64K", "-e", "256K", "-f", "4", "-n", "5", "-N", "0", "--workers", "2")
ONE_REDUCER_JOB = ("bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "5", "-N", "0", "--workers", "2")


class PoolTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.key = self.make_key()
        self.secure = ("--key-file", self.key)

    def start_pool(self, *arguments, count=2):
        return [self.start_reducer(*self.secure, *arguments) for _ in range(count)]

    def start_job(self, addresses, command=ALLREDUCE):
        ranks = self.start_ranks(",".join(addresses), *command, *self.secure)
        self.wait_for_rows(ranks[0])
        return ranks

    def expect_progress(self, ranks):
        rows = row_count(ranks[0])
        until("the job goes on", lambda: row_count(ranks[0]) > rows + 1 or ranks[0].ended())
        self.assertFalse(any(rank.ended() for rank in ranks), "".join(rank.stderr() for rank in ranks))


class RollingRestart(PoolTest):
    def test_a_job_outlives_the_restart_of_every_reducer(self):
        pool = self.start_pool()
        addresses = [address for _, address in pool]
        ready = ("wait", "--ready", ",".join(addresses), *self.secure, "--timeout", "60s")
        ranks = self.start_job(addresses)
        self.run_sluice(*ready)
        for number, (reducer, address) in enumerate(pool):
            self.assertIn(f"reducer {address}: ready, 1 sessions", self.run_sluice("check", "pool", "--reducers", ",".join(addresses), *self.secure).stdout)
            self.expect_drained(reducer)
            self.expect_error(69, f"reducer {address}: ", "check", "pool", "--reducers", ",".join(addresses), *self.secure)
            host, port = address.split(":")
            pool[number] = self.start_server(["reducer"], *self.secure, host=host, port=port)
            # The new reducer accepts sessions before the running one is back. That must not count as ready.
            self.run_sluice(*ready)
            lists = [self.status(each, *self.secure)["session_list"] for each in addresses]
            self.assertEqual([[session["joined"] for session in sessions] for sessions in lists], [[2], [2]])
            self.expect_progress(ranks)

    def test_an_idle_pool_is_ready(self):
        addresses = [address for _, address in self.start_pool()]
        done = self.run_sluice("wait", "--ready", ",".join(addresses), *self.secure)
        self.assertEqual(done.stdout, self.run_sluice("check", "pool", "--reducers", ",".join(addresses), *self.secure).stdout)
        self.assertRegex(done.stdout, "^" + "".join(rf"reducer {address}: ready, 0 sessions, version \S+\n" for address in addresses) + "$")

    def test_a_session_that_is_not_everywhere_is_named(self):
        (_, first), (_, second) = self.start_pool()
        self.start_job([first])
        pool = ("--reducers", f"{first},{second}", *self.secure)
        done = self.expect_error(69, "the pool is not ready: 1 problems, the first: session 000102030405060708090a0b0c0d0e0f is not on reducer " + second,
                                 "check", "pool", *pool)
        self.assertEqual(len(done.stdout.splitlines()), 3)
        self.run_sluice("check", "pool", "--reducers", first, *self.secure)

    def test_sessions_without_fault_tolerance_are_not_judged(self):
        (_, first), (_, second) = self.start_pool()
        self.start_job([first], (*ONE_REDUCER_JOB, "--no-keep"))
        self.run_sluice("check", "pool", "--reducers", f"{first},{second}", *self.secure)

    def test_wait_ends_at_its_timeout_with_the_reason(self):
        missing = f"127.0.0.1:{self.reserve_port()}"
        self.expect_error(69, re.compile(rf"^sluice: not ready within 1s: reducer {missing}: .*refused"), "wait", "--ready", missing, "--timeout", "1s")


if __name__ == "__main__":
    main()
