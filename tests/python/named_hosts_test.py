"""Two hosts of two ranks without reducers: where the members of each rail meet, whatever the hosts call themselves.

The hosts are network namespaces. Exit code 77 where this process cannot create them."""

import os
import sys

from package_test_bed import ROOT, TwoHostsTest, main, variables

sys.path.insert(0, str(ROOT / "tests/capabilities"))

from capabilities import enter_namespaces, require  # noqa: E402

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


class NamedHosts(TwoHostsTest):
    def setUp(self):
        super().setUp()
        # As Debian and Ubuntu do on the host that has the name.
        self.files = [self.write(f"hosts{index}", f"127.0.0.1 localhost\n{address} worker\n") for index, address in enumerate(("127.0.1.1", "10.11.12.1"))]

    def start_rank(self, host, *arguments):
        return self.start_on_host(host, "worker", self.files[host], ["-c", RANK, *arguments], variables(SLUICE_HOSTS="auto"))

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
