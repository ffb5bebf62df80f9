"""The chaos of bench/chaos in small: harm of every kind, and a job whose sums stay right; and that a job which can't survive is seen to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import sluice_process
from sluice_process import SluiceTest, environment, main

CHAOS = Path(__file__).resolve().parents[2] / "bench" / "chaos" / "chaos.py"
# Under sanitizers, which take their time, and keep memory that was freed: what grows there says nothing.
BRIEF = os.environ.get("SLUICE_TEST_BRIEF") == "1"
EVENTS, EPOCHS = (2, 20) if BRIEF else (4, 200)


class Chaos(SluiceTest):
    def chaos(self, *arguments, env=None):
        result = self.folder / "chaos.json"
        done = subprocess.run([sys.executable, "-B", CHAOS, "--sluice", sluice_process.PROGRAM, "--json", result, "--max-size", "256K",
                               *(["--max-growth-mib", "4096"] if BRIEF else []), *arguments],
                              capture_output=True, text=True, timeout=240, env=environment(env), check=False)
        return done, json.loads(result.read_text())

    def test_a_job_outlives_harm_of_every_kind(self):
        for of in ("kill,kill-two", "stop,drain", "cut,corrupt,delay", "add"):
            with self.subTest(of=of):
                done, result = self.chaos("--seed", "7", "--events", str(EVENTS), "--of", of, "--peer-timeout-ms", "3000")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(sum(result["events"].values()), EVENTS)
                self.assertEqual(len(result["longest_rounds_ms"]), EVENTS)
                self.assertGreater(min(result["longest_rounds_ms"]), 0)
                self.assertEqual(result["soak"]["nwrong"], 0)
                if "kill" in of:
                    self.assertGreaterEqual(result["killed"], EVENTS)
                    self.assertTrue(result["stalls_ms"], "nobody noticed")

    def test_every_bit_that_is_turned_over_is_found_and_sent_again(self):
        done, result = self.chaos("--seed", "11", "--events", str(2 * EVENTS), "--of", "flip")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual((result["flipped"]["flips"], result["flipped"]["found"]), (2 * EVENTS, 2 * EVENTS))
        self.assertGreaterEqual(result["flipped"]["resumed"], 2 * EVENTS)
        self.assertEqual(result["soak"]["nwrong"], 0)

    def rolling(self, *arguments):
        result = self.folder / "rolling.json"
        done = subprocess.run([sys.executable, "-B", CHAOS.parent / "rolling.py", "--sluice", sluice_process.PROGRAM, "--json", result, *map(str, arguments)],
                              capture_output=True, text=True, timeout=240, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(result.read_text())

    def test_a_whole_pool_is_restarted_under_a_job(self):
        result = self.rolling("--duration-s", "1", "--pause-s", "0.2")
        self.assertGreaterEqual(result["restarts"], 3)
        self.assertEqual(result["nwrong"], 0)

    def test_a_whole_pool_is_restarted_under_training_and_the_weights_have_the_same_bits(self):
        result = self.rolling("--job", "digits", "--workers", "2", "--epochs", EPOCHS)
        self.assertGreaterEqual(result["restarts"], 3)

    def test_a_job_outlives_harm_over_tls(self):
        if not (Path(sluice_process.PROGRAM).parents[1] / "lib" / "libsluice_tls.so").exists():
            self.skipTest("needs tls-library: libsluice_tls.so was not built")
        key = self.folder / "pool.key"
        self.run_sluice("keygen", "--out", key)
        for of in ("kill", "cut,corrupt"):
            with self.subTest(of=of):
                done, result = self.chaos("--seed", "7", "--events", "4", "--of", of, "--peer-timeout-ms", "3000",
                                          env={"SLUICE_TLS": "require", "SLUICE_KEY_FILE": str(key)})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(result["soak"]["nwrong"], 0)

    def test_a_job_that_keeps_no_results_ends_with_the_first_loss(self):
        done, result = self.chaos("--seed", "7", "--events", "1", "--of", "kill", "--soak=--no-keep")
        self.assertEqual(done.returncode, 1)
        self.assertIn("lost", result["error"])


if __name__ == "__main__":
    main()
