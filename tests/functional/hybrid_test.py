"""Tests bench/test_network/hybrid.py: the bound of the split, the rows of the table, and short runs over loopback and over shaped links."""

import json
import subprocess
import sys
import unittest
from pathlib import Path
from xml.etree import ElementTree

import sluice_process
from sluice_process import DEADLINE_S, SluiceTest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("bench/test_network", "bench/peers", "bench/report")]

import hybrid  # noqa: E402
import pool_width  # noqa: E402
from capabilities import enter_namespaces, needs  # noqa: E402: sluice_process says where it is
from link_split import pool_time, ring_time, split_time  # noqa: E402
from sections import colocated  # noqa: E402

# Workers: the published times with a pool of 0, 1/4, 1/2, 3/4 and all of the workers' bandwidth.
BOUNDS = {3: (1.333, 1.231, 1.143, 1.067, 1), 4: (1.5, 1.333, 1.2, 1.091, 1), 8: (1.75, 1.474, 1.273, 1.12, 1), 16: (1.875, 1.538, 1.304, 1.132, 1),
          64: (1.969, 1.585, 1.326, 1.14, 1)}


class Bounds(unittest.TestCase):
    def test_equal_links(self):
        for workers, times in BOUNDS.items():
            equal = [1.0] * workers
            for quarter, expected in enumerate(times):
                with self.subTest(workers=workers, quarter=quarter):
                    pool = [1.0, workers * quarter / 4 - 1] if workers * quarter > 4 else [workers * quarter / 4] if quarter else []
                    self.assertAlmostEqual(split_time(equal, pool), expected, delta=0.0005)
                    if pool:
                        self.assertAlmostEqual(pool_time(equal, pool), 4 / quarter)
            self.assertAlmostEqual(ring_time(equal), times[0], delta=0.0005)

    def test_slow_worker(self):
        for workers, slow, split, ring in ((4, 0.75, 1.6, 2), (4, 0.5, 2, 3), (8, 0.5, 2, 3.5), (8, 0.25, 4, 7)):
            rates = [1.0] * (workers - 1) + [slow]
            self.assertAlmostEqual(split_time(rates, []), split)
            self.assertAlmostEqual(ring_time(rates), ring)

    def test_few_workers(self):
        self.assertEqual(split_time([1.0], []), 0)
        self.assertAlmostEqual(split_time([1.0, 0.5], []), 2)
        self.assertAlmostEqual(split_time([1.0, 1.0], [0.1]), 1)


class Rows(unittest.TestCase):
    def test_row_compares_a_pool_with_the_faster_ring(self):
        def entry(time, cpu, wrong=0):
            return {"workers": 4, "bytes": 1 << 20, "runs": 6, "median_seconds": 0.1 * time, "p99_seconds": 0.1 * time, "of_bound": time, "cpu_seconds_per_gb": cpu,
                    "wrong": wrong}

        row = hybrid.pool_row(2, entry(1.26, 3.0), entry(2.1, 2.0, wrong=1), {"openmpi-ring": entry(1.6, 9.0), "gloo-ring": entry(1.512, 2.0)},
                              {"bound": 1.2, "pool_alone_bound": 2.0, "ring_bound": 1.5})
        self.assertAlmostEqual(row["over_bound"], 1.05)
        self.assertAlmostEqual(row["best_ring_over_this"], 1.2)
        self.assertEqual((row["cpu_over_gloo"], row["pool_alone"], row["rings"]), (1.5, 2.1, {"openmpi-ring": 1.6, "gloo-ring": 1.512}))
        self.assertEqual(row["wrong"], 1)

    def test_report_shows_the_rows(self):
        """A row without a value of a kind, as of a pool of 0 reducers without a pool alone, has an empty cell."""
        row = {"workers": 4, "bytes": 1 << 26, "reducers": 0, "runs": 6, "median_seconds": 4.2, "time": 1.507, "bound": 1.5, "over_bound": 1.0047, "pool_alone": None,
               "rings": {"gloo-ring": 1.51}, "best_ring_over_this": 1.002, "cpu_seconds_per_gb": 1.0, "cpu_over_gloo": 0.9, "wrong": 0}
        cases = [{"workers": 4, "links": {"rate": "200mbit", "slow_worker": 0.5}, "options": ["--no-crc"], "rings": ["gloo-ring"], "pools": [row]}]
        self.assertIn("| 4 | 200mbit, one at 0.5 --no-crc | 64 MiB | 0 | 4200.00 | 6 | 1.507 | 1.500 | 1.005 | 1.510 | 1.00 |  | 1.00 | 0.90 | 0 |",
                      colocated.table(cases))

    def test_plot_shows_measured_points(self):
        def row(reducers, time, alone):
            return {"reducers": reducers, "bytes": 1 << 26, "time": time, "pool_alone": alone, "rings": {"gloo-ring": 1.507}}

        svg = pool_width.Plot({"workers": 4, "links": {"rate": "200mbit"}, "pools": [row(0, 1.51, None), row(1, 1.35, 4.02), row(4, 1.01, 1.02)]}).svg()
        ElementTree.fromstring(svg)
        self.assertEqual(svg.count("<circle"), 4)  # the pool of one reducer alone is above the plot
        for shown in (">1.51<", ">1.35<", ">1.01<", "ring (Gloo: 1.51)", "4 workers of 200 Mb/s"):
            self.assertIn(shown, svg)


