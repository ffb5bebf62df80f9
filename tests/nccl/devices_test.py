"""Several network devices: two hosts that are joined by two links, as network namespaces of this test alone. Exit 77 where none can be made.

Rank 1 is on the other host than rank 0 and the reducers, so the links' own counters tell which device was used."""

import os
import re
import subprocess
import sys
from pathlib import Path

import playing
from playing import Play
from sluice_process import until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/netbed"))

from bed import own_mounts  # noqa: E402
from capabilities import enter_namespaces, require  # noqa: E402: sluice_process says where it is

INSIDE = "SLUICE_TEST_INSIDE_NAMESPACE"
LINKS = ("sl0", "sl1")
PRIVATE = ["unshare", "--net"]
# What a link without a device in use carries: neighbour discovery, and nothing of ours.
IDLE_BYTES = 10_000


def address(link, host):
    return f"10.77.{link}.{1 + host}"


def ip(*words, inside=()):
    subprocess.run([*inside, "ip", *map(str, words)], check=True, capture_output=True, text=True)


class OtherHost:
    """A network namespace, held by a process that ends with this one."""

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
        """Bytes over each link so far, both ways."""
        text = subprocess.run([*self.inside, "cat", "/proc/net/dev"], check=True, capture_output=True, text=True).stdout
        fields = {name.strip(): values.split() for name, values in (line.split(":") for line in text.splitlines()[2:])}
        return [int(fields[link][0]) + int(fields[link][8]) for link in LINKS]

    def end(self):
        # Their other ends go with them; the kernel takes its time with those of a namespace that has ended.
        for link in LINKS:
            ip("link", "del", link)
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Devices(Play):
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
        until("a reducer says its port", lambda: port_file.exists() or self.reducers[-1].ended())
        self.addresses.append(f"{where}:{port_file.read_text().strip()}")

    def over(self, device, scenario, *options):
        """Plays and returns the bytes that each link has carried meanwhile."""
        before = self.host.carried()
        self.play(scenario, "--ranks", 2, "--rank-network", f"1:{self.host.network}", "--device", device, *options,
                  env={"SLUICE_IFNAME": "=" + ",".join(LINKS)})
        return [after - was for after, was in zip(self.host.carried(), before)]

    def check_only(self, device, carried, at_least):
        self.assertGreater(carried[device], at_least, carried)
        self.assertLess(carried[1 - device], IDLE_BYTES, carried)

    def test_both_are_offered_alike_by_net_and_collnet(self):
        self.addresses = ["127.0.0.1:1"]
        for interfaces, count in (("=sl0,sl1", 2), ("sl", 2), ("=sl1", 1), ("^lo,sl0", 1)):
            with self.subTest(interfaces):
                lines = self.play("offer", "--ranks", 1, env={"SLUICE_IFNAME": interfaces})
                self.assertTrue([line for line in lines if re.search(rf"net {count} collnet {count}$", line)], lines)

    def test_an_allreduce_keeps_to_its_device(self):
        for device in (0, 1):
            with self.subTest(device=device):
                self.addresses.clear()
                for _ in range(2):
                    self.start_pool_at(address(device, 0))
                self.check_only(device, self.over(device, "kinds", "--types", "float32,bfloat16"), 1 << 20)
                self.check_only(device, self.over(device, "in-place", "--types", "int32"), 10 << 20)

    def test_point_to_point_keeps_to_its_device(self):
        for device in (0, 1):
            with self.subTest(device=device):
                self.check_only(device, self.over(device, "net-ring"), 30 << 20)

    def test_heads_on_devices_of_their_own(self):
        self.start_pool_at(address(0, 0))
        self.start_pool_at(address(0, 0))
        # All is sent over the reducers' link; the second head's results come back to its own device's address.
        for carried in self.over(-1, "heads", "--heads", 2):
            self.assertGreater(carried, 500_000)


if __name__ == "__main__":
    if os.environ.get(INSIDE) != "1":
        enter_namespaces()
        require("network-namespaces")
        os.environ[INSIDE] = "1"
        os.execvp(PRIVATE[0], [*PRIVATE, *own_mounts([sys.executable, "-B", *sys.argv])])
    playing.main()
