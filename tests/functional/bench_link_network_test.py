"""Tests `sluice bench link` over rate-limited links: it reports the host whose link is slow.

Exit code 77 where this process cannot create network namespaces."""

import json
import subprocess
import sys
from pathlib import Path

import sluice_process
from sluice_process import DEADLINE_S, SluiceTest, environment, until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "test_network"))
from capabilities import enter_namespaces, require  # noqa: E402
from test_network import TestNetwork  # noqa: E402

WORKERS, REDUCERS = ["w0", "w1", "w2"], ["r0", "r1"]


class LinkNetwork(SluiceTest):
    def start_at(self, network, host, *arguments):
        process = network.start(host, [sluice_process.PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def measure(self, slow, reducer_rate="300mbit"):
        """Runs the benchmark with the link of host `slow` (None: no host) at a tenth of a worker's rate. Returns the result and the
        addresses of the reducers by host."""
        with TestNetwork(WORKERS + REDUCERS, lambda host: "20mbit" if host == slow else "200mbit" if host[0] == "w" else reducer_rate) as network:
            pool = {}
            servers = []
            for host in REDUCERS:
                port_file = self.folder / f"{slow}-{host}"
                servers.append(self.start_at(network, host, "reducer", "--insecure", "--listen", f"{network.address(host)}:0", "--port-file", port_file))
                until("a reducer writes its port file", port_file.exists)
                pool[host] = f"{network.address(host)}:{port_file.read_text().strip()}"
            out = self.folder / f"{slow}.json"
            arguments = ("bench", "link", "--size", "1M", "-n", "3", "--fail-slow", "--workers", len(WORKERS), "--session", "5" * 32,
                         "--connect", ",".join(pool.values()), "--json", out)
            ranks = [self.start_at(network, host, *arguments, "--rank", rank) for rank, host in enumerate(WORKERS)]
            codes = [rank.wait(DEADLINE_S) for rank in ranks]
            for server in servers:
                server.kill()
                server.wait()
        self.assertEqual(codes, [2 if slow else 0] * len(WORKERS))
        return json.loads(out.read_text()), pool

    def test_equal_links_report_no_slow_host(self):
        result, _ = self.measure(None)
        self.assertEqual((result["slow"], result["bottleneck"]), ([], "workers"))
        nic = result["machine"]["nic"]
        self.assertEqual((nic["name"], nic["driver"], nic["mtu"]), ("eth0", "veth", 1500))

    def test_narrow_pool_is_the_bottleneck(self):
        result, _ = self.measure(None, "100mbit")
        self.assertEqual((result["slow"], result["bottleneck"]), ([], "pool"))
        self.assertLess(result["coverage"], 0.5)  # 200 Mb/s for 600

    def test_slow_worker_is_reported(self):
        result, _ = self.measure("w1")
        self.assertEqual([(entry["rank"], entry["reducer"]) for entry in result["slow"]], [(1, None)])

    def test_slow_reducer_is_reported(self):
        result, pool = self.measure("r1")
        self.assertEqual([(entry["rank"], entry["reducer"]) for entry in result["slow"]], [(None, pool["r1"])])


if __name__ == "__main__":
    enter_namespaces()
    require("network-namespaces")
    sluice_process.main()
