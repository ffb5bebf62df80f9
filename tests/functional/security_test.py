"""Authentication by keys and tokens between real processes."""

import os
import re
import signal
import threading

from sluice_process import SluiceTest, main, row_count, until

UNAUTHENTICATED = re.compile("token|key of the pool|prove|authenticat")
REFUSALS = 60
JOIN = ("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "1", "--workers", "2", "--join-timeout", "20s")


class SecurityTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.key = self.make_key()
        self.tokens = {}
        for job in ("train-7", "train-8"):
            self.tokens[job] = self.folder / f"{job}.token"
            self.run_sluice("keygen", "--key-file", self.key, "--job", job, "--out", self.tokens[job])

    def test_the_right_token_and_the_pool_key_are_accepted(self):
        _, address = self.start_reducer("--key-file", self.key)
        self.run_sluice(*JOIN, "--connect", address, "--job", "train-7", "--token-file", self.tokens["train-7"])
        self.run_sluice(*JOIN, "--connect", address, "--job", "train-7", "--key-file", self.key)
        self.status_after_sessions(address, 2, "--job", "train-8", "--token-file", self.tokens["train-8"])

    def test_a_token_of_another_job_is_refused(self):
        _, address = self.start_reducer("--key-file", self.key)
        self.expect_error(69, UNAUTHENTICATED, *JOIN, "--connect", address, "--job", "train-8", "--token-file", self.tokens["train-7"])
        self.run_sluice("status", "--reducers", address, "--job", "train-8", "--token-file", self.tokens["train-7"], expect=69)
        status = self.status(address, "--key-file", self.key)
        self.assertEqual(status["sessions"]["begun"], 0)
        self.assertEqual(status["memory"]["reserved_bytes"], 0)

    def test_a_token_opens_no_session_of_another_job(self):
        _, address = self.start_reducer("--key-file", self.key)

        def rank(number, job, *more):
            return self.start("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "5", *more, "--workers", "2", "--rank", number,
                              "--session", "7" * 32, "--connect", address, "--job", job, "--token-file", self.tokens[job])

        first = rank(0, "train-7")
        until("rank 0 has joined", lambda: self.joined(address) == 1)
        for number in (0, 1):
            stranger = rank(number, "train-8", "--join-timeout", "20s")
            self.expect_ends([stranger], 69)
            self.assertIn("does not belong to job", stranger.stderr())
        self.assertEqual(self.joined(address), 1)
        second = rank(1, "train-7")
        self.expect_ends([first, second])

    def joined(self, address):
        sessions = self.status(address, "--key-file", self.key)["session_list"]
        return sessions[0]["joined"] if sessions else 0

    def test_a_missing_token_is_refused(self):
        _, address = self.start_reducer("--key-file", self.key)
        self.expect_error(69, UNAUTHENTICATED, *JOIN, "--connect", address)
        self.run_sluice("status", "--reducers", address, expect=69)

    def test_a_reducer_without_the_key_is_refused(self):
        _, address = self.start_reducer()
        self.expect_error(69, UNAUTHENTICATED, *JOIN, "--connect", address, "--key-file", self.key)

    def test_clients_without_a_valid_token_are_counted_and_logged(self):
        reducer, address = self.start_reducer("--key-file", self.key)
        other = self.folder / "other.key"
        self.run_sluice("keygen", "--out", other)
        for job, credentials in (("no-token", ()), ("other-key", ("--key-file", other)), ("train-8", ("--token-file", self.tokens["train-7"]))):
            with self.subTest(job):
                before = self.status(address, "--key-file", self.key)["refused"].get("unauthenticated", 0)
                self.expect_error(69, UNAUTHENTICATED, *JOIN, "--connect", address, "--job", job, *credentials)
                until("the reducer has counted it", lambda: self.status(address, "--key-file", self.key)["refused"].get("unauthenticated", 0) > before)
                self.assertRegex(reducer.stderr(), rf'level=warn.*unauthenticated: 127\.0\.0\.1:\d+ as job \\"{job}\\": ')
        self.assertNotIn("audit: ", reducer.stderr())
        # What a token's holder does is not counted, whatever it is.
        unauthenticated = self.status(address, "--key-file", self.key)["refused"]["unauthenticated"]
        closed_port = f"127.0.0.1:{self.reserve_port()}"
        self.run_sluice("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "1", "--workers", "2", "--join-timeout", "2s",
                        "--connect", f"{address},{closed_port}", "--job", "train-7", "--token-file", self.tokens["train-7"], expect=69)
        self.assertEqual(self.status(address, "--key-file", self.key)["refused"]["unauthenticated"], unauthenticated)

    def test_the_key_of_a_reducer_is_no_pipe(self):
        """It is read again at SIGHUP. Clients read theirs once."""
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for mode, code in (((), 64), (("--check-config",), 78)):
            self.expect_error(code, f"--key-file {pipe}: is a pipe, but the key is read more than once", "reducer", "--listen", "127.0.0.1:0", "--key-file", pipe, *mode)
        _, address = self.start_reducer("--key-file", self.key)
        threading.Thread(target=pipe.write_bytes, args=(self.key.read_bytes(),), daemon=True).start()
        self.run_sluice("status", "--reducers", address, "--key-file", pipe)

    def test_refusals_are_logged_at_a_bounded_rate(self):
        reducer, address = self.start_reducer("--key-file", self.key)
        for _ in range(REFUSALS):
            self.run_sluice("status", "--reducers", address, expect=69)
        until("all are counted", lambda: self.status(address, "--key-file", self.key)["refused"].get("unauthenticated", 0) >= REFUSALS)
        self.assertIn(reducer.stderr().count("unauthenticated: "), range(1, REFUSALS // 2))

    def test_each_session_has_an_audit_line_without_its_id(self):
        reducer, address = self.start_reducer("--key-file", self.key)
        session = "7" * 32
        self.expect_ends(self.start_ranks(address, *JOIN, "--job", "train-7", "--token-file", self.tokens["train-7"], session=session))
        lines = [line for line in reducer.stderr().splitlines() if "audit: " in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(r'level=info msg="audit: session of job \"train-7\", tenant \"train-7\", 2 of 2 ranks from 127.0.0.1 (2): started"', lines[0])
        self.assertNotIn(session, reducer.stderr())

    def test_connections_to_models_have_audit_lines(self):
        reducer, address = self.start_reducer("--key-file", self.key, "--state", self.folder / "state")
        self.run_sluice("store", "list", "--reducers", address, "--job", "train-7", "--token-file", self.tokens["train-7"])
        self.assertRegex(reducer.stderr(), r'audit: connection to models of job \\"train-7\\", tenant \\"train-7\\", from 127\.0\.0\.1:\d+"')

    def test_the_key_is_replaced_while_jobs_run(self):
        reducer, address = self.start_reducer("--key-file", self.key)
        old_token = self.tokens["train-7"]

        def start_job(token):
            job = self.start("bench", "allreduce", "-b", "4K", "-e", "4K", "-N", "0", "--workers", "2", "--connect", address, "--job", "train-7",
                             "--token-file", token)
            self.wait_for_rows(job)
            return job

        def expect_progress(job):
            self.wait_for_rows(job, row_count(job))
            self.assertFalse(job.ended(), job.stderr())

        def reload(text):
            self.write("pool.key", text)
            before = reducer.stderr().count("configuration reloaded")
            reducer.signal(signal.SIGHUP)
            until("the reducer has reread its key", lambda: reducer.stderr().count("configuration reloaded") > before)

        old_text = self.key.read_text()
        first = start_job(old_token)
        new_key, new_token = self.folder / "new.key", self.folder / "new.token"
        self.run_sluice("keygen", "--out", new_key)
        reload(new_key.read_text() + old_text)
        self.assertIn("; 2 pool keys", reducer.stderr())
        self.assertRegex(reducer.stderr(), "level=warn.*pool.key: other users can read this secret; run chmod 600")
        until("the log says who holds the old key", lambda: "2 ranks joined with the old pool key" in reducer.stderr())
        # The file with both keys makes new tokens.
        self.run_sluice("keygen", "--key-file", self.key, "--job", "train-7", "--out", new_token)
        jobs = [first, start_job(old_token), start_job(new_token)]
        until("the sessions with the old key are logged", lambda: "2 of them with the old key" in reducer.stderr())
        reload(new_key.read_text())
        self.assertRegex(reducer.stderr(), "level=warn.*4 ranks joined with a pool key that was removed")
        for job in jobs:
            expect_progress(job)
        self.expect_error(69, "wrong token", *JOIN, "--connect", address, "--job", "train-7", "--token-file", old_token)
        self.run_sluice(*JOIN, "--connect", address, "--job", "train-7", "--token-file", new_token)
        for job in jobs:
            job.signal(signal.SIGINT)
            job.wait()

    def test_launched_reducers_use_the_key(self):
        self.run_sluice("demo", "digits", "--epochs", "1", "--workers", "2", "--key-file", self.key)
        self.run_sluice("demo", "digits", "--epochs", "1", "--workers", "2", "--token-file", self.tokens["train-7"], expect=64)


if __name__ == "__main__":
    main()
