"""Tests bench/peers: each built driver computes correct results, detects a wrong one, replays traces, and uses TCP only. Tests hosts.py with them."""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("bench/test_network", "bench/peers", "tests/capabilities")]

import peers  # noqa: E402
from capabilities import enter_namespaces, needs  # noqa: E402
from test_network import Loopback, TestNetwork  # noqa: E402

enter_namespaces()

peers.DEADLINE_S = 60
PROGRAMS = None
SLUICE = None
NAMES = []  # peers whose driver was built


def one_of_each_library():
    return [name for number, name in enumerate(NAMES) if name.split("-")[0] not in {other.split("-")[0] for other in NAMES[:number]}]


class Peers(unittest.TestCase):
    ATTEMPTS = 3  # a peer's library that crashes on a busy machine is not a failure of Sluice; one that never works is

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="sluice-test-")))

    def without_crash(self, work):
        for attempt in range(1, self.ATTEMPTS + 1):
            try:
                return work()
            except peers.PeerCrashed as crash:
                print(f"crash of the peer, attempt {attempt} of {self.ATTEMPTS}: {crash}", file=sys.stderr)
        return self.fail(f"the peer crashed {self.ATTEMPTS} times in a row")

    def hosts(self, *options):
        """Runs hosts.py for a round of two operations. Returns its JSON."""
        out = self.folder / "hosts.json"
        command = [sys.executable, "-B", ROOT / "bench/test_network/hosts.py", "--sluice", SLUICE, "--peers", PROGRAMS, "--rounds", 1, "--iterations", 2, "--warmup", 1,
                   "--json", out, *options]
        done = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(out.read_text(encoding="utf-8"))


