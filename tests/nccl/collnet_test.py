"""CollNet of one ABI version, as NCCL drives it, against real reducers."""

from playing import Play, abi, lengthy, main


class CollNet(Play):
    def test_every_type_and_operator_bit_for_bit(self):
        for ranks, reducers in ((2, 1), (3, 2), (4, 3)):
            with self.subTest(ranks=ranks, reducers=reducers):
                self.start_pool(reducers - len(self.addresses))
                self.play("kinds", "--ranks", ranks)

    @lengthy
    def test_in_place_bit_for_bit(self):
        self.start_pool(2)
        self.play("in-place", "--ranks", 3)

    @lengthy
    def test_eight_ranks(self):
        self.start_pool(2)
        self.play("kinds", "--ranks", 8, "--types", "float32,bfloat16,int32")

    def test_large_requests_and_several_groups_in_flight(self):
        self.start_pool(2)
        self.play("window", "--ranks", 3)

    @lengthy
    def test_a_handle_that_is_not_at_the_place_of_the_rank(self):
        self.start_pool(2)
        for ranks in (2, 5):
            lines = self.play("order", "--ranks", ranks)
            # What is summed first must not depend on chance, or training would not be repeatable.
            in_order = "fold order of handles " + " ".join(str(place) for place in range(ranks))
            self.assertEqual(len([line for line in lines if line.endswith(in_order)]), ranks, lines)

    @lengthy
    def test_more_requests_than_may_be_open(self):
        self.start_pool(2)
        lines = self.play("flood", "--ranks", 3)
        # None of them was without a null request, so posting again was played.
        self.assertEqual(len([line for line in lines if "retries" in line and not line.endswith("retries 0")]), 3, lines)

    @lengthy
    def test_open_bytes_that_are_taken(self):
        self.start_pool(2)
        # 128 KiB for each of two reducers.
        env = {"SLUICE_WINDOW": "128K", "SLUICE_SLOT": "32K"}
        self.play("budget", "--ranks", 3, "--bytes", 256 << 10, env=env)
        self.play("budget", "--ranks", 2, "--bytes", 256 << 10, env=env | {"SLUICE_THREADS": "0"})

    @lengthy
    def test_a_full_budget_frees_itself(self):
        # One group of eight channels: what is refused is asked for again and again, and nothing is tested meanwhile.
        self.start_pool(1)
        env = {"SLUICE_WINDOW": "256K", "SLUICE_SLOT": "32K"}
        self.play("window", "--ranks", 3, env=env)
        self.play("window", "--ranks", 2, env=env | {"SLUICE_THREADS": "0"})

    def test_memory_is_registered_while_requests_run(self):
        self.start_pool(1)
        self.play("registration", "--ranks", 2)

    @lengthy
    def test_communicators_at_the_same_time(self):
        self.start_pool(2)
        self.play("communicators", "--ranks", 3, "--communicators", 4, "--busy", 4)

    @lengthy
    def test_32_communicators_of_which_4_carry_traffic(self):
        self.start_pool(1)
        self.play("communicators", "--ranks", 2, "--communicators", 32, "--busy", 4)

    @lengthy
    def test_head_groups_of_one_communicator_in_one_process(self):
        self.start_pool(2)
        for heads in (2, 4):
            self.play("heads", "--ranks", 2, "--heads", heads)

    @lengthy
    def test_head_groups_of_one_communicator_in_several_processes(self):
        self.start_pool(2)
        self.play("heads", "--ranks", 6, "--heads", 2, "--heads-apart")
        self.play("heads", "--ranks", 8, "--heads", 4, "--heads-apart")

    @lengthy
    def test_init_and_finalize_over_and_over(self):
        self.start_pool(1)
        self.play("repeat", "--ranks", 2, "--rounds", 4)

    def test_abort_with_requests_open(self):
        self.start_pool(2)
        self.play("abort", "--ranks", 3, "--rounds", 6)

    @lengthy
    def test_without_threads_of_its_own(self):
        self.start_pool(2)
        for scenario in ("kinds", "in-place", "window", "communicators", "abort"):
            self.play(scenario, "--ranks", 2, env={"SLUICE_THREADS": "0"})

    def test_reducers_count_what_was_offloaded(self):
        self.start_pool(1)
        before = self.status(self.addresses[0])
        self.play("kinds", "--ranks", 2, "--types", "float32")
        after = self.status(self.addresses[0])
        self.assertEqual(after["sessions"]["completed"], before["sessions"]["completed"] + 1, f"v{abi()}")


if __name__ == "__main__":
    main()
