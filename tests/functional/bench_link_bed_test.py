"""`sluice bench link` over shaped links: it names the one host whose link is slow. Network namespaces of this test alone; exit 77 where none can be made."""

import json
import subprocess
import sys
from pathlib import Path

import sluice_process
from sluice_process import DEADLINE_S, SluiceTest, environment, until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "netbed"))
from bed import Bed  # noqa: E402
from capabilities import enter_namespaces, require  # noqa: E402

WORKERS, REDUCERS = ["w0", "w1", "w2"], ["r0", "r1"]


class LinkBed(SluiceTest):
    def start_in(self, bed, host, *words):
        process = bed.start(host, [sluice_process.PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def measure(self, slow, reducer_rate="300mbit"):
        """The result with one host, or none, at a tenth of a worker's rate; and the reducers' addresses by host."""
        with Bed(WORKERS + REDUCERS, lambda host: "20mbit" if host == slow else "200mbit" if host[0] == "w" else reducer_rate) as bed:
            pool = {}
            servers = []
            for host in REDUCERS:
                port_file = self.folder / f"{slow}-{host}"
                servers.append(self.start_in(bed, host, "reducer", "--insecure", "--listen", f"{bed.address(host)}:0", "--port-file", port_file))
                until("a reducer says its port", port_file.exists)
                pool[host] = f"{bed.address(host)}:{port_file.read_text().strip()}"
            out = self.folder / f"{slow}.json"
            arguments = ("bench", "link", "--size", "1M", "-n", "2", "--fail-slow", "--workers", len(WORKERS), "--session", "5" * 32,
                         "--connect", ",".join(pool.values()), "--json", out)
            ranks = [self.start_in(bed, host, *arguments, "--rank", rank) for rank, host in enumerate(WORKERS)]
            codes = [rank.wait(DEADLINE_S) for rank in ranks]
            for server in servers:
                server.kill()
                server.wait()
        self.assertEqual(codes, [2 if slow else 0] * len(WORKERS))
        return json.loads(out.read_text()), pool

    def test_none_is_named_where_none_is_slow(self):
        result, _ = self.measure(None)
        self.assertEqual((result["slow"], result["bottleneck"]), ([], "workers"))
        nic = result["machine"]["nic"]
        self.assertEqual((nic["name"], nic["driver"], nic["mtu"]), ("eth0", "veth", 1500))

    def test_a_narrow_pool_is_named(self):
        result, _ = self.measure(None, "100mbit")
        self.assertEqual((result["slow"], result["bottleneck"]), ([], "pool"))
        self.assertLess(result["coverage"], 0.5)  # 200 Mb/s for 600

    def test_the_slow_worker_is_named(self):
        result, _ = self.measure("w1")
        self.assertEqual([(entry["rank"], entry["reducer"]) for entry in result["slow"]], [(1, None)])

    def test_the_slow_reducer_is_named(self):
        result, pool = self.measure("r1")
        self.assertEqual([(entry["rank"], entry["reducer"]) for entry in result["slow"]], [(None, pool["r1"])])


if __name__ == "__main__":
    enter_namespaces()
    require("network-namespaces")
    sluice_process.main()
