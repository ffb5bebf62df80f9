"""Tests `sluice bench replay`: the text format of traces, correct sums, and the report of a run."""

import re

from sluice_process import SluiceTest, main

MODELS = ["resnet-50", "mask-rcnn-r50-fpn", "bert-large", "gpt2-medium", "llama-7b"]
ROW = re.compile(r"^ +(\d+) +\d+\.\d{3} +(\d+\.\d{3}) +\d+\.\d{3} +\d\S*$")


class Traces(SluiceTest):
    def buckets(self, *arguments):
        lines = self.run_sluice("bench", "replay", "--print-trace", *arguments).stdout.splitlines()
        return [tuple(map(int, line.split(" "))) for line in lines if not line.startswith("# ")]

    def test_list_shows_every_model_with_its_size(self):
        lines = self.run_sluice("bench", "replay", "--list").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["model", *MODELS])
        self.assertEqual(lines[1].split()[1:8], ["25557032", "25557032", "161", "102228128", "5", "50", "105ms"])
        self.assertEqual(self.run_sluice("bench", "replay", "--list", "-d", "bf16").stdout.splitlines()[1].split()[4], "51114064")

    def test_options_change_the_trace(self):
        self.assertEqual(len(self.buckets()), 5)
        self.assertEqual(len(self.buckets("--bucket-cap", "5M")), 13)
        self.assertEqual(len(self.buckets("--bucketing", "none")), 161)
        horovod = self.buckets("--bucketing", "horovod", "--cycle-time", "10ms")
        self.assertEqual([ready % 10000 for ready, _ in horovod], [0] * len(horovod))
        self.assertGreater(len(self.buckets("--bucketing", "horovod", "--fusion-threshold", "0")), len(horovod))
        self.assertEqual(self.buckets("--step-time", "30ms")[-1][0], 30000)
        self.assertEqual(self.buckets("--step-time", "30ms", "--compute-scale", "0.5")[-1][0], 15000)
        self.assertEqual({ready for ready, _ in self.buckets("--compute-scale", "0")}, {0})
        for model in MODELS:
            single, half = self.buckets("--model", model), self.buckets("--model", model, "-d", "f16")
            self.assertEqual(sum(size for _, size in single), 2 * sum(size for _, size in half), model)

    def test_printed_trace_can_be_read(self):
        text = self.run_sluice("bench", "replay", "--model", "gpt2-medium", "--print-trace").stdout
        path = self.write("gpt2.trace", text)
        self.assertEqual(self.run_sluice("bench", "replay", "--trace", path, "--print-trace").stdout, text)

    def test_bad_options_are_exit_64_in_one_line(self):
        for content, error in (("", "expected at least one line"), ("5 4\n\n-1 4\n", "line 3"), ("5 4\n4 4\n", "line 2"), ("1 6\n", "line 1: bytes \"6\""),
                               ("1 99999999999999999999\n", "line 1")):
            path = self.write("bad.trace", content)
            done = self.expect_error(64, error, "bench", "replay", "--trace", path, "--workers", "2")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(str(path), done.stderr)
        path.write_text("1 4\n")
        for arguments, error in ((("--model", "alexnet"), "resnet-50"), (("--trace", self.folder / "missing"), "missing"),
                                (("--trace", path, "--model", "resnet-50"), "--model"), (("--trace", path, "--bucketing", "none"), "--bucketing"),
                                (("--bucketing", "horovod", "--bucket-cap", "1M"), "--bucket-cap"), (("--cycle-time", "2ms"), "--cycle-time"),
                                (("--bucketing", "tea"), "tea"), (("-d", "f64"), "f64"), (("--compute-scale", "-1"), "--compute-scale"),
                                (("--step-time", "24h", "--compute-scale", "2"), "24 h"),
                                (("--step-time", "25h"), "--step-time"), (("-n", "0"), "--iters"), (("--buffer-limit", "32M"), "--buffer-limit"),
                                (("--workers", "0"), "worker")):
            with self.subTest(arguments):
                done = self.expect_error(64, error, "bench", "replay", *arguments)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


