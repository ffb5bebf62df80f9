"""A GPU's arrays and streams through the package, on a driver that the processor plays. No GPU, and no torch on one, has been seen."""

from package_bed import PackageTest, main


class Gpu(PackageTest):
    def test_two_ranks_reduce_what_lies_on_their_gpus(self):
        reducers = ",".join(self.start_reducer()[1] for _ in range(2))
        ranks = self.start_ranks("gpu_rank.py", 2, reducers)
        for rank, printed in enumerate(self.outputs(ranks)):
            self.assertEqual(printed, f"{rank} 2 300001 {300001 * 2 + 300001 * 4}\n")


if __name__ == "__main__":
    main()