class HybridTest(SluiceTest):
    def hybrid(self, *options, program=None, expect=0):
        """Returns the output and the content of the JSON file."""
        out = self.folder / "out.json"
        command = [sys.executable, "-B", ROOT / "bench/test_network/hybrid.py", "--sluice", program or sluice_process.PROGRAM, "--json", out, *options]
        done = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              env=sluice_process.environment())
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr, json.loads(out.read_text(encoding="utf-8")) if out.exists() else None

    def test_pools_on_loopback(self):
        text, output = self.hybrid("--loopback", "--workers", 2, "--reducers", "0,1", "--pool-alone", "--sizes", "4K,64K", "--rounds", 2, "--iterations", 2)
        self.assertEqual({"host", "kernel", "cpu", "congestion_control", "revision"} - set(output["machine"]), set())
        entries = ["sluice, 0 reducers", "sluice, 1 reducer", "sluice, 1 reducer, pool alone"]
        self.assertEqual([(row["bytes"], row["entry"], row["runs"], row["wrong"]) for row in output["results"]],
                         [(size, entry, 4, 0) for size in (4096, 65536) for entry in entries])
        self.assertEqual([(row["bytes"], row["reducers"], row["bound"]) for row in output["pools"]],
                         [(size, reducers, None) for size in (4096, 65536) for reducers in (0, 1)])
        self.assertEqual(output["failures"], [])
        self.assertIn("6 of 6:", text)

    def test_program_without_colocation_is_reported(self):
        program = self.folder / "older-sluice"
        program.write_text("#!/bin/sh\necho 'Usage: sluice bench allreduce'\n", encoding="ascii")
        program.chmod(0o755)
        text, output = self.hybrid("--loopback", "--reducers", "0,2", program=program, expect=1)
        self.assertIn("older-sluice has no co-located reducers", text)
        self.assertNotIn("Traceback", text)
        self.assertEqual((len(output["failures"]), output["pools"]), (2, []))

    def test_bad_options_are_reported(self):
        for options, expected in ((["--slow-worker", "1.5"], "fraction of --rate"), (["--reducers", "-1"], "non-negative"), (["--entries", "lynx"], "lynx"),
                                  (["--loopback", "--slow-worker", "0.5"], "no limits"), (["--rate", "fast"], "fast"), (["--size", "6"], "multiple of 4"),
                                  (["--json", self.folder / "none/out"], "folder does not exist")):
            with self.subTest(options):
                text, _ = self.hybrid(*options, expect=2)
                self.assertIn(expected, text)

    @needs("network-namespaces")
    def test_shaped_links_and_shares(self):
        """A slow worker is shaped, and co-located reducers take the load that a pool alone could not carry."""
        _, output = self.hybrid("--workers", 3, "--reducers", 1, "--rate", "100mbit", "--slow-worker", "0.5", "--size", "2M", "--rounds", 1, "--iterations", 4,
                                "--pool-alone")
        self.assertEqual(output["links"]["slow_worker"], 0.5)
        # The slow worker's link needs 2 S/goodput, the pool's 3; less what the token buckets hold.
        row = output["pools"][0]
        self.assertAlmostEqual(row["bound"], 2)
        self.assertAlmostEqual(row["pool_alone_bound"], 3)
        self.assertGreater(row["over_bound"], 0.9)
        self.assertGreater(row["pool_alone"], 2.7)
        self.assertGreater(row["pool_alone"], 1.2 * row["time"])


if __name__ == "__main__":
    enter_namespaces()
    sluice_process.main()
