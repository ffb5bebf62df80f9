"""A short run of bench/chaos over the NCCL plugin: faults of every kind, correct sums for NCCL, and the same weights as without faults."""

import argparse
import sys

import chaos_test
import sluice_process
from chaos_test import BRIEF
from sluice_process import SluiceTest

PLAYER = None
EVENTS, EPOCHS = (2, 40) if BRIEF else (4, 100)
# A player that fails exits without freeing its memory.
NO_LEAKS = {"ASAN_OPTIONS": "detect_leaks=0"}


class PluginChaosTest(SluiceTest):
    def run_chaos(self, *arguments, **how):
        return chaos_test.run_chaos(self.folder, "--player", PLAYER, "--seed", "7", "--peer-timeout-ms", "3000", *arguments, **how)

    def test_nccl_gets_correct_sums_under_faults_of_every_kind(self):
        for kinds in ("kill,kill-two", "stop,drain", "cut,corrupt,delay"):
            with self.subTest(kinds=kinds):
                result = self.run_chaos("--job", "player", "--events", str(EVENTS), "--of", kinds)
                self.assertEqual((sum(result["events"].values()), result["jobs"]), (EVENTS, 1))
                if "kill" in kinds:
                    self.assertTrue(result["stalls_ms"], "no rank noticed a loss")

    def test_training_under_faults_ends_with_the_same_weights(self):
        result = self.run_chaos("--job", "digits-plugin", "--epochs", str(EPOCHS), "--events", str(EVENTS), "--of", "kill,kill-two")
        self.assertGreaterEqual(result["killed"], EVENTS)
        self.assertGreaterEqual(result["jobs"], 2)
        self.assertTrue(result["stalls_ms"], "no rank noticed a loss")

    def test_without_fault_tolerance_the_first_loss_ends_the_offload(self):
        result = self.run_chaos("--job", "player", "--events", "1", "--of", "kill", expect=1, env={"SLUICE_SURVIVE": "0", **NO_LEAKS})
        self.assertIn("offload ended: reducer_lost", result["error"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--player", required=True)
    arguments, rest = parser.parse_known_args()
    PLAYER = arguments.player
    sys.argv[1:] = rest
    sluice_process.main()
