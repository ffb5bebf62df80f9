"""The hook in DistributedDataParallel, beside gloo's own allreduce."""

import json
import signal
import unittest

from package_bed import PackageTest, main


class Ddp(PackageTest):
    def setUp(self):
        super().setUp()
        self.reducer, self.address = self.start_reducer()

    def losses(self, ranks):
        """Of each step, with the hook and with gloo; all ranks have the same. On the way, that average=False gives sums."""
        of_ranks = self.run_ranks("ddp_rank.py", ranks, self.address, "losses")
        self.assertEqual(len(set(of_ranks)), 1)
        losses = json.loads(of_ranks[0])
        self.assertEqual((len(losses["hook"]), len(losses["gloo"])), (50, 50))
        self.assertIs(losses["sums"], True)
        self.assertLess(sum(losses["hook"][-10:]) / 10, 0.8 * losses["hook"][0])
        return losses["hook"], losses["gloo"]

    def test_two_processes_have_the_losses_of_gloo_to_the_last_bit(self):
        # Two addends have one order, and half of a sum is the sum of halves.
        ours, theirs = self.losses(2)
        self.assertEqual(ours, theirs)

    def test_four_processes_have_those_of_gloo_but_for_the_order_of_sums(self):
        # A ring adds the ranks in another order for each part of the gradient, so that sums differ by some roundings of 2^-24, and losses by little more
        # over these few steps: 1.4e-7 was seen. Errors as large as those of bf16 are seen too: they come to 8e-5.
        ours, theirs = self.losses(4)
        self.assertEqual(ours[0], theirs[0])  # before any gradient
        difference = [abs(a - b) / b for a, b in zip(ours, theirs)]
        print(f"losses {ours[0]:.4f} to {ours[-1]:.4f}, differ by at most {max(difference):.1e}")
        self.assertLess(max(difference), 5e-6)

    def test_a_lost_reducer_makes_backward_raise(self):
        ranks = self.start_ranks("ddp_rank.py", 2, self.address, "lost")
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "begun\n")
        self.reducer.signal(signal.SIGKILL)
        self.assertEqual(self.outputs(ranks), ["Lost is told: True\nagain 7\n"] * 2)

    def test_a_session_may_be_left_to_the_hooks_thread(self):
        # Which the interpreter's end would stop in the midst of torch's functions, and that is terminate().
        self.assertEqual(self.run_ranks("ddp_rank.py", 2, self.address, "last"), ["closed by the hook's thread\n"] * 2)


if __name__ == "__main__":
    main()
