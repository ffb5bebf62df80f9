"""The chaos of bench/chaos in small: harm of every kind, and a job whose sums stay right; and that a job which can't survive is seen to end."""

import json
import subprocess
import sys
from pathlib import Path

import sluice_process
from sluice_process import SluiceTest, environment, main

CHAOS = Path(__file__).resolve().parents[2] / "bench" / "chaos" / "chaos.py"


class Chaos(SluiceTest):
    def chaos(self, *arguments):
        result = self.folder / "chaos.json"
        done = subprocess.run([sys.executable, "-B", CHAOS, "--sluice", sluice_process.PROGRAM, "--json", result, "--max-size", "256K", *arguments],
                              capture_output=True, text=True, timeout=240, env=environment(), check=False)
        return done, json.loads(result.read_text())

    def test_a_job_outlives_harm_of_every_kind(self):
        for of in ("kill,kill-two", "stop", "drain", "cut,corrupt,delay"):
            with self.subTest(of=of):
                done, result = self.chaos("--seed", "7", "--events", "6", "--of", of, "--peer-timeout-ms", "3000")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(sum(result["events"].values()), 6)
                self.assertEqual(result["soak"]["nwrong"], 0)
                if "kill" in of:
                    self.assertGreaterEqual(result["killed"], 6)
                    self.assertTrue(result["stalls_ms"], "nobody noticed")

    def test_a_job_that_keeps_no_results_ends_with_the_first_loss(self):
        done, result = self.chaos("--seed", "7", "--events", "1", "--of", "kill", "--soak=--no-keep")
        self.assertEqual(done.returncode, 1)
        self.assertIn("lost", result["error"])


if __name__ == "__main__":
    main()
