"""Tests that shares follow a link that becomes slow while a job runs, with bench/test_network/reweight.py, and the script's evaluation."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

import sluice_process
from sluice_process import DEADLINE_S, SluiceTest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/test_network"))

import reweight  # noqa: E402
from capabilities import enter_namespaces, needs  # noqa: E402: sluice_process says where it is

UNIT = 8 * (1 << 20) / (reweight.GOODPUT * 100e6)  # S/goodput


class Evaluation(unittest.TestCase):
    def evaluate(self, *phases):
        """Phases of (seconds over UNIT, operations). The link changes before the second one and before the last one."""
        done, changed, now = [], [], 1000.0
        for number, (seconds, count) in enumerate(phases):
            if number in (1, len(phases) - 2):
                changed.append(now)
            for _ in range(count):
                done.append((now, seconds * UNIT))
                now += seconds * UNIT
        return reweight.evaluate(done, changed, reweight.parse(["--sluice", "sluice"]))

    def test_delays(self):
        """4 workers: 1.5 S/goodput with equal links, 2.0 with one half as fast, 3.0 and 1.67 with the shares of the other links."""
        result = self.evaluate((1.6, 20), (3.2, 12), (2.1, 30), (1.79, 12), (1.6, 20))
        self.assertAlmostEqual(result["optimum_over_bound"], 1.6 / 1.5)
        self.assertAlmostEqual(result["delay_slow"], 12 * 3.2 * UNIT, delta=5 * 3.2 * UNIT)
        self.assertAlmostEqual(result["delay_restored"], 12 * 1.79 * UNIT, delta=5 * 1.79 * UNIT)
        self.assertAlmostEqual(result["slow_over_optimum"], 2.1 / (1.6 * 4 / 3), delta=0.01)

    def test_shares_that_do_not_follow(self):
        result = self.evaluate((1.6, 20), (3.2, 20), (1.79, 20), (1.79, 20))
        self.assertIsNone(result["delay_slow"])
        self.assertIsNone(result["delay_restored"])


class Reweight(SluiceTest):
    @needs("network-namespaces")
    def test_shares_follow_a_slow_link(self):
        out = self.folder / "out.json"
        command = [sys.executable, "-B", ROOT / "bench/test_network/reweight.py", "--sluice", sluice_process.PROGRAM, "--size", "512K", "--before", 4, "--during", 8, "--after", 0,
                   "--limit", 8, "--json", out]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              env=sluice_process.environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = json.loads(out.read_text())
        self.assertEqual(result["wrong"], 0)
        # A machine that stands still while the new rate is on trial (2 s) makes the meter take it back once, and lower it again 4 s later.
        lowered, taken_back = result["changes"][::2], result["changes"][1::2]
        self.assertIn((len(lowered), len(taken_back)), {(1, 0), (2, 1)}, result["changes"])
        for change in lowered:
            self.assertRegex(change, r"rank 3's link: [4-7]\d Mbit/s instead of 100 Mbit/s; its share goes from 25\.0 % to [01]\.\d %")
        for change in taken_back:
            self.assertRegex(change, r"rank 3's link: 100 Mbit/s instead of [4-7]\d Mbit/s; its share goes from [01]\.\d % to 25\.0 %")


if __name__ == "__main__":
    enter_namespaces()
    sluice_process.main()
