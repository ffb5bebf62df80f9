"""The transport of point-to-point streams: TCP on a host without a device. tests/rdma runs these tests in a guest with a device, where RDMA is required."""

import os
import unittest

from nccl_player import PlayerTest, main

OVER_RDMA = os.environ.get("SLUICE_TRANSPORT") == "rdma"
over_rdma = unittest.skipUnless(OVER_RDMA, "left out: rdma/sessions runs it, over RDMA")


class NetTransport(PlayerTest):
    def transports(self, lines):
        """The transport that each side logs for its streams."""
        return [line[line.index("streams over "):] for line in lines if " INFO NET/SLUICE: " in line and "streams over " in line]

    def test_a_rank_is_killed(self):
        for victim in (0, 1):
            lines = self.run_player("net-killed", "--ranks", 3, "--killed-rank", victim)
            # Two failed receives are tested 10,001 times each: the cause, one line for the first failure, one at the close.
            receiver = [line.split("NET/SLUICE: ")[1] for line in lines if f"rank {(victim + 1) % 3}: " in line and "NET/SLUICE: receive from " in line]
            self.assertEqual(len(receiver), 3, lines)
            self.assertRegex(receiver[0], "connection lost: |closed the connection")
            self.assertRegex(receiver[1], ": test failed: .*; repetitions are counted, not logged$")
            self.assertRegex(receiver[2], ": closed; 20001 repeated errors were not logged$")
            self.assertLessEqual(len([line for line in lines if "NET/SLUICE: send to " in line]), 3, lines)

    def test_transport_tcp_logs_nothing(self):
        lines = self.run_player("net-close", "--ranks", 2, "--rounds", 1, "--verbose", env={"SLUICE_TRANSPORT": "tcp"})
        self.assertEqual(self.transports(lines), [], lines)

    def test_an_invalid_value_causes_one_warning_and_tcp(self):
        lines = self.run_player("net-close", "--ranks", 2, "--rounds", 1, "--verbose", env={"SLUICE_TRANSPORT": "tpc"})
        warnings = [line for line in lines if " WARN " in line and "SLUICE_TRANSPORT" in line]
        self.assertEqual(len(warnings), 2, lines)
        self.assertEqual(self.transports(lines), [], lines)

    def test_transport_rdma_without_a_device_fails_with_the_reason(self):
        lines = self.run_player("net-close", "--ranks", 2, env={"SLUICE_TRANSPORT": "rdma", "SLUICE_IB_HCA": "=none"}, expect=1)
        self.assertTrue([line for line in lines if "NET/SLUICE: listen: variable SLUICE_TRANSPORT is rdma: no RDMA" in line], lines)

    def test_transport_auto_without_a_device_uses_tcp_and_logs_the_reason_once(self):
        lines = self.run_player("net-close", "--ranks", 2, "--rounds", 1, "--verbose", env={"SLUICE_TRANSPORT": "auto", "SLUICE_IB_HCA": "=none"})
        transports = self.transports(lines)
        self.assertEqual(len(transports), 2, lines)
        for transport in transports:
            self.assertRegex(transport, "^streams over TCP: no RDMA", lines)

    @over_rdma
    def test_every_stream_uses_rdma(self):
        lines = self.run_player("net-close", "--ranks", 2, "--rounds", 1, "--verbose")
        # Two links, two ranks, both sides.
        self.assertEqual(self.transports(lines), ["streams over RDMA"] * 8, lines)

    @over_rdma
    def test_a_peer_without_rdma_is_refused_with_the_reason(self):
        lines = self.run_player("net-close", "--ranks", 2, "--rank-env", "1:SLUICE_TRANSPORT=tcp", expect=1)
        self.assertTrue([line for line in lines if "a stream cannot use it: the receiver does not offer RDMA" in line], lines)

    @over_rdma
    def test_a_peer_without_rdma_uses_tcp(self):
        lines = self.run_player("net-close", "--ranks", 2, "--rounds", 1, "--verbose", "--rank-env", "1:SLUICE_TRANSPORT=tcp", env={"SLUICE_TRANSPORT": "auto"})
        transports = self.transports(lines)
        self.assertEqual(sorted(set(transports)), ["streams over TCP: the receiver does not offer RDMA", "streams over TCP: the sender does not offer RDMA"], lines)


if __name__ == "__main__":
    main()
