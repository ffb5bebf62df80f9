"""The point-to-point net of one ABI version."""

from playing import Play, lengthy, main


class Net(Play):
    def test_a_ring(self):
        for ranks in (2, 5):
            self.play("net-ring", "--ranks", ranks)

    @lengthy
    def test_one_stream(self):
        self.play("net-ring", "--ranks", 2, env={"SLUICE_STREAMS": "1"})

    @lengthy
    def test_all_pairs(self):
        self.play("net-pairs", "--ranks", 4)

    def test_closed_with_requests_open(self):
        self.play("net-close", "--ranks", 2, "--rounds", 4)
        self.play("net-close", "--ranks", 3, "--rounds", 2)

    @lengthy
    def test_reducers_are_not_needed(self):
        self.addresses = ["127.0.0.1:1"]
        self.play("net-ring", "--ranks", 2)


if __name__ == "__main__":
    main()
