"""Several network devices: two hosts, connected by two links, in private network namespaces. Exit status 77 if namespaces cannot be created.

Rank 1 runs on another host than rank 0 and the reducers, so the counters of the links show which device was used."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nccl_player
from nccl_player import PlayerTest
from sluice_process import until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/test_network"))

from capabilities import enter_namespaces, require  # noqa: E402: sluice_process sets its path
from test_network import with_private_sysfs  # noqa: E402

INSIDE = "SLUICE_TEST_INSIDE_NAMESPACE"
LINKS = ("sl0", "sl1")
PRIVATE = ["unshare", "--net"]
# Upper bound for an unused link, which carries only neighbor discovery.
IDLE_BYTES = 10_000


def address(link, host):
    return f"10.77.{link}.{1 + host}"


def ip(*words, inside=()):
    subprocess.run([*inside, "ip", *map(str, words)], check=True, capture_output=True, text=True)


class OtherHost:
    """A network namespace, kept by a process that ends with the test."""

    def __init__(self):
        self.process = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo ready; read line"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"
        self.network = f"/proc/{self.process.pid}/ns/net"
        self.inside = ["nsenter", f"--net={self.network}"]
        ip("link", "set", "lo", "up")
        ip("link", "set", "lo", "up", inside=self.inside)
        for number, link in enumerate(LINKS):
            ip("link", "add", link, "type", "veth", "peer", "name", link, "netns", self.process.pid)
            for host, inside in enumerate(((), self.inside)):
                ip("addr", "add", f"{address(number, host)}/24", "dev", link, inside=inside)
                ip("link", "set", link, "up", inside=inside)

    def carried(self):
        """Returns the bytes that each link has carried in both directions."""
        text = subprocess.run([*self.inside, "cat", "/proc/net/dev"], check=True, capture_output=True, text=True).stdout
        fields = {name.strip(): values.split() for name, values in (line.split(":") for line in text.splitlines()[2:])}
        return [int(fields[link][0]) + int(fields[link][8]) for link in LINKS]

    def end(self):
        # Also deletes the other ends. The kernel would delete the links of an ended namespace only later.
        for link in LINKS:
            ip("link", "del", link)
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Devices(PlayerTest):
    def setUp(self):
        super().setUp()
        self.host = OtherHost()
        self.addCleanup(self.host.end)
        until("both links carry packets", lambda: all(self.link_is_up(link) for link in LINKS))

    def link_is_up(self, link):
        shown = subprocess.run([*self.host.inside, "ip", "-o", "link", "show", link], check=True, capture_output=True, text=True).stdout
        return "LOWER_UP" in shown

    def start_pool_at(self, where):
        port_file = self.folder / f"port-{len(self.reducers)}"
        self.reducers.append(self.start("reducer", "--insecure", "--listen", f"{where}:0", "--port-file", port_file))
        until("the reducer writes its port file", lambda: port_file.exists() or self.reducers[-1].ended())
        self.addresses.append(f"{where}:{port_file.read_text().strip()}")

    def run_on_device(self, device, scenario, *options):
        """Runs the player and returns the bytes that each link has carried meanwhile."""
        before = self.host.carried()
        self.run_player(scenario, "--ranks", 2, "--rank-network", f"1:{self.host.network}", "--device", device, *options,
                  env={"SLUICE_IFNAME": "=" + ",".join(LINKS)})
        return [after - was for after, was in zip(self.host.carried(), before)]

    def check_only(self, device, carried, at_least):
        self.assertGreater(carried[device], at_least, carried)
        self.assertLess(carried[1 - device], IDLE_BYTES, carried)

    def test_net_and_collnet_offer_the_same_devices(self):
        self.addresses = ["127.0.0.1:1"]
        for interfaces, count in (("=sl0,sl1", 2), ("sl", 2), ("=sl1", 1), ("^lo,sl0", 1)):
            with self.subTest(interfaces):
                lines = self.run_player("capabilities", "--ranks", 1, env={"SLUICE_IFNAME": interfaces})
                self.assertTrue([line for line in lines if re.search(rf"net {count} collnet {count}$", line)], lines)

    def test_an_allreduce_uses_only_its_device(self):
        for device in (0, 1):
            with self.subTest(device=device):
                self.addresses.clear()
                for _ in range(2):
                    self.start_pool_at(address(device, 0))
                self.check_only(device, self.run_on_device(device, "kinds", "--types", "float32,bfloat16"), 1 << 20)
                self.check_only(device, self.run_on_device(device, "in-place", "--types", "float32"), 10 << 20)

    def test_point_to_point_uses_only_its_device(self):
        for device in (0, 1):
            with self.subTest(device=device):
                self.check_only(device, self.run_on_device(device, "net-ring"), 30 << 20)

    def test_heads_on_different_devices(self):
        self.start_pool_at(address(0, 0))
        self.start_pool_at(address(0, 0))
        # All contributions use the link of the reducers. The results of the second head use the link of its own device.
        for carried in self.run_on_device(-1, "heads", "--heads", 2):
            self.assertGreater(carried, 500_000)


if __name__ == "__main__":
    if os.environ.get(INSIDE) != "1":
        enter_namespaces()
        require("network-namespaces")
        os.environ[INSIDE] = "1"
        os.execvp(PRIVATE[0], [*PRIVATE, *with_private_sysfs([sys.executable, "-B", *sys.argv])])
    nccl_player.main()
