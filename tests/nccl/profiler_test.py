"""All versions of the profiler, with offloaded operations."""

from nccl_player import PROFILER_ABIS, PlayerTest, main


class Profiler(PlayerTest):
    def test_asks_for_no_event(self):
        self.start_pool(1)
        self.run_player("profiler", "--ranks", 2, "--expect", "inert")


if __name__ == "__main__":
    main(proves="profiler", subjects=[f"v{abi}" for abi in PROFILER_ABIS])
