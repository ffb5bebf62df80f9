"""SLUICE_STATS_FILE: one line of JSON for each communicator that ended. Errors never fail the job."""

import json

from nccl_player import TUNER_ABIS, PlayerTest, main


class Stats(PlayerTest):
    def lines(self, *paths):
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def test_offloaded_operations(self):
        self.start_pool(2)
        path = self.folder / "stats.jsonl"
        self.run_player("kinds", "--ranks", 3, "--types", "float32", env={"SLUICE_STATS_FILE": str(path), "SLUICE_JOB": "words"})
        lines = [line for line in self.lines(path) if line["kind"] == "offloaded"]
        self.assertEqual(sorted(line["node"] for line in lines), [0, 1, 2])
        for line in lines:
            self.assertEqual((line["nodes"], line["reducers"], line["end"], line["job"], line["reducers_lost"]), (3, 2, "closed", "words", 0))
            self.assertGreater(line["operations"], 0)
            self.assertGreater(line["bytes"], 0)
            self.assertTrue(0 < line["busy_seconds"] <= line["open_seconds"], line)
            self.assertAlmostEqual(line["algbw_bytes_per_second"] * line["busy_seconds"] / line["bytes"], 1, places=5)
        self.assertEqual(len({(line["operations"], line["bytes"]) for line in lines}), 1)  # the same on all ranks

    def test_allreduces_of_the_tuner(self):
        self.start_pool(3)
        self.run_player("tuner", "--ranks", 4, env={"SLUICE_STATS_FILE": str(self.folder / "%h-%p.jsonl")})
        paths = list(self.folder.glob("*.jsonl"))
        self.assertEqual(len(paths), 4, paths)  # one process per rank
        lines = [line for line in self.lines(*paths) if line["kind"] == "communicator"]
        large = [line for line in lines if line["nodes"] == 4]
        self.assertEqual(len(large), 4 * len(TUNER_ABIS))  # one line for each version of the tuner
        for line in large:
            self.assertEqual((line["reducers"], line["offload"]), (3, True), line)
            self.assertTrue(0 < line["offload_bytes"] <= line["allreduce_bytes"], line)
        others = [line for line in lines if line["nodes"] == 2]  # too few nodes for offload
        self.assertEqual(len(others) + len(large), len(lines))
        self.assertTrue(others and all(not line["offload"] and line["offload_bytes"] == 0 and "SLUICE_MIN_NODES" in line["why_not"] for line in others), others)

    def test_reason_without_offload(self):
        self.addresses = ["127.0.0.1:1"]
        path = self.folder / "stats.jsonl"
        self.run_player("tuner", "--ranks", 2, "--expect", "fail", env={"SLUICE_STATS_FILE": str(path)})
        lines = self.lines(path)
        refused = [line for line in lines if line["kind"] == "refused"]
        self.assertTrue(refused and all("127.0.0.1:1" in line["why"] and line["reason"] == "refused" for line in refused), lines)
        communicators = [line for line in lines if line["kind"] == "communicator" and line["nodes"] == 4]
        self.assertTrue(communicators and all(line["offload"] is False and "127.0.0.1:1" in line["why_not"] for line in communicators), lines)

    def test_an_unwritable_file_causes_a_warning(self):
        self.start_pool(1)
        lines = self.run_player("kinds", "--ranks", 2, "--types", "float32", "--verbose", env={"SLUICE_STATS_FILE": str(self.folder / "none" / "stats")})
        self.assertEqual(len([line for line in lines if "cannot write to SLUICE_STATS_FILE" in line]), 2, lines)


if __name__ == "__main__":
    main()
