"""Tests `sluice bench allreduce`, `star` and `reduce`: correct sums, and output in the format of nccl-tests that scripts parse."""

import re

from sluice_process import SluiceTest, main

NUMBER = r"\d+(?:\.\d+)?(?:e[+-]\d+)?"
ROW = re.compile(rf"^ *(\d+) +(\d+) +(\w+) +(\w+) +-1" + rf" +{NUMBER} +{NUMBER} +{NUMBER} +(\d+|N/A)" * 2 + r"(.*)$")
ALL_TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"]
ALL_OPS = ["sum", "prod", "max", "min", "avg"]


def rows_of(text):
    return [ROW.match(line).groups() for line in text.splitlines() if line and not line.startswith("#")]


class Allreduce(SluiceTest):
    def test_every_type_and_operator_is_correct(self):
        done = self.run_sluice("bench", "allreduce", "-b", "40008", "-e", "40008", "-d", "all", "-o", "all", "-n", "2", "--workers", "3",
                               "--reducers", "2")
        rows = rows_of(done.stdout)
        self.assertEqual([(row[2], row[3]) for row in rows], [(dtype, op) for dtype in ALL_TYPES for op in ALL_OPS])
        self.assertEqual({wrong for row in rows for wrong in row[4:6]}, {"0"})
        self.assertIn("# Out of bounds values : 0 OK\n", done.stdout)

    def test_more_ranks_than_one_group(self):
        done = self.run_sluice("bench", "allreduce", "-b", "100000", "-e", "100000", "-d", "bfloat16", "-o", "all", "-n", "1", "--workers",
                               "9", "--threads", "0")
        self.assertEqual({wrong for row in rows_of(done.stdout) for wrong in row[4:6]}, {"0"})

    def test_sizes_steps_and_columns(self):
        done = self.run_sluice("bench", "allreduce", "-b", "1K", "-e", "64K", "-f", "4", "-n", "3", "-w", "1", "-g", "1", "--workers", "2",
                               "--plain")
        lines = done.stdout.splitlines()
        self.assertIn("# nThread 1 nGpus 1 minBytes 1024 maxBytes 65536 step: 4(factor) warmup iters: 1 iters: 3 agg iters: 1 "
                      "validation: 1 graph: 0 unalign: 0", lines)
        self.assertIn("#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong ",
                      lines)
        self.assertEqual([(row[0], row[1]) for row in rows_of(done.stdout)],
                         [("1024", "256"), ("4096", "1024"), ("16384", "4096"), ("65536", "16384")])
        data = [line for line in lines if line and not line.startswith("#")]
        self.assertEqual({len(line) for line in data}, {118})
        self.assertRegex(done.stdout, r"\n# Avg bus bandwidth    : \S+ \n#\n# Collective test concluded: sluice bench allreduce\n")
        self.assertEqual(sum(line.startswith("#  Rank ") for line in lines), 2)

    def test_increments_odd_sizes_and_misalignment(self):
        done = self.run_sluice("bench", "allreduce", "-b", "5001", "-e", "25001", "-i", "10000", "-d", "double", "-u", "1", "-n", "1", "-m", "3",
                               "--workers", "2", "--reducers", "3")
        rows = rows_of(done.stdout)
        self.assertEqual([row[0] for row in rows], ["5000", "15000", "25000"])
        self.assertEqual({wrong for row in rows for wrong in row[4:6]}, {"0"})

    def test_concurrent_operations_have_separate_buffers(self):
        # More data than the network accepts at once. The result of an operation arrives while the data of the next one waits with a
        # computed checksum; in place, both would use the same bytes.
        done = self.run_sluice("bench", "allreduce", "-b", "1M", "-e", "4M", "-f", "4", "-n", "10", "-m", "8", "--workers", "2", "--lanes", "1",
                               "--window", "32M", "--slot", "1M")
        self.assertEqual([row[4:6] for row in rows_of(done.stdout)], [("0", "0")] * 2)

    def test_without_check_the_result_is_not_available(self):
        done = self.run_sluice("bench", "allreduce", "-b", "1K", "-e", "1K", "-n", "1", "-c", "0", "--workers", "2")
        self.assertEqual([row[4:6] for row in rows_of(done.stdout)], [("N/A", "N/A")])

    def test_json_mirrors_nccl_tests(self):
        csv = self.folder / "result.csv"
        result = self.run_json("bench", "allreduce", "-b", "64K", "-e", "128K", "-f", "2", "-n", "2", "--workers", "2", "--csv", csv,
                               env={"SLUICE_LOG_LEVEL": "warn", "SECRET": "x"})
        self.assertEqual(result["schema"], "sluice.bench.allreduce/1")
        self.assertEqual(result["env"], ["SLUICE_HOSTS=off", "SLUICE_LOG_LEVEL=warn"])
        self.assertEqual(result["config"]["iterations"], 2)
        self.assertEqual(result["config"]["step_factor"], 2)
        self.assertEqual(len(result["config"]["devices"]), 2)
        self.assertEqual([row["size"] for row in result["results"]], [65536, 131072])
        for row in result["results"]:
            self.assertEqual(row["type"], "float")
            for side in ("out_of_place", "in_place"):
                self.assertEqual(row[side]["nwrong"], 0)
                self.assertGreater(row[side]["time"], 0)
                self.assertEqual(row[side]["time_count"], 2)
                # In each iteration, rank 0 is at most as slow as the slowest rank.
                self.assertEqual(len(row[side]["iteration_times"]), 2)
                self.assertGreaterEqual(max(row[side]["iteration_times"]), row[side]["time_p99"])
                self.assertGreaterEqual(row[side]["time_p99"], row[side]["time_median"])
                self.assertGreater(row[side]["time_median"], 0)
                self.assertAlmostEqual(row[side]["alg_bw"], row["size"] / row[side]["time"] * 1e-3, places=6)
                self.assertAlmostEqual(row[side]["bus_bw"], row[side]["alg_bw"], places=9)  # 2(n-1)/n is 1 for two
            self.assertGreater(row["wire_bytes_sent"], row["size"])
            self.assertLess(row["wire_bytes_sent"], 1.05 * row["size"])
        self.assertEqual(result["out_of_bounds"], {"count": 0, "okay": True})
        self.assertIs(result["average_bus_bandwidth"]["okay"], True)
        self.check_machine(result)
        lines = csv.read_text().splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual({line.count(",") for line in lines}, {20})

    def test_joins_running_reducers_rank_by_rank(self):
        _, address = self.start_reducer()
        ranks = self.start_ranks(address, "bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "2", "--workers", "2")
        self.expect_ends(ranks)
        self.assertEqual([row[4:6] for row in rows_of(ranks[0].stdout())], [("0", "0")])
        self.assertEqual(ranks[1].stdout(), "")

    def test_workers_are_divided_into_hosts(self):
        size = 1 << 20
        cases = (((), 1, "# 4 workers\n", size), (("--ranks-per-host", 2), 2, "# 4 workers on 2 hosts x 2 ranks\n", size / 2),
                 (("--ranks-per-host", 3), 3, "# 4 workers on 2 hosts x 3 ranks, the last with 1\n", None))
        for options, ranks_per_host, text, sent in cases:
            with self.subTest(options):
                result, output = self.run_json_and_text("bench", "allreduce", "-b", size, "-e", size, "-n", 2, "--workers", 4, "--reducers", 2, *options,
                                                        env={"SLUICE_COLOCATED": "off"})
                self.assertIn(text, output)
                self.assertEqual(result["config"]["ranks_per_host"], ranks_per_host)
                self.assertFalse([variable for variable in result["env"] if variable.startswith("SLUICE_HOST_ID=")])  # no setting of the user
                (row,) = result["results"]
                self.assertEqual((row["out_of_place"]["nwrong"], row["in_place"]["nwrong"]), (0, 0))
                if sent:
                    self.assertGreater(row["wire_bytes_sent"], sent)
                    self.assertLess(row["wire_bytes_sent"], 1.05 * sent)

    def test_one_host_needs_neither_reducers_nor_network(self):
        result = self.run_json("bench", "allreduce", "-b", "64K", "-e", "64K", "-n", 2, "--workers", 4, "--ranks-per-host", 4, "--reducers", 0)
        self.assertEqual([(row["wire_bytes_sent"], row["out_of_place"]["nwrong"]) for row in result["results"]], [(0, 0)])

    def test_hosts_of_several_ranks_are_refused_where_they_mean_nothing(self):
        self.expect_error(64, "NCCL sums inside a host itself", "bench", "allreduce", "--ranks-per-host", 2, "--through-plugin")
        self.expect_error(64, "NCCL sums inside a host itself", "demo", "digits", "--ranks-per-host", 2, "--through-plugin")
        self.expect_error(64, "one worker after another", "bench", "link", "--ranks-per-host", 2)

    def test_bandwidth_below_the_limit_is_exit_2(self):
        arguments = ("bench", "allreduce", "-b", "1K", "-e", "1K", "-n", "1", "--workers", "2")
        self.run_sluice(*arguments, "--min-bw", "100000", expect=2)
        self.run_sluice(*arguments, expect=2, env={"NCCL_TESTS_MIN_BW": "100000"})
        self.run_sluice(*arguments, "--min-bw", "0.0000001")

    def test_gpu_options_are_refused_with_the_reason(self):
        for letter, value, reason in (("-g", "2", "--workers"), ("-G", "1", "CUDA graphs"), ("-R", "2", "registration")):
            done = self.expect_error(64, reason, "bench", "allreduce", letter, value)
            self.assertEqual(done.stderr.count("\n"), 1)


class Star(SluiceTest):
    def test_star_and_reducer_move_the_same_bytes(self):
        result = self.run_json("bench", "star", "--workers", "2", "--size", "2M", "--rounds", "2")
        self.check_machine(result)
        self.assertEqual(result["nwrong"], 0)
        self.assertEqual(len(result["star_cpu_seconds_per_gb"]), 2)
        self.assertGreater(result["median_ratio"], 0)

    def test_size_that_is_not_a_multiple_of_the_chunk_is_refused(self):
        self.run_sluice("bench", "star", "--size", "1000", expect=64)


class Reduce(SluiceTest):
    def test_kernels_are_measured_and_checked(self):
        result = self.run_json("bench", "reduce", "-d", "float", "-o", "sum", "--size", "16K", "--budget", "1ms")
        self.assertEqual([(row["type"], row["wrong"]) for row in result["results"]], [("f32", 0)])
        self.check_machine(result, nic=False)
        self.run_sluice("bench", "reduce", "-d", "float17", expect=64)


if __name__ == "__main__":
    main()
