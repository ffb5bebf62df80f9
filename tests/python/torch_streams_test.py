"""The backend "sluice" and devices: which backend serves which device, and collectives in stream order, here on host streams. tests/gpu/run.sh has a GPU."""

import json

from package_test_bed import main
from torch_test_bed import TorchTest

RANK = "torch_streams_rank.py"


class TorchStreams(TorchTest):
    def test_host_streams_have_the_order_of_those_of_a_gpu(self):
        self.outputs(self.start_ranks(RANK, 1, "none", "device", SLUICE_HOSTS="auto"))

    def test_collectives_on_streams_return_what_gloo_returns(self):
        for in_host in "01":
            for printed in self.outputs(self.start_ranks(RANK, 2, "none", "collectives", SLUICE_HOSTS="auto", SLUICE_REDUCERS=self.start_reducer()[1],
                                                         SLUICE_REDUCE_IN_HOST=in_host)):
                gloo, streamed = json.loads(printed)
                if in_host == "0":
                    self.assertGreater(streamed.pop("operations"), 50)
                self.assertEqual(streamed, gloo)  # with two ranks the order of a sum does not matter

    def test_collectives_by_rails_return_what_gloo_returns(self):
        for printed in self.outputs(self.start_ranks(RANK, 4, "none", "collectives", SLUICE_HOSTS="auto", SLUICE_REDUCERS=self.start_reducer()[1], HOSTS="abba")):
            gloo, streamed = json.loads(printed)
            self.assertGreater(streamed.pop("operations"), 50)
            for name, loss in gloo.pop("losses").items():
                self.assertAlmostEqual(streamed["losses"][name], loss, delta=1e-6 * loss)
            self.assertEqual(streamed["returned"], gloo["returned"])  # whole numbers

    def test_a_lost_rank_is_told_by_the_work_and_the_next_call(self):
        ranks = self.start_ranks(RANK, 2, "none", "lost", SLUICE_HOSTS="auto", SLUICE_REDUCERS="none", SLUICE_REDUCE_IN_HOST="0")
        self.assertEqual(ranks[0].stdout.readline(), "begun\n")
        ranks[1].stdin.write("\n")
        ranks[1].stdin.flush()
        survivor, _ = self.outputs(ranks)
        waited, succeeded, *later, error = json.loads(survivor)
        self.assertFalse(succeeded)
        for text in (waited, *later):
            self.assertRegex(text, r"^DistBackendError: .*rank 1")
        self.assertIn("rank 1", error)

    def check_steps(self, ranks, **extra):
        """Rank 1 fails. In which case others have the sum depends on a moment, but for what precedes the operation."""
        printed = self.outputs(self.start_ranks(RANK, ranks, "none", "steps", SLUICE_HOSTS="auto", SLUICE_REDUCERS="none", **extra))
        for rank, found in enumerate(map(json.loads, printed)):
            for case, *of_work, next_call in found:
                print(extra, case, rank, next_call)
                for text in of_work if rank == 1 or case == "before" else ():
                    self.assertRegex(text, "DistBackendError: .*division", (case, rank))
                self.assertRegex(next_call, "^DistBackendError: .*rank 1 could not .*division", (case, rank))

    def test_a_part_of_a_collective_that_fails_is_told_by_the_work_and_the_next_call(self):
        self.check_steps(2, SLUICE_REDUCE_IN_HOST="0")
        for hosts in "aa", "aabb":
            self.check_steps(len(hosts), HOSTS=hosts)

    def test_each_device_of_a_map_is_served_by_the_backend_that_the_user_names(self):
        self.assertEqual(self.outputs(self.start_ranks("torch_maps_rank.py", 2, "none", SLUICE_REDUCERS="none")), ['"done"\n'] * 2)


if __name__ == "__main__":
    main()
