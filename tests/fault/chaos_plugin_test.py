"""A short run of bench/chaos over the NCCL plugin: faults of every kind, correct sums for NCCL, and the same weights as without faults."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import sluice_process
from sluice_process import SluiceTest, environment

CHAOS = Path(__file__).resolve().parents[2] / "bench" / "chaos" / "chaos.py"
PLAYER = None
# Sanitizers are slow and keep freed memory, so memory growth is not checked with them.
BRIEF = os.environ.get("SLUICE_TEST_BRIEF") == "1"
EVENTS, EPOCHS = (2, 40) if BRIEF else (4, 100)
# A player that fails exits without freeing its memory.
NO_LEAKS = {"ASAN_OPTIONS": "detect_leaks=0"}


class PluginChaosTest(SluiceTest):
    def run_chaos(self, *arguments, env=None):
        result = self.folder / "chaos.json"
        done = subprocess.run([sys.executable, "-B", CHAOS, "--sluice", sluice_process.PROGRAM, "--player", PLAYER, "--json", result, "--seed", "7",
                               "--peer-timeout-ms", "3000", *(["--max-growth-mib", "4096"] if BRIEF else []), *arguments], capture_output=True, text=True, timeout=240, env=environment(env), check=False)
        return done, json.loads(result.read_text())

    def test_nccl_gets_correct_sums_under_faults_of_every_kind(self):
        for kinds in ("kill,kill-two", "stop,drain", "cut,corrupt,delay"):
            with self.subTest(kinds=kinds):
                done, result = self.run_chaos("--job", "player", "--events", str(EVENTS), "--of", kinds)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual((sum(result["events"].values()), result["jobs"]), (EVENTS, 1))
                if "kill" in kinds:
                    self.assertTrue(result["stalls_ms"], "no rank noticed a loss")

    def test_training_under_faults_ends_with_the_same_weights(self):
        done, result = self.run_chaos("--job", "digits-plugin", "--epochs", str(EPOCHS), "--events", str(EVENTS), "--of", "kill,kill-two")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreaterEqual(result["killed"], EVENTS)
        self.assertGreaterEqual(result["jobs"], 2)
        self.assertTrue(result["stalls_ms"], "no rank noticed a loss")

    def test_without_fault_tolerance_the_first_loss_ends_the_offload(self):
        done, result = self.run_chaos("--job", "player", "--events", "1", "--of", "kill", env={"SLUICE_SURVIVE": "0", **NO_LEAKS})
        self.assertEqual(done.returncode, 1)
        self.assertIn("offload ended: reducer_lost", result["error"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--player", required=True)
    arguments, rest = parser.parse_known_args()
    PLAYER = arguments.player
    sys.argv[1:] = rest
    sluice_process.main()
