"""Start and end of processes: drain, second signal, a late rank, a killed worker, a killed launcher."""

import contextlib
import os
import resource
import signal
import socket

from sluice_process import SluiceTest, children_of, has_sanitizer, is_alive, limit_memory, main, row_count, until

JOB = ("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "5")


class ReducerLifecycleTest(SluiceTest):
    def test_an_idle_reducer_drains_at_once(self):
        reducer, _ = self.start_reducer()
        self.expect_drained(reducer)
        lines = reducer.stderr().splitlines()
        # A line about the host's limits of socket buffers may precede these.
        self.assertRegex(lines[-3], r'^ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info msg="reducer [0-9a-f]{16} listens on 127\.0\.0\.1:\d+: '
                                   r'\d+ lanes, memory limit \d+ MB, no authentication, (TCP only: no RDMA device|RDMA over .+)"$')
        self.assertRegex(lines[-1], r'msg="ended after .* 0 sessions completed, 0 failed; .* MB received, .* MB sent; CPU user .* s, system .* s"$')

    def test_a_drain_ends_with_the_requested_exit_code(self):
        for env in ({}, {"SLUICE_DRAIN_EXIT_CODE": "75"}):
            reducer, _ = self.start_reducer(env=env)
            reducer.signal(signal.SIGTERM)
            self.assertEqual(reducer.wait(), int(env.get("SLUICE_DRAIN_EXIT_CODE", 0)), reducer.stderr())
        self.run_sluice("reducer", "--drain-exit-code", "126", expect=64)

    def test_the_end_of_a_job_is_no_drain(self):
        reducer, address = self.start_reducer("--mode", "job", "--expected-workers", "2", "--idle-timeout", "100ms", "--drain-exit-code", "75")
        self.run_sluice(*JOB, "--workers", "2", "--connect", address)
        self.assertEqual(reducer.wait(), 0, reducer.stderr())

    def test_a_reducer_that_waits_for_its_coordinator_ends_at_a_signal(self):
        port = self.reserve_port()
        reducer = self.start("reducer", "--insecure", "--listen", "127.0.0.1:0", "--state", self.folder / "state", "--coordinator", f"etcd://127.0.0.1:{port}")
        until("the reducer waits", lambda: "waiting for the coordinator" in reducer.stderr())
        self.expect_drained(reducer)

    def test_a_reducer_continues_after_the_end_of_its_log_reader(self):
        log, log_end = os.pipe()
        reducer, address = self.start_reducer(stderr=log_end)
        os.close(log_end)
        os.close(log)
        # The start and the end of a session are logged.
        self.run_sluice(*JOB, "--workers", "2", "--connect", address)
        self.assertFalse(reducer.ended())
        self.expect_drained(reducer)

    def test_a_reducer_continues_while_nobody_reads_its_log(self):
        log, log_end = os.pipe()
        os.set_blocking(log_end, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(log_end, b"full" * 1024):
                pass
        os.set_blocking(log_end, True)
        reducer, address = self.start_reducer(stderr=log_end)
        self.addCleanup(os.close, log)
        os.close(log_end)
        self.run_sluice(*JOB, "--workers", "2", "--connect", address)
        os.set_blocking(log, False)
        with contextlib.suppress(BlockingIOError):
            while os.read(log, 1 << 16):
                pass
        self.run_sluice(*JOB, "--workers", "2", "--connect", address)
        self.expect_drained(reducer)
        lines = os.read(log, 1 << 16).decode().splitlines()
        self.assertRegex(lines[0], r'level=warning msg="\d+ log lines were lost here: stderr did not accept them within 50 ms"$')
        self.assertRegex(lines[-1], 'msg="ended after .* 2 sessions completed, 0 failed')

    def test_a_failure_to_start_a_thread_is_an_error_and_no_crash(self):
        """The watchdog thread, which starts last."""
        manager = self.folder / "notify"
        with contextlib.ExitStack() as sockets:
            def datagram():
                made = sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                made.setblocking(False)
                return made
            datagram().bind(str(manager))
            with contextlib.suppress(BlockingIOError):  # full: the reducer waits a second to say READY=1
                while datagram().sendto(b"x", str(manager)):
                    pass
            reducer, _ = self.start_reducer("--lanes", "1", env={"NOTIFY_SOCKET": str(manager), "WATCHDOG_USEC": "30000000"})
            if has_sanitizer(reducer):
                self.skipTest("left out: a sanitizer reserves memory of its own first")
            stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
            # Room for one stack: that of the thread that waits for the reducer's end.
            limit_memory(reducer, (2 << 20 if stack == resource.RLIM_INFINITY else stack) * 3 // 2)
            self.assertEqual(reducer.wait(), 1, reducer.stderr())
        self.assertIn("sluice: Resource temporarily unavailable", reducer.stderr())

    def test_a_draining_reducer_serves_a_running_job_to_its_end(self):
        reducer, address = self.start_reducer("--drain-timeout", "10m")
        job = self.start("bench", "soak", "--duration", "6s", "--workers", "2", "--connect", address)
        until("the job runs", lambda: self.status(address)["data"]["chunks"] > 0 or job.ended())
        reducer.signal(signal.SIGTERM)
        until("the reducer drains", lambda: "draining" in reducer.stderr())
        self.expect_error(69, "drain", *JOB, "--workers", "2", "--connect", address)
        self.assertFalse(job.ended(), job.stderr())
        self.assertEqual(job.wait(), 0, job.stderr())
        self.assertEqual(reducer.wait(), 0)
        self.assertIn("1 sessions completed, 0 failed", reducer.stderr())

    def test_planned_changes_of_a_pool_are_no_warnings(self):
        reducer, first = self.start_reducer()
        _, second = self.start_reducer()
        job = self.start("bench", "soak", "--duration", "10m", "--workers", "2", "--connect", f"{first},{second}")

        def moved():
            return self.status(second)["view_changes"]["committed"]

        until("the job runs", lambda: self.status(first)["data"]["chunks"] > 0 or job.ended())
        reducer.signal(signal.SIGTERM)
        self.assertEqual(reducer.wait(), 0)
        until("the job continues on the other reducer", lambda: moved() >= 1)
        _, again = self.start_reducer(port=first.rpartition(":")[2])
        until("the reducer is added", lambda: self.status(again)["data"]["chunks"] > 0)
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 0, job.stderr())
        self.assertNotIn("level=warning", job.stderr())

    def test_a_reducer_without_descriptors_says_so(self):
        own, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (own, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
        reducer, address = self.start_reducer("--handshake-timeout", "10m")
        pid = reducer.process.pid
        soft = resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
        self.assertEqual(soft, hard, "the reducer raises its soft limit")
        used = len(os.listdir(f"/proc/{pid}/fd"))
        with contextlib.ExitStack() as idle:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 4, hard))

            def is_exhausted():
                idle.enter_context(socket.create_connection(address.split(":")))
                return "no free file descriptor" in reducer.stderr()

            until("the reducer has no descriptor left", is_exhausted)
            self.assertEqual(self.start("status", "--reducers", address).wait(), 0, "connections that prove nothing make room")
        until("they are closed", lambda: len(os.listdir(f"/proc/{pid}/fd")) <= used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, hard))
        for _ in range(20):  # more than its reserve
            self.expect_error(69, "the reducer has no free file descriptor; raise its limit", "status", "--reducers", address)
        self.assertLess(reducer.stderr().count("level=error"), 20, "logged at a bounded rate")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        until("the reducer serves again", lambda: self.start("status", "--reducers", address).wait() == 0)
        self.assertGreaterEqual(self.status(address)["refused"]["too_many"], 20)

    def test_ranks_with_disjoint_lists_learn_that_their_lists_may_differ(self):
        _, first = self.start_reducer()
        _, second = self.start_reducer()
        job = (*JOB, "--workers", "2", "--session", "0badcafe" * 4, "--join-timeout", "2s")
        ranks = [self.start(*job, "--rank", rank, "--connect", address) for rank, address in enumerate((first, second))]
        for rank, (running, address) in enumerate(zip(ranks, (first, second), strict=True)):
            self.assertNotEqual(running.wait(), 0)
            self.assertIn(f"rank {1 - rank} did not join in time; if they run, their list of reducers may differ from this rank's: {address}", running.stderr())

    def test_ranks_with_unequal_lists_learn_both(self):
        addresses = [self.start_reducer()[1] for _ in range(3)]
        ids = [self.status(address)["id"] for address in addresses]
        job = (*JOB, "--workers", "2", "--session", "0badcafe" * 4)
        lists = [",".join(addresses[:2]), f"{addresses[0]},{addresses[2]}"]
        ranks = [self.start(*job, "--rank", rank, "--connect", reducers) for rank, reducers in enumerate(lists)]
        for running, reducers in zip(ranks, lists, strict=True):
            self.assertNotEqual(running.wait(), 0)
            self.assertIn("list of reducers: entry 1 of rank", running.stderr())
            for reducer in ids[1:]:
                self.assertIn(f"the reducer {reducer}", running.stderr())
            self.assertIn(f"this rank's list of reducers: {reducers.replace(',', ', ')}", running.stderr())

    def test_the_drain_timeout_ends_a_running_job(self):
        reducer, address = self.start_reducer("--drain-timeout", "1s")
        job = self.start(*JOB, "-N", "0", "--workers", "2", "--connect", address)
        self.wait_for_rows(job)
        reducer.signal(signal.SIGTERM)
        self.expect_ends([reducer])
        self.expect_ends([job], 1)
        self.assertIn("drain", job.stderr())

    def test_a_second_signal_stops_the_reducer(self):
        reducer, address = self.start_reducer("--drain-timeout", "10m")
        job = self.start(*JOB, "-N", "0", "--workers", "2", "--connect", address)
        self.wait_for_rows(job)
        reducer.signal(signal.SIGTERM)
        until("the reducer drains", lambda: "draining" in reducer.stderr())
        reducer.signal(signal.SIGINT)
        self.assertEqual(reducer.wait(), 130)
        self.assertEqual(job.wait(), 1)

    def test_the_status_names_the_missing_rank(self):
        _, address = self.start_reducer("--peer-timeout", "10m")
        ranks = self.start_ranks(address, *JOB, "-N", "0", "--workers", "2")
        self.wait_for_rows(ranks[0])
        ranks[1].signal(signal.SIGSTOP)

        def session():
            return self.status(address)["session_list"][0]

        until("rank 1 is named", lambda: session().get("missing") == [1])
        self.assertEqual(session()["missing_ranks"], 1)
        waited = session()["waited_ms"]
        until("the wait grows", lambda: session()["waited_ms"] > waited)
        rows = row_count(ranks[0])
        ranks[1].signal(signal.SIGCONT)
        until("the job continues", lambda: row_count(ranks[0]) > rows)
        self.assertFalse(ranks[0].ended() or ranks[1].ended())

    def test_a_killed_rank_is_reported_to_the_other_rank(self):
        _, address = self.start_reducer()
        ranks = self.start_ranks(address, *JOB, "-N", "0", "--workers", "2")
        self.wait_for_rows(ranks[0])
        ranks[1].signal(signal.SIGKILL)
        self.assertEqual(ranks[0].wait(), 1)
        self.assertRegex(ranks[0].stderr(), "rank 1")
        until("the reducer has freed the session", lambda: self.status(address)["memory"]["reserved_bytes"] == 0)

    def test_a_killed_reducer_is_reported_on_every_rank(self):
        reducer, address = self.start_reducer()
        ranks = self.start_ranks(address, *JOB, "-N", "0", "--workers", "2")
        self.wait_for_rows(ranks[0])
        reducer.signal(signal.SIGKILL)
        self.expect_ends(ranks, 1)
        for rank in ranks:
            self.assertIn(address, rank.stderr())