class Replay(SluiceTest):
    def setUp(self):
        super().setUp()
        self.trace = self.write("small.trace", "# three buckets\n0 400000\n1000 1200000\n100000 40\n")

    def replay(self, *arguments):
        return self.run_sluice("bench", "replay", "--workers", "2", "-n", "3", *arguments).stdout

    def test_text_describes_trace_and_result(self):
        text = self.replay("--trace", self.trace)
        self.assertIn(f"# sluice bench replay: {self.trace}, 1600040 bytes as f32 in 3 buckets, 2 workers\n# three buckets\n", text)
        self.assertIn("# buffers: in place", text)
        self.assertIn("#     step   whole (ms) compute (ms) exposed (ms) algbw GB/s\n", text)
        rows = [ROW.match(line) for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual([row.groups() for row in rows], [("1", "100.000"), ("2", "100.000"), ("3", "100.000")])
        self.assertRegex(text, r"\n#   median .*\n#      p99 .*\n# Steps                : 3\n")
        self.assertIn("# Wrong values         : 0 OK", text)

    def test_the_data_stays_finite(self):
        _, address = self.start_reducer("--health")
        done = self.run_sluice("bench", "replay", "--workers", "2", "-n", "60", "-d", "f16", "--trace", self.write("fast.trace", "0 40000\n"),
                               "--connect", address)
        self.assertIn("# Wrong values         : 0 OK", done.stdout)
        self.assertNotIn("level=warn", done.stderr)
        self.assertEqual(set(self.status(address)["findings"].values()), {0})

    def test_json_and_csv(self):
        csv = self.folder / "result.csv"
        result = self.run_json("bench", "replay", "--workers", "2", "-n", "3", "--trace", self.trace, "--csv", csv)
        self.assertEqual(result["schema"], "sluice.bench.replay/1")
        self.check_machine(result)
        self.assertEqual(result["nwrong"], 0)
        self.assertEqual(result["trace"], {"name": str(self.trace), "comments": ["three buckets"], "type": "f32", "bytes": 1600040, "buckets": 3,
                                           "compute_us": 100000})
        self.assertEqual(len(result["results"]), 3)
        for row in result["results"]:
            self.assertGreater(row["exposed_us"], 0)  # no bucket is reduced before it is ready
            self.assertAlmostEqual(row["whole_us"], row["exposed_us"] + 100000, places=3)
            self.assertAlmostEqual(row["alg_bw"], 1600040e-3 / row["whole_us"], places=9)
        whole = sorted(row["whole_us"] for row in result["results"])
        self.assertEqual(result["whole_us"], {"count": 3, "median": whole[1], "p99": whole[2]})
        self.assertGreater(result["worker_cpu_seconds_per_gb"], 0)
        self.assertGreater(result["reducer_cpu_seconds_per_gb"], 0)
        lines = csv.read_text().splitlines()
        self.assertEqual(lines[0], "step,whole_us,compute_us,exposed_us,algbw")
        self.assertEqual([line.split(",")[0::2][:2] for line in lines[1:]], [["1", "100000"], ["2", "100000"], ["3", "100000"]])

    def test_sums_are_correct_for_every_type_and_progress_mode(self):
        for dtype in ("f32", "bf16", "f16"):
            for threads in ("0", "1"):
                with self.subTest(dtype=dtype, threads=threads):
                    text = self.replay("--trace", self.trace, "-d", dtype, "--threads", threads, "--reducers", "1")
                    self.assertIn("# Wrong values         : 0 OK", text)

    def test_sums_are_correct_with_shared_memory(self):
        self.trace.write_text("".join(f"0 {4 * size}\n" for size in (50000, 60000, 1, 90000, 16, 70000)))
        text = self.replay("--trace", self.trace, "--buffer-limit", "800K")
        self.assertIn("# buffers: shared memory of 800K", text)
        self.assertIn("# no computation: the times are communication only\n", text)
        self.assertIn("# Wrong values         : 0 OK", text)

    def test_more_buckets_than_the_in_flight_limit(self):
        self.trace.write_text("0 64\n" * 3000)
        for threads in ("0", "1"):
            self.assertIn("# Wrong values         : 0 OK", self.replay("--trace", self.trace, "--threads", threads))

    def test_model_with_computation_time(self):
        result = self.run_json("bench", "replay", "--workers", "2", "-n", "1", "-w", "0", "--step-time", "50ms", "-d", "bf16")
        self.assertEqual((result["trace"]["buckets"], result["trace"]["bytes"], result["trace"]["compute_us"]), (3, 51114064, 50000))
        self.assertEqual(result["nwrong"], 0)

    def test_joins_running_reducers_rank_by_rank(self):
        _, address = self.start_reducer()
        ranks = self.start_ranks(address, "bench", "replay", "--trace", self.trace, "-n", "2", "--workers", "2")
        self.expect_ends(ranks)
        self.assertIn("# Wrong values         : 0 OK", ranks[0].stdout())
        self.assertEqual(ranks[1].stdout(), "")


if __name__ == "__main__":
    main()
