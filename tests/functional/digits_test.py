"""`sluice demo digits`: bit-identical weights with any number of reducers, and the expected accuracy."""

import itertools
import os
from pathlib import Path

from sluice_process import SluiceTest, main

TRAIN = ("demo", "digits", "--epochs", "8", "--workers")


class Digits(SluiceTest):
    def test_same_bits_with_one_two_three_reducers_and_in_one_process(self):
        single = self.run_json(*TRAIN, "3", "--single")
        self.assertIsNone(single["weights_identical"])
        for reducers in (1, 2, 3):
            result = self.run_json(*TRAIN, "3", "--reducers", reducers)
            self.assertIs(result["weights_identical"], True)
            self.assertEqual(result["weights_hash"], single["weights_hash"], f"{reducers} reducers")
            self.assertEqual(result["held_out_accuracy"], single["held_out_accuracy"])
            self.assertEqual(result["reducers"], reducers)

    def test_same_bits_for_any_pool_with_and_without_co_located_reducers(self):
        expected = self.run_json("demo", "digits", "--epochs", "2", "--workers", "3", "--single")["weights_hash"]
        for mode, reducers, through in itertools.product(("off", "always"), (0, 1, 2, 4), ((), ("--through-plugin",))):
            with self.subTest(mode=mode, reducers=reducers, through=through):
                command, env = ("demo", "digits", "--epochs", "2", "--workers", "3", "--reducers", reducers, *through), {"SLUICE_COLOCATED": mode}
                if (mode, reducers) == ("off", 0):
                    self.expect_error(64, "no reducers, and SLUICE_COLOCATED is off; set SLUICE_REDUCERS, or SLUICE_COLOCATED=auto", *command, env=env)
                    continue
                result = self.run_json(*command, env=env)
                self.assertIs(result["weights_identical"], True)
                self.assertEqual(result["weights_hash"], expected)
                self.assertEqual(result["reducers"], reducers)

    def test_same_bits_through_the_nccl_plugin_in_every_run(self):
        single = self.run_json(*TRAIN, "3", "--single")
        for _ in range(2):
            result = self.run_json(*TRAIN, "3", "--reducers", "2", "--through-plugin")
            self.assertEqual(result["mode"], "plugin")
            self.assertEqual(result["weights_hash"], single["weights_hash"])

    def test_a_missing_plugin_is_exit_78(self):
        self.run_sluice("demo", "digits", "--workers", "2", "--through-plugin", "--plugin", "/lib/no-such-library.so", expect=78)

    def test_same_bits_with_more_ranks_than_one_group(self):
        arguments = ("demo", "digits", "--epochs", "1", "--workers", "9")
        single = self.run_json(*arguments, "--single")
        result = self.run_json(*arguments, "--reducers", "2", "--threads", "0")
        self.assertIs(result["weights_identical"], True)
        self.assertEqual(result["weights_hash"], single["weights_hash"])

    def test_defaults_learn_the_digits(self):
        result = self.run_json("demo", "digits", "--min-accuracy", "0.95")
        self.assertGreaterEqual(result["held_out_accuracy"], 0.95)
        self.assertIs(result["weights_identical"], True)
        self.assertEqual(result["held_out_images"], 360)
        self.assertEqual(result["allreduces"], result["epochs"] * 23)
        self.assertGreater(result["bytes_reduced"], 1e6)
        self.assertGreater(result["seconds"], 0)
        self.assertAlmostEqual(sum(share["bytes_received"] for share in result["reducer_shares"]), result["bytes_reduced"], delta=1e4)

    def test_ranks_of_a_host_send_their_sum_once_and_get_the_same_bits(self):
        single = self.run_json(*TRAIN, "4", "--single")
        for ranks_per_host in (1, 2):
            with self.subTest(ranks_per_host=ranks_per_host):
                result = self.run_json(*TRAIN, "4", "--reducers", 2, "--ranks-per-host", ranks_per_host, env={"SLUICE_COLOCATED": "off"})
                self.assertEqual((result["weights_hash"], result["ranks_per_host"]), (single["weights_hash"], ranks_per_host))
                received = [share["bytes_received"] for share in result["reducer_shares"]]
                self.assertGreater(min(received), 0)
                self.assertAlmostEqual(sum(received), result["bytes_reduced"] / ranks_per_host, delta=1e4)

    def test_a_standing_pool_reports_the_use_of_this_job_only(self):
        reducer, address = self.start_reducer()

        def cpu_seconds():
            fields = Path(f"/proc/{reducer.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        for epochs in (30, 1):
            before = cpu_seconds()
            result = self.run_json("demo", "digits", "--epochs", epochs, "--workers", "2", "--connect", address)
            (share,) = result["reducer_shares"]
            self.assertAlmostEqual(share["bytes_received"], result["bytes_reduced"], delta=1e4)
            self.assertLessEqual(share["cpu_seconds"], cpu_seconds() - before + 0.05)  # of which the first job's are a multiple

    def test_output_shows_progress_and_identical_weights(self):
        text = self.run_sluice("demo", "digits", "--epochs", "2", "--workers", "2").stdout
        self.assertRegex(text, r"epoch +1/2 \[#+\.+\] loss \d+\.\d+ +accuracy +\d+\.\d+ % +held-out +\d+\.\d+ %")
        self.assertRegex(text, r"held-out accuracy +\d+\.\d\d % \(\d+ of 360 images")
        self.assertRegex(text, r"weights +bit-identical on 2 workers, hash [0-9a-f]{16}")
        self.assertIn("reducer             127.0.0.1:", text)

    def test_too_low_an_accuracy_is_exit_2(self):
        self.run_sluice("demo", "digits", "--epochs", "1", "--workers", "2", "--min-accuracy", "1", expect=2)


if __name__ == "__main__":
    main()
