"""`sluice demo outer-steps`: islands that exchange weights through a model learn the digits, end with the same bits, and leave nothing behind."""

import signal

from sluice_process import SluiceTest, main, until

DEMO = ("demo", "outer-steps")


class OuterSteps(SluiceTest):
    def start_store(self):
        return self.start_reducer("--state", self.folder / "state")

    def models(self, address):
        return self.run_sluice("store", "list", "--reducers", address).stdout.split()

    def test_defaults_learn_the_digits_with_a_tenth_of_the_bytes(self):
        path = self.folder / "result.json"
        text = self.run_sluice(*DEMO, "--min-accuracy", "0.95", "--json", path).stdout
        self.assertRegex(text, r"version +1 \[\.+\] held-out +\d+\.\d\d % on island 0 alone, +\d+\.\d\d % of 2 islands +\d+\.\d\d s\n")
        self.assertRegex(text, r"\nversion +46 \[#+\] held-out ")
        self.assertRegex(text, r"held-out accuracy +\d+\.\d\d % \(\d+ of 360 images that were never trained on\), version 46\n")
        self.assertRegex(text, r"weights +bit-identical on 4 workers, hash [0-9a-f]{16}\n")
        self.assertRegex(text, r"data-parallel +\d+\.\d\d MB if each step crossed the islands: 10\.0 times as much\n")

    def test_islands_of_a_running_pool_have_the_same_bits_in_every_run_and_leave_no_model(self):
        _, address = self.start_store()
        command = (*DEMO, "--reducers", address, "--islands", "3", "--workers", "6", "--every", "7", "--epochs", "3")
        results = [self.run_json(*command) for _ in range(2)]
        for result in results:
            self.assertIs(result["weights_identical"], True)
            self.assertEqual((result["inner_steps"], result["outer_steps"], result["version"]), (45, 7, 7))  # the last after 3 steps
            self.assertGreater(result["held_out_accuracy"], 0.5)
            self.assertEqual(result["model_bytes"], 7 * 3 * 4 * 9610)
            self.assertGreater(result["island_bytes_per_worker"], 45 * 4 * 9610 / 2)  # blocks of zeros do not travel
        self.assertEqual(results[0]["weights_hash"], results[1]["weights_hash"])
        self.assertNotEqual(self.run_json(*command, "--outer-momentum", "0")["weights_hash"], results[0]["weights_hash"])
        self.assertEqual(self.models(address), [])

    def test_an_interrupted_run_leaves_no_model(self):
        _, address = self.start_store()
        demo = self.start(*DEMO, "--reducers", address, "--epochs", "1000000")
        until("the first outer steps", lambda: "version" in demo.stdout() or demo.ended())
        self.assertEqual(len(self.models(address)), 1)
        demo.signal(signal.SIGINT)
        self.expect_ends([demo], 130)
        self.assertEqual(self.models(address), [])

    def test_a_pool_without_state_is_refused_once(self):
        _, address = self.start_reducer()
        done = self.expect_error(69, f"reducer {address}: keeps no models; start it with --state", *DEMO, "--reducers", address)
        self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)

    def test_bad_options_are_exit_64(self):
        self.expect_usage_errors(DEMO, [["--islands", "1"], ["--islands", "3"], ["--every", "0"], ["--workers", "0"], ["--reducers", "2"],
                                        ["--reducers", "0"], ["--outer-momentum", "1"], ["--epochs", "0"]])
        self.expect_error(64, "--workers 4: expected a multiple of --islands 3", *DEMO, "--islands", "3")

    def test_too_low_an_accuracy_is_exit_2(self):
        self.run_sluice(*DEMO, "--epochs", "1", "--workers", "2", "--min-accuracy", "1", expect=2)


if __name__ == "__main__":
    main()
