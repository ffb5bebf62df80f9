"""Tests bench/test_network/hosts.py without a network: its bounds, its options and its rows. peers_test.py measures with it."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import sluice_process

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("bench/test_network", "bench/peers", "bench/report")]

import hosts  # noqa: E402
import peers  # noqa: E402
from sections import hosts as section  # noqa: E402

REQUIRED = ["--sluice", "sluice", "--peers", "drivers"]
MIB = 1 << 20


class Bounds(unittest.TestCase):
    def test_one_stream_for_each_host(self):
        published = {"allreduce": (1.5, 1.2, 1), "reduce_scatter": (0.75, None, 1), "all_gather": (0.75, None, 0.75), "both": (1.5, None, 1.25)}
        for collective, expected in published.items():
            for reducers, limit in zip((0, 2, 4), expected):
                with self.subTest(collective, reducers=reducers):
                    self.assertEqual(hosts.bound(collective, 4, reducers) is None, limit is None)
                    self.assertAlmostEqual(hosts.bound(collective, 4, reducers) or 0, limit or 0)
                    self.assertIsNone(hosts.bound(collective, 1, 0))

    def test_shared_memory_between_hosts_is_an_error(self):
        """A host need not send what another rank of it has, and all other hosts' data must come over links."""
        for collective, least in (("allreduce", 6), ("reduce_scatter", 3), ("all_gather", 3), ("both", 6)):
            for sent, fails in ((least, False), (least - 0.1, True)):
                counted = SimpleNamespace(sent_bytes=iter([0, int(sent * MIB)]).__next__)
                with self.subTest(collective, sent=sent), self.assertRaises(peers.PeerError) if fails else contextlib.nullcontext():
                    with peers.CountedBytes("x", counted, 4, MIB, collective):
                        pass


class Options(unittest.TestCase):
    def refusal(self, *options):
        text = io.StringIO()
        with contextlib.redirect_stderr(text), self.assertRaises(SystemExit) as end:
            hosts.parse([*REQUIRED, *options])
        self.assertEqual(end.exception.code, 2)
        return text.getvalue()

    def test_defaults_of_one_host(self):
        arguments = hosts.parse([*REQUIRED, "--hosts", "1", "--ranks-per-host", "2,3", "--size", "12K"])
        self.assertEqual((arguments.reducers, arguments.ranks_per_host, arguments.sizes, arguments.loopback), ([0], [2, 3], [12 << 10], True))

    def test_bad_options_are_reported(self):
        for options, expected in ((["--hosts", "0"], "at least 1"), (["--collectives", "allreduce,sort"], "sort: expected one of"), (["--entries", "lynx"], "lynx"),
                                  (["--sharing", "on"], "on"), (["--rate", "0"], "limited rate"), (["--hosts", "1", "--reducers", "2"], "need none"),
                                  (["--ranks-per-host", "3", "--size", "64M"], "each of 12 ranks"), (["--json", "/none/out"], "folder does not exist")):
            with self.subTest(options):
                self.assertIn(expected, self.refusal(*options))