class PeersOnLoopback(Peers):
    def test_crash_is_the_peers(self):
        """A driver that a signal ends, directly and below a shell, as mpirun reports it."""
        for code in ("kill -SEGV $$", "exit 139"):
            broken = peers.Gloo("gloo-ring", self.folder, "ring")
            broken.program = "sh"
            broken.commands = lambda hosts, ranks, folder, code=code: [("w0", ["sh", "-c", code], {})]
            with self.assertRaises(peers.PeerCrashed):
                broken.run(Loopback(private=False), 1, self.folder, [])
        broken.commands = lambda hosts, ranks, folder: [("w0", ["sh", "-c", "exit 1"], {})]
        with self.assertRaises(peers.PeerError) as caught:
            broken.run(Loopback(private=False), 1, self.folder, [])
        self.assertNotIsInstance(caught.exception, peers.PeerCrashed)

    def test_compare_reports_a_crash_and_goes_on(self):
        entry = NAMES[0]
        broken = self.folder / Path(peers.peer(entry, PROGRAMS).program).name
        broken.write_text("#!/bin/sh\nkill -SEGV $$\n", encoding="ascii")
        broken.chmod(0o755)
        out = self.folder / "out.json"
        command = [sys.executable, "-B", ROOT / "bench/peers/compare.py", "--loopback", "--sluice", SLUICE, "--peers", self.folder, "--entries", entry,
                   "--workers", 2, "--reducers", 1, "--sizes", "4K", "--rounds", 2, "--iterations", 2, "--json", out]
        done = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        output = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual((output["failures"], output["crashes"]), ([], [{"workers": 2, "entry": entry, "rounds": 2}]))
        self.assertEqual([row["entry"] for row in output["results"]], ["sluice, 1 reducer"])

    def drivers(self):
        yield "sluice", lambda: peers.SluiceLibrary(SLUICE, PROGRAMS, 1, "off")
        for name in one_of_each_library():
            yield name, lambda name=name: peers.peer(name, PROGRAMS)

    def test_results_of_every_collective_are_correct(self):
        sizes = [12, 40008, 262152]
        for (name, make), collective in itertools.product(self.drivers(), peers.TRANSFERS):
            with self.subTest(name, collective=collective):
                driver = make()
                driver.collective = collective
                results = self.without_crash(lambda d=driver: d.measure(Loopback(private=False), 3, sizes, 2, 1, self.folder))
                self.assertEqual([(result["bytes"], result["wrong"], len(result["operation_seconds"])) for result in results], [(size, 0, 2) for size in sizes])

    def test_wrong_element_of_every_collective_is_detected(self):
        for (name, make), (collective, wrong) in itertools.product(self.drivers(), (("allreduce", 2), ("reduce_scatter", 1), ("all_gather", 2), ("both", 3))):
            with self.subTest(name, collective=collective):
                options = ["--bytes", 4000, "--iterations", 2, "--spoil-rank", 1, "--collective", collective]
                output = self.without_crash(lambda m=make, o=options: m().run(Loopback(private=False), 2, self.folder, o))
                self.assertEqual(output["results"][0]["wrong"], 2 * wrong)  # in the first and in the last operation

    def test_bad_collectives_are_reported(self):
        driver = peers.SluiceLibrary(SLUICE, PROGRAMS, 1, "off")
        for options, expected in ((["--bytes", 4004, "--collective", "both"], "a float for each of 2 ranks"), (["--bytes", 8, "--collective", "sort"], "sort"),
                                  (["--bytes", 8, "--interface", "eth99"], "eth99")):
            with self.subTest(options), self.assertRaisesRegex(peers.PeerError, expected):
                driver.run(Loopback(private=False), 2, self.folder, options)

    def test_sums_are_correct(self):
        sizes = [4, 40004, 262144]
        for name in NAMES:
            for ranks in (2, 3):
                with self.subTest(name, ranks=ranks):
                    results = self.without_crash(lambda n=name, r=ranks: peers.peer(n, PROGRAMS).measure(Loopback(private=False), r, sizes, 3, 1, self.folder))
                    self.assertEqual([(result["bytes"], result["wrong"]) for result in results], [(size, 0) for size in sizes])
                    for result in results:
                        self.assertEqual(len(result["operation_seconds"]), 3)
                        self.assertEqual(len(result["cpu_seconds"]), ranks)
                        # The total of the slowest rank is at most the sum of the slowest times of the operations.
                        self.assertLessEqual(result["loop_seconds"], sum(result["operation_seconds"]) * 1.000001)
                        self.assertGreater(result["loop_seconds"], 0)

    def test_wrong_element_is_detected(self):
        trace = self.folder / "trace"
        trace.write_text("0 4000\n", encoding="ascii")
        for name in NAMES:
            for workload in (["--bytes", 4000], ["--trace", trace]):
                with self.subTest(name, workload=workload[0]):
                    options = [*workload, "--iterations", 2, "--spoil-rank", 1]
                    output = self.without_crash(lambda n=name, o=options: peers.peer(n, PROGRAMS).run(Loopback(private=False), 2, self.folder, o))
                    # One element in the first and in the last operation, at both ranks.
                    self.assertEqual([result["wrong"] for result in output["results"]], [4])

    def test_trace_is_replayed_in_time(self):
        trace = self.folder / "trace"
        trace.write_text("# ready_us bytes\n0 4096\n\n1000 65536\n30000 400\n", encoding="ascii")
        for name in NAMES:
            with self.subTest(name):
                result = self.without_crash(lambda n=name: peers.peer(n, PROGRAMS).replay(Loopback(private=False), 2, trace, 2, 1, self.folder))
                self.assertEqual((result["bytes"], result["operations"], result["wrong"]), (4096 + 65536 + 400, 3, 0))
                self.assertEqual(len(result["operation_seconds"]), 2)
                for whole, operating in zip(result["operation_seconds"], result["allreduce_seconds"]):
                    self.assertGreaterEqual(whole, 0.03)  # the last bucket is ready then
                    self.assertGreater(whole, operating)
                    self.assertGreater(operating, 0)

    def test_bad_options_are_reported(self):
        for name in one_of_each_library():
            peer = peers.peer(name, PROGRAMS)
            more = ["--rank", 0, "--ranks", 1, "--store", self.folder, "--address", "127.0.0.1"] if peer.library == "gloo" else []
            for options, expected in ((["--bytes", "6"], "6"), (["--bytes", "1X"], "1X"), ([], "--trace"), (["--bytes", "4", "--trace", "x"], "--trace"),
                                      (["--trace", self.folder / "none"], "none"), (["--bytes", "4", "--iterations", "0"], "iterations")):
                with self.subTest(name, options=options):
                    done = subprocess.run([str(argument) for argument in [peer.program, *more, *options]], capture_output=True, text=True, timeout=60, check=False)
                    self.assertEqual(done.returncode, 64, done.stderr)
                    self.assertIn(expected, done.stderr)

    def compare(self, *options):
        """Runs compare.py. Returns its output and its JSON."""
        out = self.folder / "out.json"
        command = [sys.executable, "-B", ROOT / "bench/peers/compare.py", "--loopback", "--sluice", SLUICE, "--peers", PROGRAMS, "--entries",
                 ",".join(one_of_each_library()), "--workers", 2, "--rounds", 2, "--iterations", 2, "--json", out, *options]
        done = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        output = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual(output["failures"], [])
        return done.stdout, output

    def test_compare_measures_all_entries(self):
        text, output = self.compare("--reducers", "1,2", "--sizes", "4K,64K")
        self.assertEqual({"host", "kernel", "cpu", "nic", "congestion_control", "revision"} - set(output["machine"]), set())
        entries = ["sluice, 1 reducer", "sluice, 2 reducers", *one_of_each_library()]
        measured = [entry for entry in entries if {"workers": 2, "entry": entry, "rounds": 2} not in output["crashes"]]
        self.assertEqual([(row["bytes"], row["entry"]) for row in output["results"]], [(size, entry) for size in (4096, 65536) for entry in measured])
        for row in output["results"]:
            rounds = 2 - row["crashes"]
            self.assertEqual((row["rounds"], row["runs"], row["wrong"]), (rounds, 2 * rounds, 0))
            self.assertFalse(row["crashes"] and row["entry"].startswith("sluice"), row)
            self.assertLessEqual(row["median_seconds"], row["p99_seconds"])
            self.assertEqual(text.count(f"  {row['entry']} "), 2)

    def test_compare_replays_a_trace_with_all_entries(self):
        trace = self.folder / "trace"
        trace.write_text("0 40000\n2000 400\n", encoding="ascii")
        _, output = self.compare("--reducers", 1, "--trace", trace)
        measured = [entry for entry in ["sluice, 1 reducer", *one_of_each_library()] if {"workers": 2, "entry": entry, "rounds": 2} not in output["crashes"]]
        self.assertIn("sluice, 1 reducer", measured)
        self.assertEqual([(row["entry"], row["bytes"], row["runs"] + 2 * row["crashes"]) for row in output["results"]], [(entry, 40400, 4) for entry in measured])
        for row in output["results"]:
            self.assertGreaterEqual(min(min(seconds) for seconds in row["operation_seconds"]), 0.002)


    def test_one_host_with_several_ranks(self):
        output = self.hosts("--hosts", 1, "--ranks-per-host", "2,3", "--sizes", "12K,96K", "--entries", ",".join(one_of_each_library()))
        for row in output["results"]:
            self.assertEqual((row["runs"], row["wrong"], row["bound"]), (2, 0, None), row)
        self.assertEqual(len([row for row in output["results"] if row["sharing"] == "auto"]), 2 * 4 * 2)

    def test_operations_beside_computing_threads(self):
        output = self.hosts("--hosts", 1, "--ranks-per-host", 2, "--size", "64K", "--collectives", "allreduce", "--entries", ",".join(one_of_each_library()), "--computing", 0.5)
        for row in output["results"]:
            self.assertEqual((row["wrong"], row["runs"] >= 2), (0, True), row)
            self.assertLess(row["loss"], 1, row)  # the threads came on
            for figure in "period_seconds", "sums", "sums_beside", "median_seconds_beside":
                self.assertGreater(row[figure], 0, row)


