"""`sluice-gpu-bench` on the host device: columns, files, counters, correct data for every type, and exit codes. Times are not checked."""

import csv
import os
import re
import unittest

from bench_allreduce_test import ALL_OPS, ALL_TYPES, NUMBER
from sluice_process import SluiceTest, main

SIDE = rf" +{NUMBER} +{NUMBER} +{NUMBER} +(\d+|N/A)"
ROW = re.compile(rf"^ *(\d+) +(\d+) +(\w+) +(\w+) +-1" + SIDE * 2 + rf" +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER} +(D2H|network|H2D) +{NUMBER}$")
HOST = ("--device", "host", "--workers", "2")
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def rows_of(text):
    return [ROW.match(line).groups() for line in text.splitlines() if line and not line.startswith("#")]


class GpuBench(SluiceTest):
    def test_the_table_has_the_columns_of_nccl_tests_and_the_stages(self):
        done = self.run_sluice(*HOST, "-b", "1K", "-e", "64K", "-f", "8", "-n", "2", "--reducers", "2")
        lines = done.stdout.splitlines()
        self.assertIn("# nThread 1 nGpus 1 minBytes 1024 maxBytes 65536 step: 8(factor) warmup iters: 1 iters: 2 agg iters: 1 "
                      "validation: 1 graph: 0 unalign: 0", lines)
        names = "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong "
        self.assertEqual(sum(line.startswith(names) for line in lines), 1)
        self.assertEqual([row[:6] + (len(row),) for row in rows_of(done.stdout)],
                         [(str(size), str(size // 4), "float", "sum", "0", "0", 7) for size in (1024, 8192, 65536)])
        self.assertEqual(len({len(line) for line in lines if line and not line.startswith("#")}), 1)
        self.assertEqual(sum(line.startswith("#  Rank ") and line.endswith(" host") for line in lines), 2)
        self.assertIn("# device: host. No GPU is involved", done.stdout)
        self.assertRegex(done.stdout, rf"\n# copy limits for 64M in GB/s: one rank alone D2H {NUMBER} H2D {NUMBER}; all 2 ranks at once, per rank, "
                                      rf"D2H {NUMBER} H2D {NUMBER}, both directions at once {NUMBER} per direction\n")
        self.assertRegex(done.stdout, rf"\n# End to end over the slowest single stage, largest size : {NUMBER}\n")
        self.assertIn("# Out of bounds values : 0 OK\n", done.stdout)

    def test_json_and_csv_contain_every_stage_and_its_count(self):
        table = self.folder / "result.csv"
        result = self.run_json(*HOST, "-b", "1M", "-e", "32M", "-f", "32", "-n", "3", "-w", "2", "-c", "1", "--csv", table)
        self.assertEqual(result["schema"], "sluice.bench.gpu/1")
        self.check_machine(result)
        self.assertEqual(result["config"]["wire"], "given")
        self.assertEqual((result["config"]["staging_bytes"], result["config"]["piece_bytes"]), (64 << 20, 4 << 20))
        self.assertEqual([device["device"] for device in result["config"]["devices"]], ["host", "host"])
        self.assertEqual(result["copy_limits"].pop("bytes"), 64 << 20)
        self.assertTrue(all(rate > 0 for rate in result["copy_limits"].values()))
        self.assertEqual([(row["size"], row["pieces"]) for row in result["results"]], [(1 << 20, 1), (32 << 20, 16)])
        for row in result["results"]:
            stages = {"D2H": row["d2h"], "network": row["network"], "H2D": row["h2d"]}
            for timed in (*stages.values(), row["out_of_place"], row["in_place"]):
                self.assertEqual(timed["time_count"], 3)
                self.assertGreater(timed["time"], 0)
            self.assertEqual((row["out_of_place"]["nwrong"], row["in_place"]["nwrong"]), (0, 0))
            slowest = max(stage["time"] for stage in stages.values())
            self.assertEqual(stages[row["slowest_stage"]]["time"], slowest)
            self.assertAlmostEqual(row["ratio"], row["out_of_place"]["time"] / slowest, places=6)
            self.assertEqual(list(row["cpu"]), ["d2h", "network", "h2d", "out_of_place", "in_place"])
            # Out of place and in place: warm-up, timed and checked operations. The session must use the same segments as the stages.
            self.assertEqual(row["operations"], 2 * (2 + 3 + 1))
            self.assertEqual(row["pieces_sent"], row["operations"] * row["pieces"])
        self.assertEqual(result["ratio_at_largest"], result["results"][1]["ratio"])
        with open(table, encoding="utf-8") as file:
            read = list(csv.DictReader(file))
        self.assertEqual([(row["size"], row["pieces"], row["out_of_place_wrong"], row["in_place_wrong"], None in row.values()) for row in read],
                         [("1048576", "1", "0", "0", False), ("33554432", "16", "0", "0", False)])

    def test_the_segment_size_is_an_option(self):
        result = self.run_json(*HOST, "-b", "1000000", "-e", "1000000", "-n", "1", "--piece", "64K", "--staging", "256K")
        row = result["results"][0]
        self.assertEqual((row["pieces"], row["pieces_sent"]), (16, 16 * row["operations"]))

    def test_every_type_and_operator_is_correct(self):
        done = self.run_sluice("--device", "host", "-b", "300008", "-e", "300008", "-d", "all", "-o", "all", "-n", "1", "--piece", "64K",
                               "--staging", "256K", "--workers", "3", "--reducers", "2")
        rows = rows_of(done.stdout)
        self.assertEqual([(row[2], row[3]) for row in rows], [(dtype, op) for dtype in ALL_TYPES for op in ALL_OPS])
        self.assertEqual({wrong for row in rows for wrong in row[4:6]}, {"0"})

    def test_16_bit_wire_types_are_correct(self):
        for wire in ("bf16", "f16"):
            with self.subTest(wire):
                result = self.run_json("--device", "host", "-b", "1000000", "-e", "1000000", "-o", "all", "-n", "1", "--wire", wire, "--piece",
                                       "64K", "--staging", "256K", "--workers", "3")
                self.assertEqual(result["config"]["wire"], wire)
                # Only sums and averages travel in the wire type.
                self.assertEqual([(row["redop"], row["pieces"]) for row in result["results"]],
                                 [("sum", 8), ("prod", 16), ("max", 16), ("min", 16), ("avg", 8)])
                for row in result["results"]:
                    self.assertEqual(row["pieces_sent"], row["operations"] * row["pieces"])
                    self.assertEqual((row["out_of_place"]["nwrong"], row["in_place"]["nwrong"]), (0, 0))

    def test_without_checks_the_number_of_wrong_elements_is_not_available(self):
        done = self.run_sluice(*HOST, "-b", "1K", "-e", "1K", "-n", "1", "-c", "0")
        self.assertEqual([row[4:6] for row in rows_of(done.stdout)], [("N/A", "N/A")])

    def test_a_ratio_above_the_maximum_is_exit_2(self):
        done = self.run_sluice(*HOST, "-b", "64K", "-e", "64K", "-n", "1", "--max-ratio", "0.001", expect=2)
        self.assertRegex(done.stdout, rf"largest size : {NUMBER} FAILED \(at most 0.001\)\n")
        done = self.run_sluice(*HOST, "-b", "64K", "-e", "64K", "-n", "1", "--max-ratio", "1000000")
        self.assertRegex(done.stdout, rf"largest size : {NUMBER} OK \(at most 1000000\)\n")

    def test_ranks_of_several_hosts_join_a_running_reducer(self):
        _, address = self.start_reducer()
        ranks = self.start_ranks(address, *HOST, "-b", "64K", "-e", "64K", "-n", "1")
        self.expect_ends(ranks)
        self.assertEqual(([row[4:6] for row in rows_of(ranks[0].stdout())], ranks[1].stdout()), ([("0", "0")], ""))

    def test_without_a_gpu_the_host_device_is_used_and_reported(self):
        done = self.run_sluice("-b", "1K", "-e", "1K", "-n", "1", "--workers", "2", env=NO_GPU)
        self.assertIn("# device: no GPU used: ", done.stdout)
        self.assertEqual([row[4:6] for row in rows_of(done.stdout)], [("0", "0")])

    def test_a_missing_gpu_is_exit_69(self):
        for device in ("cuda", "cuda:3"):
            with self.subTest(device):
                self.expect_error(69, "no usable GPU: ", "--device", device, "-b", "1K", "-e", "1K", "--workers", "1", env=NO_GPU)

    @unittest.skipUnless("CUDA_STAND_IN" in os.environ, "needs cuda-toolkit: this build has no CUDA")
    def test_on_the_cuda_stand_in(self):
        env = {"SLUICE_CUDA_DRIVER": os.environ["CUDA_STAND_IN"]}
        for wire in ("given", "bf16", "f16"):
            with self.subTest(wire):
                done = self.run_sluice("-b", "1000000", "-e", "1000000", "-o", "all", "-n", "1", "--wire", wire, "--workers", "2", env=env)
                self.assertEqual([row[3:6] for row in rows_of(done.stdout)], [(op, "0", "0") for op in ALL_OPS])
                self.assertEqual([line.split()[-1] for line in done.stdout.splitlines() if line.startswith("#  Rank ")], ["cuda", "cuda"])
                self.assertNotIn("# device:", done.stdout)
        self.expect_error(69, "no GPU 100: ", "--device", "cuda:100", "--workers", "1", env=env)

    def test_an_unreachable_reducer_is_exit_69(self):
        port = self.reserve_port()
        self.run_sluice(*HOST, "--rank", "0", "--session", "b" * 32, "--connect", f"127.0.0.1:{port}", "--connect-timeout", "1s", expect=69)

    def test_invalid_options_are_refused(self):
        for arguments in (("--device", "gpu"), ("--device", "cuda:"), ("--device", "cuda:x"), ("--device", "cuda:-1"), ("--wire", "fp4"), ("--piece", "100"),
                          ("--piece", "0"), ("--piece", "32M"), ("--piece", "8G", "--staging", "64G"), ("--staging", "65G"), ("-b", "64", "-e", "8"),
                          ("-f", "1", "-i", "0"), ("-n", "0"), ("-w", "-1"), ("-c", "-1"), ("-d", "int9"), ("-o", "xor"), ("--max-ratio", "-1"),
                          ("--rank", "0"), ("--workers", "0"), ("--graph", "1")):
            with self.subTest(arguments):
                done = self.run_sluice(*arguments, expect=64)
                self.assertEqual((done.stdout, done.stderr.count("\n"), done.stderr.startswith("sluice-gpu-bench: ")), ("", 1, True), done.stderr)

    def test_help_and_version(self):
        done = self.run_sluice("--help")
        for word in ("--device", "--wire", "--staging", "--piece", "-b,--minbytes", "--max-ratio", "--connect"):
            self.assertIn(word, done.stdout)
        self.assertRegex(self.run_sluice("--version").stdout, r"^sluice \d+\.\d+\.\d+\n")


if __name__ == "__main__":
    main()