class LauncherTest(SluiceTest):
    def start_job(self):
        job = self.start(*JOB, "-N", "0", "--workers", "3", "--reducers", "2")
        self.wait_for_rows(job)
        children = children_of(job.pid)
        self.addCleanup(lambda: [os.kill(child, signal.SIGKILL) for child in children if is_alive(child)])
        self.assertEqual(len(children), 5, job.stderr())
        return job, children

    def expect_gone(self, children):
        until("all children have ended", lambda: not any(is_alive(child) for child in children))

    def check_killed_child(self, index, name):
        job, children = self.start_job()
        os.kill(children[index], signal.SIGKILL)
        self.assertEqual(job.wait(), 1)
        self.assertRegex(job.stderr(), rf"{name} \(pid \d+\) was killed by signal 9")
        self.expect_gone(children)

    def test_a_killed_worker_ends_the_run(self):
        self.check_killed_child(-1, "worker 2")

    def test_a_killed_reducer_ends_the_run(self):
        self.check_killed_child(0, "reducer 0")

    def test_an_interrupted_launcher_ends_its_children(self):
        job, children = self.start_job()
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 130)
        self.expect_gone(children)

    def start_star(self):
        return self.start("bench", "star", "--workers", "2", "--size", "1M", "--rounds", "1000000")

    def test_an_interrupted_star_ends_its_children(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            star = self.start_star()
            self.wait_for_rows(star)
            children = children_of(star.pid)
            self.assertEqual(len(children), 4, star.stderr())
            star.signal(number)
            self.assertEqual(star.wait(), code, star.stderr())
            self.assertNotIn("sluice:", star.stderr())  # an interrupt is not an error
            self.expect_gone(children)

    def test_a_star_interrupted_while_it_starts_ends_its_children(self):
        for least in (1, 3):  # the first server, then the first worker
            star = self.start_star()
            until("children", lambda star=star, least=least: len(children_of(star.pid)) >= least or star.ended())
            children = children_of(star.pid)
            star.signal(signal.SIGTERM)
            self.assertEqual(star.wait(), 143, star.stderr())
            self.expect_gone(children)

    def test_a_killed_launcher_leaves_no_processes(self):
        job, children = self.start_job()
        job.signal(signal.SIGKILL)
        job.wait()
        self.expect_gone(children)

    def test_a_deadline_ends_the_run(self):
        job = self.start(*JOB, "-N", "0", "--workers", "2", "--timeout", "1s")
        self.assertEqual(job.wait(), 1)
        self.assertIn("deadline", job.stderr())


if __name__ == "__main__":
    main()
