"""Hosts on a switch, as network namespaces of this machine: each with a link of a given rate in both directions. Needs root, ip and tc.

    with Bed(["w0", "w1", "r0"], "1gbit") as bed:
        bed.run("w0", ["ping", "-c1", bed.address("w1")])

Names and the switch are this process's own, and go with the Bed. Nothing of the machine's own network takes part."""

import os
import subprocess


def command(*words, check=True):
    return subprocess.run([str(w) for w in words], check=check, capture_output=True, text=True)


class Bed:
    BURST_BYTES = 128 * 1024  # of the limiter: 1 ms at 1 Gb/s
    QUEUE_MS = 10

    def __init__(self, hosts, rate, congestion_control="cubic"):
        """`rate` in tc's words, "0" for no limit; or a function of the host's name."""
        self.hosts = list(hosts)
        self.rate = rate if callable(rate) else lambda host: rate
        self.congestion_control = congestion_control
        self.prefix = f"sluice{os.getpid()}"
        self.switch = f"{self.prefix}-switch"

    def namespace(self, host):
        return f"{self.prefix}-{host}"

    def address(self, host):
        return f"10.99.0.{1 + self.hosts.index(host)}"

    def __enter__(self):
        try:
            command("ip", "netns", "add", self.switch)
            command("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
            command("ip", "-n", self.switch, "link", "set", "br0", "up")
            for number, host in enumerate(self.hosts):
                self._add(number, host)
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise SystemExit(f"the bed does not come up: {' '.join(error.cmd)}: {error.stderr.strip()}") from error
        return self

    def _add(self, number, host):
        name, port = self.namespace(host), f"p{number}"
        command("ip", "netns", "add", name)
        command("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self.switch)
        command("ip", "-n", self.switch, "link", "set", port, "master", "br0", "up")
        command("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        command("ip", "-n", name, "link", "set", "lo", "up")
        command("ip", "-n", name, "link", "set", "eth0", "up")
        command("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={self.congestion_control}", check=False)
        rate = self.rate(host)
        if rate != "0":
            for where, device in ((name, "eth0"), (self.switch, port)):
                command("tc", "-n", where, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", self.BURST_BYTES,
                        "latency", f"{self.QUEUE_MS}ms")

    def __exit__(self, *_):
        for name in [self.namespace(host) for host in self.hosts] + [self.switch]:
            command("ip", "netns", "del", name, check=False)

    def words(self, host, words):
        return ["ip", "netns", "exec", self.namespace(host), *map(str, words)]

    def start(self, host, words, **how):
        return subprocess.Popen(self.words(host, words), **how)

    def run(self, host, words, **how):
        return subprocess.run(self.words(host, words), check=True, capture_output=True, text=True, **how)