@needs("network-namespaces")
class PeersInTestNetwork(Peers):
    def test_hosts_send_once_and_flat_ranks_each(self):
        output = self.hosts("--hosts", 3, "--ranks-per-host", 2, "--reducers", "3", "--size", "3M", "--rate", "400mbit", "--collectives", "allreduce,reduce_scatter",
                            "--entries", ",".join(name for name in one_of_each_library() if not name.startswith("mpich")))
        sent = {(row["collective"], row["sharing"]): row["sent"] for row in output["results"] if row["sharing"]}
        for collective in ("allreduce", "reduce_scatter"):
            self.assertAlmostEqual(sent[collective, "auto"], 1, delta=0.03)
            self.assertGreater(sent[collective, "off"], 1.5)
        for row in output["results"]:
            self.assertEqual((row["runs"], row["wrong"]), (2, 0), row)
            self.assertGreater(row["sent"], 0.6, row)

    def test_sums_are_correct(self):
        with TestNetwork(["w0", "w1", "ctl"], "0") as network:
            for name in NAMES:
                with self.subTest(name):
                    results = self.without_crash(lambda n=name: peers.peer(n, PROGRAMS).measure(network, 2, [100_000], 2, 1, self.folder))
                    self.assertEqual([result["wrong"] for result in results], [0])

    def test_shared_memory_is_detected(self):
        for name in one_of_each_library():
            peer = peers.peer(name, PROGRAMS)
            if peer.library == "openmpi":
                peer.settings["btl"] = "vader,self"
                hosts = Loopback(private=True)
            elif peer.library == "mpich":
                peer.transports = "all"
                hosts = TestNetwork(["w0", "w1", "ctl"], "0")
            else:
                continue  # Gloo has no shared memory transport
            with self.subTest(name), hosts, self.assertRaisesRegex(peers.PeerError, "not all traffic was TCP"):
                self.without_crash(lambda p=peer, h=hosts: p.measure(h, 2, [1 << 20], 2, 1, self.folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--programs", required=True, help="folder of the drivers")
    parser.add_argument("--built", required=True, help="libraries whose drivers were built: openmpi,mpich,gloo")
    arguments, rest = parser.parse_known_args()
    PROGRAMS, SLUICE = arguments.programs, arguments.sluice
    NAMES = [name for name in peers.PEERS if peers.peer(name, PROGRAMS).library in arguments.built.split(",")]
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
