"""Authentication by keys and tokens between real processes."""

import re

from sluice_process import SluiceTest, main, until

UNAUTHENTICATED = re.compile("token|prove|authenticat")
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

    def test_launched_reducers_use_the_key(self):
        self.run_sluice("demo", "digits", "--epochs", "1", "--workers", "2", "--key-file", self.key)
        self.run_sluice("demo", "digits", "--epochs", "1", "--workers", "2", "--token-file", self.tokens["train-7"], expect=64)


if __name__ == "__main__":
    main()
