"""bench/peers: every driver that was built gives right sums, sees a wrong one, plays traces, and is held to TCP."""

import argparse
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("bench/netbed", "bench/peers", "tests/capabilities")]

import peers  # noqa: E402
from bed import Bed, Loopback  # noqa: E402
from capabilities import enter_namespaces, needs  # noqa: E402

enter_namespaces()

peers.DEADLINE_S = 60
PROGRAMS = None
SLUICE = None
NAMES = []  # of the peers whose driver was built


def one_of_each_library():
    return [name for number, name in enumerate(NAMES) if name.split("-")[0] not in {other.split("-")[0] for other in NAMES[:number]}]


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class OnLoopback(Peers):
    def test_sums_are_right(self):
        sizes = [4, 40004, 262144]
        for name in NAMES:
            for ranks in (2, 3):
                with self.subTest(name, ranks=ranks):
                    results = peers.peer(name, PROGRAMS).measure(Loopback(apart=False), ranks, sizes, 3, 1, self.folder)
                    self.assertEqual([(result["bytes"], result["wrong"]) for result in results], [(size, 0) for size in sizes])
                    for result in results:
                        self.assertEqual(len(result["operation_seconds"]), 3)
                        self.assertEqual(len(result["cpu_seconds"]), ranks)
                        # The slowest rank's total is at most the total of each operation's slowest.
                        self.assertLessEqual(result["loop_seconds"], sum(result["operation_seconds"]) * 1.000001)
                        self.assertGreater(result["loop_seconds"], 0)

    def test_a_wrong_element_is_seen(self):
        trace = self.folder / "trace"
        trace.write_text("0 4000\n", encoding="ascii")
        for name in NAMES:
            for what in (["--bytes", 4000], ["--trace", trace]):
                with self.subTest(name, what=what[0]):
                    told = peers.peer(name, PROGRAMS).run(Loopback(apart=False), 2, self.folder, [*what, "--iterations", 2, "--spoil-rank", 1])
                    # In the first and the last operation, at both ranks.
                    self.assertEqual([result["wrong"] for result in told["results"]], [4])

    def test_a_trace_is_played_in_time(self):
        trace = self.folder / "trace"
        trace.write_text("# ready_us bytes\n0 4096\n\n1000 65536\n30000 400\n", encoding="ascii")
        for name in NAMES:
            with self.subTest(name):
                result = peers.peer(name, PROGRAMS).replay(Loopback(apart=False), 2, trace, 2, 1, self.folder)
                self.assertEqual((result["bytes"], result["operations"], result["wrong"]), (4096 + 65536 + 400, 3, 0))
                self.assertEqual(len(result["operation_seconds"]), 2)
                for whole, operating in zip(result["operation_seconds"], result["allreduce_seconds"]):
                    self.assertGreaterEqual(whole, 0.03)  # when the last one is ready
                    self.assertGreater(whole, operating)
                    self.assertGreater(operating, 0)

    def test_bad_options_are_named(self):
        for name in one_of_each_library():
            peer = peers.peer(name, PROGRAMS)
            more = ["--rank", 0, "--ranks", 1, "--store", self.folder, "--address", "127.0.0.1"] if peer.part == "gloo" else []
            for options, told in ((["--bytes", "6"], "6"), (["--bytes", "1X"], "1X"), ([], "--trace"), (["--bytes", "4", "--trace", "x"], "--trace"),
                                  (["--trace", self.folder / "none"], "none"), (["--bytes", "4", "--iterations", "0"], "iterations")):
                with self.subTest(name, options=options):
                    done = subprocess.run([str(w) for w in [peer.program, *more, *options]], capture_output=True, text=True, timeout=60, check=False)
                    self.assertEqual(done.returncode, 64, done.stderr)
                    self.assertIn(told, done.stderr)

    def compare(self, *what):
        """What it prints, and its JSON."""
        out = self.folder / "out.json"
        words = [sys.executable, "-B", ROOT / "bench/peers/compare.py", "--loopback", "--sluice", SLUICE, "--peers", PROGRAMS, "--entries",
                 ",".join(one_of_each_library()), "--workers", 2, "--rounds", 2, "--iterations", 2, "--json", out, *what]
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual(told["failures"], [])
        return done.stdout, told

    def test_compare_measures_everybody(self):
        text, told = self.compare("--reducers", "1,2", "--sizes", "4K,64K")
        self.assertEqual({"host", "kernel", "cpu", "nic", "congestion_control", "revision"} - set(told["machine"]), set())
        entries = ["sluice, 1 reducer", "sluice, 2 reducers", *one_of_each_library()]
        self.assertEqual([(row["bytes"], row["entry"]) for row in told["results"]], [(size, entry) for size in (4096, 65536) for entry in entries])
        for row in told["results"]:
            self.assertEqual((row["rounds"], row["runs"], row["wrong"]), (2, 4, 0))
            self.assertLessEqual(row["median_seconds"], row["p99_seconds"])
            self.assertEqual(text.count(f"  {row['entry']} "), 2)

    def test_compare_plays_a_trace_on_everybody(self):
        trace = self.folder / "trace"
        trace.write_text("0 40000\n2000 400\n", encoding="ascii")
        _, told = self.compare("--reducers", 1, "--trace", trace)
        self.assertEqual([(row["entry"], row["bytes"], row["runs"]) for row in told["results"]],
                         [(entry, 40400, 4) for entry in ["sluice, 1 reducer", *one_of_each_library()]])
        for row in told["results"]:
            self.assertGreaterEqual(min(min(seconds) for seconds in row["operation_seconds"]), 0.002)


@needs("network-namespaces")
class InABed(Peers):
    def test_sums_are_right(self):
        with Bed(["w0", "w1", "ctl"], "0") as bed:
            for name in NAMES:
                with self.subTest(name):
                    self.assertEqual([result["wrong"] for result in peers.peer(name, PROGRAMS).measure(bed, 2, [100_000], 2, 1, self.folder)], [0])

    def test_shared_memory_is_found_out(self):
        for name in one_of_each_library():
            peer = peers.peer(name, PROGRAMS)
            if peer.part == "openmpi":
                peer.settings["btl"] = "vader,self"
                place = Loopback(apart=True)
            elif peer.part == "mpich":
                peer.transports = "all"
                place = Bed(["w0", "w1", "ctl"], "0")
            else:
                continue  # Gloo has none
            with self.subTest(name), place as hosts, self.assertRaisesRegex(peers.PeerError, "not all of it was TCP"):
                peer.measure(hosts, 2, [1 << 20], 2, 1, self.folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--programs", required=True, help="folder of the drivers")
    parser.add_argument("--built", required=True, help="which there must be: openmpi,mpich,gloo")
    arguments, rest = parser.parse_known_args()
    PROGRAMS, SLUICE = arguments.programs, arguments.sluice
    NAMES = [name for name in peers.PEERS if peers.peer(name, PROGRAMS).part in arguments.built.split(",")]
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
