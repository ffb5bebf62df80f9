"""Two hosts of two ranks without reducers: where the members of each rail meet, whatever the hosts call themselves.

The hosts are network namespaces. Exit code 77 where this process cannot create them."""

import os
import subprocess
import sys

from package_test_bed import ROOT, PackageTest, kill, main, variables

sys.path.insert(0, str(ROOT / "tests/capabilities"))

from capabilities import enter_namespaces, require  # noqa: E402

# Runs a command with another /etc/hosts: HOSTS COMMAND...
WITH_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'
# Sums over all ranks, and prints what the rank has sent meanwhile. Arguments: RENDEZVOUS SESSION RANK.
RANK = """import sys, time, numpy, sluice
rendezvous, session_id, rank = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
with sluice.Session("none", session_id=session_id, rank=rank, ranks=4, rendezvous=rendezvous, join_timeout_ms=20_000) as session:
    joined, x = session.stats().payload_bytes_out, numpy.full(100_000, rank + 1, numpy.float32)
    session.allreduce(x)
    assert (x == 10).all(), x
    deadline = time.monotonic() + 10
    while session.stats().payload_bytes_out == joined and time.monotonic() < deadline: pass
    print(session.stats().payload_bytes_out - joined)
"""
BYTES = 400_000
PORT = 7470  # of a network namespace


def ip(*arguments, host=None):
    subprocess.run(["ip", *(["-n", host] if host else []), *arguments], check=True, timeout=10)


class NamedHosts(PackageTest):
    def setUp(self):
        super().setUp()
        self.hosts = [f"sluice-named-{os.getpid()}-{index}" for index in range(2)]
        # As Debian and Ubuntu do on the host that has the name.
        self.files = [self.write(f"hosts{index}", f"127.0.0.1 localhost\n{address} worker\n") for index, address in enumerate(("127.0.1.1", "10.11.12.1"))]
        for host in self.hosts:
            ip("netns", "add", host)
            self.addCleanup(ip, "netns", "del", host)
            ip("link", "set", "lo", "up", host=host)
        ip("link", "add", "eth0", "netns", self.hosts[0], "type", "veth", "peer", "name", "eth0", "netns", self.hosts[1])
        for index, host in enumerate(self.hosts):
            ip("address", "add", f"10.11.12.{index + 1}/24", "dev", "eth0", host=host)
            ip("address", "add", f"fe80::{index + 1}/64", "dev", "eth0", "nodad", host=host)
            ip("link", "set", "eth0", "up", host=host)

    def start_rank(self, host, *arguments):
        process = subprocess.Popen(["nsenter", f"--net=/run/netns/{self.hosts[host]}", "unshare", "--mount", "sh", "-c", WITH_HOSTS, self.files[host],
                                    sys.executable, "-B", "-c", RANK, *map(str, arguments)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables(SLUICE_HOSTS="auto"))
        self.addCleanup(kill, process)
        return process

    def test_each_host_sends_its_sum_once(self):
        for address in ("worker", "10.11.12.1", "fe80::1%eth0"):
            with self.subTest(address):
                session = os.urandom(16).hex()
                rendezvous = f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"
                ranks = [self.start_rank(rank // 2, rendezvous, session, rank) for rank in range(4)]
                outputs = [rank.communicate(timeout=60) for rank in ranks]
                self.assertEqual([rank.returncode for rank in ranks], [0] * 4, outputs)
                sent = [int(out) for out, _ in outputs]
                for host in (sent[:2], sent[2:]):
                    self.assertTrue(0 < sum(host) <= BYTES, sent)
                # Ranks tell each other their addresses without interfaces, so a co-located reducer at a link-local one gets no share.
                warnings = [line for _, log in outputs for line in log.splitlines() if "gets no share" not in line or ":" not in address]
                self.assertEqual(len(warnings), 1, warnings)  # of the network namespaces
                self.assertIn("count as different hosts", warnings[0])


if __name__ == "__main__":
    enter_namespaces()
    require("network-namespaces")
    main()
