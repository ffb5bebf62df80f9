"""What the backend "sluice" refuses, with an error that says why, on all ranks and before it waits for others; and what it does at its limits."""

import json

from package_test_bed import main
from torch_test_bed import TorchTest

RANK = "torch_refusals_rank.py"


class TorchRefusals(TorchTest):
    def job(self, mode, ranks=2, **extra):
        return self.start_ranks(RANK, ranks, "none", mode, SLUICE_REDUCERS="none", SLUICE_HOSTS="auto", **extra)

    def test_tensors_of_several_devices_in_one_call(self):
        for printed in map(json.loads, self.outputs(self.job("devices"))):
            self.assertEqual(printed["sum"], 2)
            self.assertGreaterEqual(len(printed["errors"]), 7)
            for name, errors in printed["errors"].items():
                for error in errors:
                    self.assertRegex(error, r"^ValueError: backend sluice: the tensors of \w+ are on several devices: tensor 0 on (cpu|meta), tensor \d on (cpu|meta); ",
                                     name)

    def test_more_ranks_on_a_host_than_can_share_its_memory_reduce_without_it(self):
        printed, = self.outputs(self.job("many", 1))
        self.assertEqual(json.loads(printed), {"65.0": 65})


if __name__ == "__main__":
    main()
