"""Tests `sluice bench soak`: duration, progress lines, detection of wrong data, and the summary after every kind of stop."""

import json
import os
import signal

from relay import Relay
from sluice_process import SluiceTest, children_of, main, rows_of, until

QUICK = ("bench", "soak", "--max-size", "64K", "--interval", "100ms", "--workers", "2")


class Soak(SluiceTest):
    def test_runs_for_its_duration_and_checks_every_result(self):
        csv = self.folder / "result.csv"
        result = self.run_json(*QUICK, "--duration", "1s", "--seed", "42", "--csv", csv)
        self.assertEqual(result["schema"], "sluice.bench.soak/1")
        self.check_machine(result)
        self.assertEqual((result["config"]["seed"], result["config"]["max_bytes"], result["interrupted"]), (42, 65536, False))
        self.assertEqual(len(result["config"]["hosts"]), 2)
        total = result["total"]
        self.assertGreaterEqual(total["seconds"], 1)
        self.assertGreater(total["operations"], 10)
        self.assertGreater(total["bytes"], 0)
        self.assertEqual((total["nwrong"], result["nwrong"]), (0, 0))
        self.assertEqual(total["time_count"], total["operations"])
        self.assertLessEqual(total["p50_ms"], total["p99_ms"])
        self.assertLessEqual(total["p999_ms"], total["longest_round_ms"])
        self.assertLessEqual(max(row["longest_round_ms"] for row in result["results"]), total["longest_round_ms"])
        self.assertGreater(result["rss_after_first_tenth_bytes"], 1 << 20)
        self.assertGreater(total["rss_bytes"], 1 << 20)
        self.assertGreaterEqual(len(result["results"]), 1)
        for before, after in zip(result["results"], result["results"][1:]):
            self.assertLess(before["operations"], after["operations"])
            self.assertLess(before["seconds"], after["seconds"])
        lines = csv.read_text().splitlines()
        self.assertEqual(len(lines), 1 + len(result["results"]))
        self.assertEqual({line.count(",") for line in lines}, {6})

    def test_random_seed_is_printed(self):
        done = self.run_sluice(*QUICK, "--duration", "100ms")
        self.assertRegex(done.stdout, r"# sluice bench soak: seed [1-9]\d*, 100ms, 2 workers")
        self.assertRegex(done.stdout, r"# Ended after +: \d+\.\d s, seed [1-9]\d*\n")

    def test_signal_to_the_launcher_ends_the_run_with_the_summary(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                out = self.folder / f"{number}.json"
                run = self.start(*QUICK, "--duration", "0", "--json", out)
                self.wait_for_rows(run)
                run.signal(number)
                self.assertEqual(run.wait(), 0, run.stderr())
                self.assertIn("# Interrupted after", run.stdout())
                self.assertIn("# Out of bounds values : 0 OK", run.stdout())
                result = json.loads(out.read_text())
                self.assertIs(result["interrupted"], True)
                self.assertEqual(run.stderr().count("level=error"), 0, run.stderr())

    def test_signal_to_all_processes_ends_the_run_with_the_summary(self):
        run = self.start(*QUICK, "--duration", "0")
        self.wait_for_rows(run)
        all_pids = [run.pid, *children_of(run.pid)]
        self.assertEqual(len(all_pids), 1 + 2 + 2)
        for pid in all_pids:
            os.kill(pid, signal.SIGINT)
        self.assertEqual(run.wait(), 0, run.stderr())
        self.assertIn("# Interrupted after", run.stdout())

    def test_second_signal_ends_a_blocked_rank(self):
        _, reducer = self.start_reducer()
        ranks = self.start_ranks(reducer, *QUICK, "--duration", "0")
        self.wait_for_rows(ranks[0])
        ranks[1].signal(signal.SIGSTOP)
        ranks[0].signal(signal.SIGINT)
        until("the first signal is handled", lambda: not self.catches(ranks[0].pid, signal.SIGINT))
        self.assertFalse(ranks[0].ended())
        ranks[0].signal(signal.SIGINT)
        self.assertEqual(ranks[0].wait(), -signal.SIGINT)

    def catches(self, pid, number):
        with open(f"/proc/{pid}/status") as status:
            caught = next(line for line in status if line.startswith("SigCgt"))
        return int(caught.split()[1], 16) >> (number - 1) & 1

    def test_signal_to_one_rank_ends_all_ranks(self):
        _, reducer = self.start_reducer()
        ranks = self.start_ranks(reducer, *QUICK, "--duration", "0")
        self.wait_for_rows(ranks[0])
        ranks[1].signal(signal.SIGINT)
        self.expect_ends(ranks)
        self.assertIn("# Interrupted after", ranks[0].stdout())
        self.assertEqual(ranks[1].stdout(), "")

    def test_wrong_data_is_reported_and_exit_2(self):
        _, reducer = self.start_reducer("--no-crc")
        relay = Relay(reducer, corrupt_from=1024)
        self.addCleanup(relay.close)
        run = self.start(*QUICK, "--duration", "0", "--no-crc", "--transport", "tcp", "--connect", relay.address)
        until("a progress line with wrong data", lambda: any(row[5] != "0" for row in rows_of(run.stdout())) or run.ended())
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), 2, run.stderr())
        self.assertRegex(run.stdout(), r"# Out of bounds values : \d+ FAILED")
        self.assertRegex(run.stderr(), r"rank \d: \d+ of \d+ elements are wrong: \w+ of \w+, (in|out of) place, after \d+ operations")

    def test_invalid_options_are_refused(self):
        self.expect_usage_errors(("bench", "soak"), (("--max-size", "4"), ("--open", "0"), ("--open", "2000"), ("--interval", "0"), ("--duration", "10"),
                                                     ("--seed", "x")))


if __name__ == "__main__":
    main()
