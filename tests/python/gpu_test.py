"""Arrays and streams of a GPU, on the CUDA stand-in. tests/gpu/python_ranks.py does the same on a GPU."""

from package_test_bed import PackageTest, main


class Gpu(PackageTest):
    def test_two_ranks_reduce_arrays_on_gpus(self):
        reducers = ",".join(self.start_reducer()[1] for _ in range(2))
        ranks = self.start_ranks("gpu_rank.py", 2, reducers)
        for rank, printed in enumerate(self.outputs(ranks)):
            # Averages as bf16, a maximum, a part, the broadcast of rank 1, another maximum.
            staged_out = 2 * 300001 * 2 + 300001 * 4 + (150001 - rank) * 4 + rank * 300001 * 4 + 300001 * 4
            self.assertEqual(printed, f"{rank} 6 {2 * 300001} {staged_out}\n")


if __name__ == "__main__":
    main()
