"""SLUICE_STATS_FILE: a line of JSON for each end of a communicator, which never fails the job."""

import json

from playing import Play, main


class Stats(Play):
    def lines(self, *paths):
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def test_what_went_through_the_reducers(self):
        self.start_pool(2)
        path = self.folder / "stats.jsonl"
        self.play("kinds", "--ranks", 3, "--types", "float32", env={"SLUICE_STATS_FILE": str(path), "SLUICE_JOB": "words"})
        lines = [line for line in self.lines(path) if line["kind"] == "offloaded"]
        self.assertEqual(sorted(line["node"] for line in lines), [0, 1, 2])
        for line in lines:
            self.assertEqual((line["nodes"], line["reducers"], line["end"], line["job"], line["reducers_lost"]), (3, 2, "closed", "words", 0))
            self.assertGreater(line["operations"], 0)
            self.assertGreater(line["bytes"], 0)
            self.assertTrue(0 < line["busy_seconds"] <= line["open_seconds"], line)
            self.assertAlmostEqual(line["algbw_bytes_per_second"] * line["busy_seconds"] / line["bytes"], 1, places=5)
        self.assertEqual(len({(line["operations"], line["bytes"]) for line in lines}), 1)  # all did the same

    def test_what_the_tuner_was_asked(self):
        self.start_pool(3)
        self.play("tuner", "--ranks", 4, env={"SLUICE_STATS_FILE": str(self.folder / "%h-%p.jsonl")})
        paths = list(self.folder.glob("*.jsonl"))
        self.assertEqual(len(paths), 4, paths)  # a process for each rank
        lines = [line for line in self.lines(*paths) if line["kind"] == "communicator"]
        wanted = [line for line in lines if line["nodes"] == 4]
        self.assertEqual(len(wanted), 4 * 5)  # with each version of the tuner
        for line in wanted:
            self.assertEqual((line["reducers"], line["offload"]), (3, True), line)
            self.assertTrue(0 < line["offload_bytes"] <= line["allreduce_bytes"], line)
        others = [line for line in lines if line["nodes"] == 2]  # too few to gain
        self.assertEqual(len(others) + len(wanted), len(lines))
        self.assertTrue(others and all(not line["offload"] and line["offload_bytes"] == 0 and "SLUICE_MIN_NODES" in line["why_not"] for line in others), others)

    def test_why_nothing_did(self):
        self.addresses = ["127.0.0.1:1"]
        path = self.folder / "stats.jsonl"
        self.play("tuner", "--ranks", 2, "--expect", "fail", env={"SLUICE_STATS_FILE": str(path)})
        lines = self.lines(path)
        refused = [line for line in lines if line["kind"] == "refused"]
        self.assertTrue(refused and all("127.0.0.1:1" in line["why"] for line in refused), lines)
        told = [line for line in lines if line["kind"] == "communicator" and line["nodes"] == 4]
        self.assertTrue(told and all(line["offload"] is False and "127.0.0.1:1" in line["why_not"] for line in told), lines)

    def test_a_file_that_cannot_be_written_costs_a_warning(self):
        self.start_pool(1)
        lines = self.play("kinds", "--ranks", 2, "--types", "float32", "--verbose", env={"SLUICE_STATS_FILE": str(self.folder / "none" / "stats")})
        self.assertEqual(len([line for line in lines if "is not written: No such file or directory" in line]), 2, lines)


if __name__ == "__main__":
    main()
