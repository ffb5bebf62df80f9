"""Collectives of the backend "sluice" in stream order, on host memory and host streams. tests/gpu/run.sh does the same on a GPU."""

from package_test_bed import main
from torch_test_bed import TorchTest

RANK = "torch_streams_rank.py"


class TorchStreams(TorchTest):
    def test_host_streams_have_the_order_of_those_of_a_gpu(self):
        self.outputs(self.start_ranks(RANK, 1, "none", "device"))


if __name__ == "__main__":
    main()
