"""All versions of the tuner, with and without a connected CollNet."""

from nccl_player import TUNER_ABIS, PlayerTest, main


class Tuner(PlayerTest):
    def test_offload_is_on(self):
        self.start_pool(3)
        lines = self.run_player("tuner", "--ranks", 4, "--verbose")
        # One line per version and rank.
        self.assertEqual(len([line for line in lines if "NET/SLUICE: offload ON 3 reducers, " in line]), 4 * len(TUNER_ABIS), lines)

    def test_offload_never(self):
        self.start_pool(1)
        self.run_player("tuner", "--ranks", 2, "--expect", "never", env={"SLUICE_OFFLOAD": "never"})

    def test_offload_without_a_reachable_reducer(self):
        self.addresses = ["127.0.0.1:1"]
        lines = self.run_player("tuner", "--ranks", 2, "--expect", "fail", "--verbose")
        self.assertTrue([line for line in lines if "offload OFF" in line and "127.0.0.1:1" in line], lines)


if __name__ == "__main__":
    main(proves="tuner", subjects=[f"v{abi}" for abi in TUNER_ABIS])
