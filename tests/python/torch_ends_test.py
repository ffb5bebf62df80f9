"""The ends of process groups of the backend "sluice" while Work is in progress: abort, destroy_process_group, Ctrl-C and fork."""

import json
import signal
import unittest

from package_test_bed import DEADLINE_S, main
from torch_test_bed import TorchTest

ABORTED = "rank 0 aborted the process group"
FORKED = "belongs to the parent process"


class TorchEnds(TorchTest):
    def setUp(self):
        super().setUp()
        _, self.reducer = self.start_reducer()

    def start_job(self, *arguments, **extra):
        # Only the error of an aborted session ends a wait in time: the limit of operations is 30 minutes, as torch sets it.
        return self.start_ranks("torch_ends_rank.py", 2, self.reducer, *arguments, SLUICE_REDUCERS=self.reducer, MASTER_ADDR="127.0.0.1", **extra)

    def test_work_in_progress_fails_at_once_and_nothing_is_left(self):
        printed = [json.loads(out) for out in self.outputs(self.start_job("ends", SLUICE_LINGER_TIMEOUT="200ms"))]
        waiting, future, in_gloo, gathered, later = printed[0]["aborted"]["errors"]
        for kind, text in (waiting, gathered, later):
            self.assertEqual(kind, "DistBackendError")
            self.assertIn(ABORTED, text)
        self.assertIn(ABORTED, future[1])
        self.assertEqual(in_gloo[0], "RuntimeError")
        self.assertLess(printed[0]["aborted"]["seconds"], 5)
        (kind, text), = printed[1]["aborted"]["errors"]
        self.assertEqual(kind, "DistBackendError")
        self.assertIn(ABORTED, text)
        self.assertEqual(printed[0]["destroyed"][0], "DistBackendError")
        for out in printed:
            self.assertLessEqual(out["after"]["threads"], out["before"]["threads"])
            # The other rank may still be closing connections of the last group. A leak would be several for each cycle.
            self.assertLess(out["after"]["descriptors"], out["before"]["descriptors"] + 10)
            self.assertEqual([kind for kind, _ in out["forked"]["errors"]], ["DistBackendError"] * 3)
            for _, text in out["forked"]["errors"]:
                self.assertIn(FORKED, text)
            self.assertEqual(out["forked"]["sum"], 2)

    def interrupt(self, *arguments):
        """Interrupts rank 0 while it waits. Returns what the ranks print after that, and the errors of rank 0."""
        ranks = self.start_job("interrupted", *arguments)
        for rank in ranks:  # both have the first result, which an abort may overtake
            self.assertEqual(rank.stdout.readline(), "waiting\n")
        ranks[0].send_signal(signal.SIGINT)
        rest, errors = ranks[0].communicate(timeout=DEADLINE_S)
        self.assertEqual(ranks[0].returncode, -signal.SIGINT, errors)
        self.assertIn("KeyboardInterrupt", errors)
        return rest, *json.loads(self.outputs(ranks[1:])[0])

    def test_an_interrupted_rank_ends_the_session_of_the_others(self):
        rest, kind, text = self.interrupt()
        self.assertEqual((rest, kind), ("", "DistBackendError"))
        self.assertIn("rank 0 ended with KeyboardInterrupt", text)

    def test_an_interrupted_rank_does_not_wait_to_destroy_its_group(self):
        rest, kind, text = self.interrupt("finally")
        self.assertLess(json.loads(rest), 3, "shorter than the linger time")
        self.assertEqual(kind, "DistBackendError")
        self.assertIn(ABORTED, text)


if __name__ == "__main__":
    main()