class Rows(unittest.TestCase):
    def case(self, hosts_count, collective, size):
        arguments = hosts.parse([*REQUIRED, "--hosts", str(hosts_count), "--collectives", collective, "--size", str(size)] + (["--reducers", "4"] if hosts_count > 1 else []))
        with contextlib.redirect_stdout(io.StringIO()):  # the drivers do not exist
            case = hosts.Case(arguments, SimpleNamespace(), Path(), 2, collective)
        case.entries = [entry for entry in (peers.SluiceLibrary("sluice", "drivers", arguments.reducers[0], "auto"), *map(lambda name: peers.peer(name, "drivers"), hosts.PEERS))]
        return case

    def test_a_row_compares_with_the_bound_and_the_best_peer(self):
        case = self.case(4, "allreduce", 8 * MIB)
        unit = 8 * MIB / (25e6 * 1448 / 1514)

        def result(times, sent=1.01, wrong=0):
            return {"operation_seconds": [unit * time for time in times], "sent_bytes": [int(sent * len(times) * 8 * MIB)] * 2 + [0] * 6, "cpu_seconds_per_gb": 0.5, "wrong": wrong}

        case.samples = {("sluice, 4 reducers", 8 * MIB): [result([1.1, 1.3]), result([1.2, 1.6], 1.03)], ("openmpi", 8 * MIB): [result([1.8])],
                        ("gloo-ring", 8 * MIB): [result([1.5], wrong=7)]}
        rows = hosts.with_best_peer(list(case.rows()))
        ours = rows[0]
        self.assertEqual([row["entry"] for row in rows], ["sluice, 4 reducers", "gloo-ring", "openmpi"])
        for key, expected in (("time", 1.2), ("least_time", 1.1), ("bound", 1), ("over_bound", 1.2), ("sent", 1.02), ("sent_over_bound", 1.02), ("best_peer_over_this", 1.25)):
            self.assertAlmostEqual(ours[key], expected, places=5, msg=key)
        self.assertEqual((ours["runs"], ours["ranks_per_host"], ours["best_peer"], ours["reducers"], ours["sharing"]), (4, 2, "gloo-ring", 4, "auto"))
        self.assertEqual((rows[1]["wrong"], rows[1]["best_peer"], rows[1]["bound"]), (7, None, 1.5))
        table = io.StringIO()
        with contextlib.redirect_stdout(table):
            hosts.print_table(rows)
        self.assertRegex(table.getvalue(), r"   2 allreduce +8M  sluice, 4 reducers +4 +\d+\.\d+ +\d+\.\d+    1\.200   1\.000 +1\.200   1\.020  1\.020 +0\.50 +1\.25 +0\n")

    def test_report_shows_the_rows(self):
        def row(entry, ranks_per_host, time, reducers=None, sharing=None):
            return {"hosts": 4, "ranks_per_host": ranks_per_host, "collective": "allreduce", "bytes": 16 * MIB, "entry": entry, "reducers": reducers, "sharing": sharing, "runs": 4,
                    "median_seconds": 0.7 * time, "least_seconds": 0.7, "time": time, "bound": 1.0, "over_bound": time, "least_over_bound": 1.0, "sent": 1.005,
                    "sent_over_bound": 1.005, "best_peer_over_this": 1.5 if sharing else None, "cpu_seconds_per_gb": 2.5, "wrong": 0}

        rows = [row(*entry) for entry in (("sluice, 4 reducers", 2, 1.02, 4, "auto"), ("sluice, 4 reducers", 8, 1.03, 4, "auto"), ("gloo-ring", 2, 1.76), ("gloo-ring", 8, 1.94))]
        cases = [{"hosts": 4, "rate": "200mbit", "load_average": {"before": 9, "median": 12, "greatest": 20}, "failures": ["openmpi skipped: why\nmore"], "rows": rows}]
        self.assertIn("| 4 | 8 | allreduce | 16 MiB | sluice, 4 reducers | 721.000 | 700.000 | 4 | 1.030 | 1.000 | 1.030 | 1.000 | 1.005 | 1.005 | 1.50 | 2.50 | 0 |",
                      section.table(cases))
        for shown in ("9 before the first run", "12 to 20 in the runs", "Not measured: openmpi skipped: why."):
            self.assertIn(shown, section.text(cases))
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            for _, name in section.plots(cases, Path(folder)):  # without matplotlib there is none
                svg = Path(folder, name).read_text(encoding="utf-8")
                for shown in ("ranks per host", "sluice, 4 reducers", "Gloo", "bound, 4 reducers"):
                    self.assertIn(shown, svg)

    def test_one_host_has_no_links(self):
        case = self.case(1, "both", 4096)
        case.samples = {("sluice, 0 reducers", 4096): [{"operation_seconds": [1e-5], "cpu_seconds_per_gb": 0.1, "wrong": 0}]}
        (row,) = hosts.with_best_peer(list(case.rows()))
        self.assertEqual([row[key] for key in ("time", "bound", "over_bound", "sent", "sent_over_bound", "best_peer_over_this")], [None] * 6)
        self.assertEqual(row["median_seconds"], 1e-5)

    def test_a_ring_of_open_mpi_is_measured_for_allreduce_only(self):
        for collective, expected in (("allreduce", {"openmpi", "openmpi-han", "openmpi-ring"}), ("all_gather", {"openmpi", "openmpi-han"})):
            arguments = hosts.parse([*REQUIRED, "--hosts", "1", "--collectives", collective, "--size", "4K"])
            skipped = io.StringIO()
            with contextlib.redirect_stdout(skipped):
                hosts.Case(arguments, SimpleNamespace(), Path(), 2, collective)
            self.assertEqual({line.split()[1] for line in skipped.getvalue().splitlines() if line.startswith("# openmpi")}, expected)


if __name__ == "__main__":
    sluice_process.main()
