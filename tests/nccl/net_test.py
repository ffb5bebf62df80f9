"""The point-to-point network of one ABI version."""

from nccl_player import PlayerTest, newest_abi_only, main


class Net(PlayerTest):
    def test_a_ring(self):
        for ranks in (2, 5):
            self.run_player("net-ring", "--ranks", ranks)

    @newest_abi_only
    def test_one_stream(self):
        self.run_player("net-ring", "--ranks", 2, env={"SLUICE_STREAMS": "1"})

    @newest_abi_only
    def test_all_pairs(self):
        self.run_player("net-pairs", "--ranks", 4)

    def test_closed_with_requests_open(self):
        self.run_player("net-close", "--ranks", 2, "--rounds", 4)
        self.run_player("net-close", "--ranks", 3, "--rounds", 2)

    @newest_abi_only
    def test_reducers_are_not_needed(self):
        self.addresses = ["127.0.0.1:1"]
        self.run_player("net-ring", "--ranks", 2)


if __name__ == "__main__":
    main(proves="net")
