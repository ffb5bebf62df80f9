"""The chaos of bench/chaos in small over the NCCL plugin: harm of every kind, right sums for NCCL, and the same weights as without harm."""

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
# Under sanitizers, which take their time, and keep memory that was freed: what grows there says nothing.
BRIEF = os.environ.get("SLUICE_TEST_BRIEF") == "1"
EVENTS, EPOCHS = (2, 40) if BRIEF else (4, 100)
# A player that fails ends as it is, with all it had.
NO_LEAKS = {"ASAN_OPTIONS": "detect_leaks=0"}


class Chaos(SluiceTest):
    def chaos(self, *arguments, env=None):
        result = self.folder / "chaos.json"
        done = subprocess.run([sys.executable, "-B", CHAOS, "--sluice", sluice_process.PROGRAM, "--player", PLAYER, "--json", result, "--seed", "7",
                               "--peer-timeout-ms", "3000", *(["--max-growth-mib", "4096"] if BRIEF else []), *arguments], capture_output=True, text=True, timeout=240, env=environment(env), check=False)
        return done, json.loads(result.read_text())

    def test_what_nccl_is_given_outlives_harm_of_every_kind(self):
        for of in ("kill,kill-two", "stop,drain", "cut,corrupt,delay"):
            with self.subTest(of=of):
                done, result = self.chaos("--job", "player", "--events", str(EVENTS), "--of", of)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual((sum(result["events"].values()), result["jobs"]), (EVENTS, 1))
                if "kill" in of:
                    self.assertTrue(result["stalls_ms"], "nobody noticed")

    def test_a_training_comes_to_the_weights_of_one_that_was_left_alone(self):
        done, result = self.chaos("--job", "digits-plugin", "--epochs", str(EPOCHS), "--events", str(EVENTS), "--of", "kill,kill-two")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreaterEqual(result["killed"], EVENTS)
        self.assertGreaterEqual(result["jobs"], 2)
        self.assertTrue(result["stalls_ms"], "nobody noticed")

    def test_what_is_not_to_survive_ends_with_the_first_loss(self):
        done, result = self.chaos("--job", "player", "--events", "1", "--of", "kill", env={"SLUICE_SURVIVE": "0", **NO_LEAKS})
        self.assertEqual(done.returncode, 1)
        self.assertIn("offload ended: reducer_lost", result["error"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--player", required=True)
    arguments, rest = parser.parse_known_args()
    PLAYER = arguments.player
    sys.argv[1:] = rest
    sluice_process.main()
