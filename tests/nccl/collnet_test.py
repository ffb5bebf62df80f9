"""CollNet of one ABI version, called like NCCL does, with real reducers."""

import json
import os

from nccl_player import BESIDE_POOL, WITHOUT_POOL, PlayerTest, abi, is_brief, main, newest_abi_only


class CollNet(PlayerTest):
    def test_every_type_and_operator_bit_for_bit(self):
        for ranks, reducers in ((3, 2),) if is_brief() else ((2, 1), (3, 2), (4, 3)):
            with self.subTest(ranks=ranks, reducers=reducers):
                self.start_pool(reducers - len(self.addresses))
                self.run_player("kinds", "--ranks", ranks)

    @newest_abi_only
    def test_in_place_bit_for_bit(self):
        self.start_pool(2)
        # In an emulated guest all types take more than a minute.
        types = os.environ.get("SLUICE_TEST_TYPES")
        self.run_player("in-place", "--ranks", 3, *(["--types", types] if types else []))

    @newest_abi_only
    def test_eight_ranks(self):
        self.start_pool(2)
        self.run_player("kinds", "--ranks", 8, "--types", "float32,bfloat16,int32")

    def test_large_requests_and_several_groups_in_flight(self):
        self.start_pool(2)
        self.run_player("window", "--ranks", 3)

    @newest_abi_only
    def test_handles_that_are_not_in_rank_order(self):
        self.start_pool(2)
        for ranks in (2, 5):
            lines = self.run_player("order", "--ranks", ranks)
            # The order of summation must be fixed, or training would not be reproducible.
            in_order = "fold order of handles " + " ".join(str(place) for place in range(ranks))
            self.assertEqual(len([line for line in lines if line.endswith(in_order)]), ranks, lines)

    @newest_abi_only
    def test_more_requests_than_the_limit(self):
        self.start_pool(2)
        lines = self.run_player("flood", "--ranks", 3)
        # Each rank got a null request at least once, so the repeated post was tested.
        self.assertEqual(len([line for line in lines if "retries" in line and not line.endswith("retries 0")]), 3, lines)

    @newest_abi_only
    def test_open_bytes_up_to_the_budget(self):
        self.start_pool(2)
        # 128 KiB for each of two reducers.
        env = {"SLUICE_WINDOW": "128K", "SLUICE_SLOT": "32K"}
        self.run_player("budget", "--ranks", 3, "--bytes", 256 << 10, env=env)
        self.run_player("budget", "--ranks", 2, "--bytes", 256 << 10, env=env | {"SLUICE_THREADS": "0"})

    @newest_abi_only
    def test_an_exhausted_budget_recovers(self):
        # One group of eight channels: a refused request is repeated, and no request is tested meanwhile.
        self.start_pool(1)
        env = {"SLUICE_WINDOW": "256K", "SLUICE_SLOT": "32K"}
        self.run_player("window", "--ranks", 3, env=env)
        self.run_player("window", "--ranks", 2, env=env | {"SLUICE_THREADS": "0"})

    def test_registration_while_requests_run(self):
        self.start_pool(1)
        self.run_player("registration", "--ranks", 2)

    @newest_abi_only
    def test_concurrent_communicators(self):
        self.start_pool(2)
        self.run_player("communicators", "--ranks", 3, "--communicators", 4, "--busy", 4)

    @newest_abi_only
    def test_32_communicators_with_traffic_on_4(self):
        self.start_pool(1)
        self.run_player("communicators", "--ranks", 2, "--communicators", 32, "--busy", 4)

    @newest_abi_only
    def test_head_groups_of_one_communicator_in_one_process(self):
        self.start_pool(2)
        for heads in (2, 4):
            self.run_player("heads", "--ranks", 2, "--heads", heads)

    @newest_abi_only
    def test_head_groups_of_one_communicator_in_several_processes(self):
        self.start_pool(2)
        self.run_player("heads", "--ranks", 6, "--heads", 2, "--head-processes")
        self.run_player("heads", "--ranks", 8, "--heads", 4, "--head-processes")

    @newest_abi_only
    def test_repeated_init_and_finalize(self):
        self.start_pool(1)
        self.run_player("repeat", "--ranks", 2, "--rounds", 4)

    def test_abort_with_requests_open(self):
        self.start_pool(2)
        self.run_player("abort", "--ranks", 3, "--rounds", 6)

    @newest_abi_only
    def test_without_progress_threads(self):
        self.start_pool(2)
        for scenario in ("kinds", "in-place", "window", "communicators", "abort"):
            self.run_player(scenario, "--ranks", 2, env={"SLUICE_THREADS": "0"})

    def test_reducers_count_what_was_offloaded(self):
        self.start_pool(1)
        before = self.status(self.addresses[0])
        self.run_player("kinds", "--ranks", 2, "--types", "float32")
        self.status_after_sessions(self.addresses[0], before["sessions"]["completed"] + 1)


class CoLocated(PlayerTest):
    """Reducers in the processes of the ranks."""

    def each_mode(self):
        for env in (BESIDE_POOL, WITHOUT_POOL):
            with self.subTest(**env):
                if not self.addresses:
                    self.start_pool(1)
                yield env

    @newest_abi_only
    def test_every_type_and_operator_bit_for_bit(self):
        for ranks in (2, 3):
            for env in self.each_mode():
                path = self.folder / f"{ranks}-{'-'.join(env)}.jsonl"
                self.run_player("kinds", "--ranks", ranks, env=env | {"SLUICE_STATS_FILE": str(path)})
                lines = [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "offloaded"]
                pool = 1 if env is BESIDE_POOL else 0
                self.assertEqual([(line["reducers"], line["colocated_reducers"]) for line in lines], ranks * [(pool, ranks)])

    @newest_abi_only
    def test_large_requests_and_several_groups_in_flight(self):
        for env in self.each_mode():
            self.run_player("window", "--ranks", 3, env=env)

    @newest_abi_only
    def test_head_groups_and_communicators(self):
        for env in self.each_mode():
            self.run_player("heads", "--ranks", 2, "--heads", 2, env=env)
            self.run_player("heads", "--ranks", 4, "--heads", 2, "--head-processes", env=env)
            self.run_player("communicators", "--ranks", 3, "--communicators", 4, "--busy", 2, env=env)
            self.run_player("repeat", "--ranks", 2, "--rounds", 2, env=env)

    @newest_abi_only
    def test_abort_and_without_progress_threads(self):
        for env in self.each_mode():
            self.run_player("abort", "--ranks", 3, "--rounds", 2, env=env)
            self.run_player("kinds", "--ranks", 2, "--types", "float32", env=env | {"SLUICE_THREADS": "0"})


if __name__ == "__main__":
    main(proves="collnet")
