"""The backend "sluice" where hosts reduce first, in a group of torch: gloo here, and NCCL on GPUs (tests/gpu/run.sh). Host streams stand for those of GPUs."""

import json

from package_test_bed import main
from torch_test_bed import TorchTest

RANK = "torch_rails_rank.py"
RANKS = 4


class TorchRails(TorchTest):
    def start_hosts(self, what, hosts, reducers="none", **extra):
        return self.start_ranks(RANK, len(hosts), "none", what, hosts, SLUICE_HOSTS="auto", SLUICE_REDUCERS=reducers, **extra)

    def found(self, *arguments, **extra):
        return [json.loads(printed) for printed in self.outputs(self.start_hosts(*arguments, **extra))]

    def check_collectives(self, hosts, reducers="none", **extra):
        ranks = self.found("collectives", hosts, reducers, **extra)
        for rank in ranks:
            print(rank)
            gloo, ours = rank["losses"]
            self.assertAlmostEqual(ours, gloo, delta=1e-6 * gloo)
        return ranks

    def test_collectives_of_two_hosts_through_reducers(self):
        for rank in self.check_collectives("aabb", self.start_reducer()[1]):
            self.assertEqual(rank["ranks"], 2)
            self.assertEqual(rank["sent"], (1 << 20) * 4 // 2)  # each rank's share of 4 MiB
            self.assertLess(rank["through host memory"], 1 << 20)

    def test_collectives_of_hosts_whose_ranks_alternate_without_reducers(self):
        self.check_collectives("abab", LEAST_BYTES="1")

    def test_collectives_of_three_hosts(self):
        self.check_collectives("aabbcc")

    def test_one_host_needs_no_rail(self):
        for rank in self.check_collectives("aaa"):
            self.assertIsNone(rank["ranks"])

    def test_shares_travel_in_fewer_bits_with_error_feedback(self):
        for rank in self.found("wires", "aabb", self.start_reducer()[1]):
            errors = {name: error for name, (error, _, _) in rank.items()}
            sent = {name: count for name, (_, count, _) in rank.items()}
            memory = {name: count for name, (_, _, count) in rank.items()}
            share = 20_002  # of 40,003
            self.assertLess(errors["f32"], 1e-6)
            self.assertEqual((sent["f32"], sent["few"]), (4 * share, 4 * share))
            self.assertEqual(sent["bf16"], 2 * share)
            self.assertAlmostEqual(sent["int8"] / (4 * share), 264 / 1024, delta=0.01)
            self.assertTrue(0 < errors["bf16"] < 2e-2)
            self.assertLess(errors["int8"], errors["no feedback"] / 1.5)
            self.assertEqual((memory["int8"], memory["bf16"], memory["no feedback"]), (4 * share, 0, 0))
            self.assertEqual(memory["scattered"], 4 * 20_000)
            self.assertLess(errors["scattered"], 5e-2)

    def test_all_ranks_decide_alike(self):
        first = "backend sluice: the ranks of a host do not reduce among themselves first: "
        warned = {"uneven": first + "the hosts have 3, 1 ranks of the group", "without": first + "torch has no NCCL on rank 2",
                  "refused": first + "rank 0: RuntimeError: Duplicate GPU detected"}
        for rank in self.found("decisions", "aabb"):
            self.assertIn("variable SLUICE_REDUCE_IN_HOST: 'yes': expected 0 or 1", rank.pop("invalid"))
            self.assertIn("ProcessGroupNCCL", rank.pop("nccl"))
            told, quiet = rank.pop("differ")
            self.assertEqual((told, quiet), ("backend sluice: ranks differ in reduce_in_host: True on rank 0, False on rank 2", []))
            for case, (is_first, warnings) in rank.items():
                self.assertEqual(is_first, case in ("default", "chosen", "findings, chosen"), case)
                self.assertEqual(warnings, [warned[case]] if case in warned else [], case)

    def test_groups_leave_nothing(self):
        for hosts in "aabb", "aaa":
            for first, last in self.found("cycles", hosts):
                print(first, last)
                self.assertLessEqual(last["threads"], first["threads"])
                self.assertLess(last["descriptors"], first["descriptors"] + 4)  # other ranks may still close connections

    def test_scripts_may_end_without_destroying_the_group(self):
        ranks = self.start_hosts("exits", "aabb")
        for index in 0, 1, 3:
            self.assertEqual(json.loads(ranks[index].stdout.readline()), [[RANKS], "None"])
        ranks[2].stdin.write("\n")
        ranks[2].stdin.flush()
        self.assertEqual(json.loads(self.outputs(ranks)[2]), [[RANKS], "None"])

    def kill_one(self, what, hosts, reducers="none"):
        """Kills rank 1. Returns what the others are told."""
        ranks = self.start_hosts(what, hosts, reducers)
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "begun\n")
        ranks[1].kill()
        return self.told([ranks[0], *ranks[2:]])

    def told(self, ranks):
        printed = [rank.stdout.readline() for rank in ranks]
        self.outputs(ranks)
        return list(map(json.loads, printed))

    def check_left(self, hosts, count=100_000, later=(), **extra):
        """Rank 1 leaves. later: ranks that call when the others have been told."""
        ranks = self.start_hosts("leaves", hosts, COUNT=str(count), LATER="".join(map(str, later)), **extra)
        for number in sorted({0, *range(2, len(hosts))}, key=lambda number: number in later):
            if number in later:
                ranks[number].stdin.write("\n")
                ranks[number].stdin.flush()
            error, seconds = json.loads(ranks[number].stdout.readline())
            print(f"{hosts}, {later} later, rank {number}: after {seconds:.2f} s: {error}")
            self.assertRegex(error, "^DistBackendError: .*rank 1 left the session")
            self.assertLess(seconds, 1.5)
        self.outputs(ranks)

    def test_a_rank_that_leaves_is_named_on_every_host(self):
        self.check_left("aabb")
        self.check_left("aabb", count=10)

    def test_a_rank_that_leaves_its_rail_is_named_by_its_number_in_the_group(self):
        self.check_left("aabb", later=(0,))
        self.check_left("abab", reducers=self.start_reducer()[1])

    def test_a_rank_that_leaves_does_not_wait_for_its_rail(self):
        self.check_left("aabb", later=(2, 3))

    def test_a_rank_that_leaves_one_host_is_named(self):
        self.check_left("aaa")

    def check_lost(self, hosts, reducers="none"):
        for next_call, error, (waited, has_succeeded) in self.kill_one("lost", hosts, reducers):
            print(next_call, "|", waited)
            self.assertRegex(next_call, "^DistBackendError: .*rank 1")
            self.assertIn("rank 1", error)
            self.assertFalse(has_succeeded)
            self.assertRegex(waited, "^DistBackendError: .*rank 1")

    def test_a_rank_that_dies_within_a_collective_is_named(self):
        for hosts, reducers in ("aabb", "none"), ("abab", self.start_reducer()[1]), ("aaa", "none"):
            for error, seconds in self.kill_one("in_motion", hosts, reducers):
                print(f"{hosts}: after {seconds:.2f} s: {error}")
                self.assertRegex(error, "^DistBackendError: .*rank 1 lost")

    def test_a_lost_rank_is_named_on_every_host(self):
        self.check_lost("aabb")

    def test_a_lost_rank_is_named_on_every_host_with_reducers(self):
        self.check_lost("abab", self.start_reducer()[1])

    def test_a_lost_rank_of_one_host_is_named(self):
        self.check_lost("aaa")

    def test_a_rank_that_cannot_begin_a_collective_tells_why(self):
        for number, (error, later) in enumerate(self.told(self.start_hosts("unable", "aabb"))):
            print(number, error, "|", later)
            self.assertIn("too many operations" if number == 1 else "rank 1 could not begin a collective: too many operations", error)
            self.assertIn("rank 1 could not begin a collective: too many operations", later)

    def check_overdue(self, hosts, text):
        ranks = self.start_hosts("overdue", hosts)
        for seconds, error in self.told([ranks[0], *ranks[2:]]):
            print(f"{seconds:.1f} s: {error}")
            self.assertLess(seconds, 20)
            self.assertRegex(error, f"^DistBackendError: .*{text}")

    def test_a_rank_that_does_not_call_ends_all_hosts_by_the_timeout(self):
        step = "a step within the host did not end within 6 s: one of the ranks 0, 1 has not called"
        self.check_overdue("aabb", f"(rail of ranks (0, 2|1, 3), in this order: .*timed out|{step})")  # which of them depends on a moment

    def test_a_rank_that_does_not_call_ends_the_step_of_its_host(self):
        self.check_overdue("aaa", "a step within the host did not end within 6 s: one of the ranks 0, 1, 2 has not called")


if __name__ == "__main__":
    main()
