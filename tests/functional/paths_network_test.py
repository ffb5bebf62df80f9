"""Tests what a pool says about a network that loses packets at one reducer, or drops large packets silently.

Exit code 77 where this process cannot create network namespaces."""

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path

import sluice_process
from sluice_process import DEADLINE_S, SluiceTest, environment, until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "test_network"))
from capabilities import enter_namespaces, require  # noqa: E402
from test_network import TestNetwork, in_namespace, run_command  # noqa: E402

WORKERS, REDUCERS = ["w0", "w1"], ["r0", "r1"]


class Paths(SluiceTest):
    @contextlib.contextmanager
    def pool(self, **options):
        """Runs reducers in a network. `addresses` has their addresses."""
        with TestNetwork([*WORKERS, *REDUCERS], "0", **options) as self.network, contextlib.ExitStack() as self.processes:
            self.addresses = {}
            for host in REDUCERS:
                port_file = self.folder / f"{host}.port"
                self.start_at(host, "reducer", "--insecure", "--listen", f"{self.network.address(host)}:0", "--port-file", port_file, "--http-listen",
                              f"{self.network.address(host)}:9470")
                until(f"{host} writes its port", port_file.exists)
                self.addresses[host] = f"{self.network.address(host)}:{port_file.read_text().strip()}"
            yield

    def start_at(self, host, *arguments):
        """The log of the process is FOLDER/HOST.log."""
        log = self.processes.enter_context(open(self.folder / f"{host}.log", "w", encoding="utf-8"))
        process = self.network.start(host, [sluice_process.PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=log, env=environment())
        self.processes.callback(process.wait)
        self.processes.callback(process.kill)

    def start_job(self):
        for rank, host in enumerate(WORKERS):
            self.start_at(host, "bench", "soak", "--connect", ",".join(self.addresses.values()), "--workers", len(WORKERS), "--rank", rank, "--session", "0badcafe" * 4,
                          "--duration", "10m", "--max-size", "4M")

    def log_of(self, host):
        return (self.folder / f"{host}.log").read_text(encoding="utf-8")

    def at(self, host, *arguments):
        return self.network.run(host, [sluice_process.PROGRAM, *map(str, arguments)], timeout=DEADLINE_S, env=environment()).stdout

    # Asked from its own host: an answer is too large for a path that drops large packets.
    def status(self, reducer):
        return json.loads(self.at(reducer, "status", "--reducers", self.addresses[reducer]))[0]["status"]

    def metrics(self, reducer):
        text = self.network.run(reducer, [sys.executable, "-c", "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())",
                                       f"http://{self.network.address(reducer)}:9470/metrics"]).stdout
        return {name: float(value) for name, value in re.findall(r"^(sluice_\S+) (\S+)$", text, re.MULTILINE)}

    def test_losses_name_the_reducer(self):
        with self.pool():
            # A queue of a few packets at both ends of the reducer's link.
            for namespace, device in ((self.network.namespace("r1"), "eth0"), (self.network.switch, f"p{self.network.hosts.index('r1')}")):
                run_command(*in_namespace(namespace, "tc"), "qdisc", "replace", "dev", device, "root", "tbf", "rate", "200mbit", "burst", 20000, "limit", 26000)
            self.start_job()
            named = rf"reducer {self.addresses['r1']}: [\d.]+ % of \d+ packets were lost within \d+ s"
            for worker in WORKERS:
                until(f"{worker} names the reducer", lambda w=worker: re.search(named, self.log_of(w)))
            until("the reducer logs it", lambda: re.search(r"packets were lost within \d+ s, most between this reducer and rank [01] \(10\.", self.log_of("r1")))

            self.assertRegex(self.at("w0", "top", "--once", "--reducers", ",".join(self.addresses.values())),
                             rf"LOST: [\d.]+% of packets between rank [01] and {self.addresses['r1']}")
            session, = self.status("r1")["session_list"]
            self.assertEqual(sorted(entry["rank"] for entry in session["losses"]), [0, 1])
            shares = {}
            for reducer in REDUCERS:
                metrics = self.metrics(reducer)
                for direction in ("send", "receive"):
                    packets, lost = (metrics[f'sluice_{name}_total{{direction="{direction}"}}'] for name in ("data_packets", "lost_packets"))
                    self.assertGreater(packets, 0)
                    shares[reducer, direction] = lost / packets
                self.assertEqual(metrics["sluice_stalled_ranks"], 0)
            for direction in ("send", "receive"):
                self.assertGreater(shares["r1", direction], 2 * shares["r0", direction], shares)

    def test_black_hole_of_large_packets_is_named(self):
        """Hosts with an MTU of 9000 on a switch whose port to one reducer drops what exceeds 1400 bytes, without an ICMP message."""
        with self.pool(mtu=9000):
            run_command(*in_namespace(self.network.switch, "ip"), "link", "set", f"p{self.network.hosts.index('r1')}", "mtu", 1400)
            for host in self.network.hosts:  # a bridge lets packets pass that the device would segment
                run_command(*in_namespace(self.network.namespace(host), "ip"), "link", "set", "dev", "eth0", "gso_max_segs", 1)
            self.start_job()
            for worker in WORKERS:
                until(f"{worker} names the reducer", lambda w=worker: re.search(
                    rf"no byte acknowledged by reducer {self.addresses['r1']} for [5-9] s, but its heartbeats arrive: check the MTU of the path "
                    r"\(this host sends packets of up to 9000 bytes\)", self.log_of(w)))
            until("the reducer names a rank", lambda: re.search(r"rank [01] \(10\.[\d.:]+\) sends data that does not arrive here, for \d+ s", self.log_of("r1")))
            session, = self.status("r1")["session_list"]
            self.assertEqual(sorted(entry["rank"] for entry in session["stalls"]), [0, 1])
            self.assertGreaterEqual(min(entry["stalled_ms"] for entry in session["stalls"]), 5000)
            self.assertEqual(self.metrics("r1")["sluice_stalled_ranks"], 2)
            self.assertEqual(self.metrics("r0")["sluice_stalled_ranks"], 0)
            self.assertRegex(self.at("r1", "top", "--once", "--reducers", self.addresses["r1"]),
                             rf"STALLED: no byte acknowledged between rank [01] and {self.addresses['r1']} for [\d.]+ s: check the MTU")
            # Each stall is logged once.
            self.assertEqual(self.log_of("w0").count("no byte acknowledged"), 1)

    def test_a_reducer_without_a_key_is_drained_by_its_host_only(self):
        with self.pool():
            with self.assertRaises(subprocess.CalledProcessError) as refused:
                self.at("w0", "drain", self.addresses["r0"])
            self.assertEqual((refused.exception.returncode, refused.exception.stdout), (69, ""))
            self.assertIn("reducer has no pool key (--key-file), so it can only be drained on its host", refused.exception.stderr)
            self.assertNotIn("a drain needs", refused.exception.stderr)
            self.assertFalse(self.status("r0")["draining"])
            self.assertRegex(self.at("r0", "drain", self.addresses["r0"]), r"ended after \d")


if __name__ == "__main__":
    enter_namespaces()
    require("network-namespaces")
    sluice_process.main()
