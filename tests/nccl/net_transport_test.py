"""What point-to-point streams go over. Without a device that is TCP; tests/rdma plays it again in a guest that has one, over RDMA alone."""

import os
import unittest

from playing import Play, main

OVER_RDMA = os.environ.get("SLUICE_TRANSPORT") == "rdma"
over_rdma = unittest.skipUnless(OVER_RDMA, "left out: rdma/sessions runs it, over RDMA")


class NetTransport(Play):
    def ways(self, lines):
        """What each end says that its streams go over."""
        return [line[line.index("streams over "):] for line in lines if " INFO NET/SLUICE: " in line and "streams over " in line]

    def test_a_rank_is_killed(self):
        for dies in (0, 1):
            self.play("net-killed", "--ranks", 3, "--dies", dies)

    def test_who_wants_tcp_says_nothing(self):
        lines = self.play("net-close", "--ranks", 2, "--rounds", 1, "--verbose", env={"SLUICE_TRANSPORT": "tcp"})
        self.assertEqual(self.ways(lines), [], lines)

    def test_a_value_that_cannot_be_read_is_one_warning_and_tcp(self):
        lines = self.play("net-close", "--ranks", 2, "--rounds", 1, "--verbose", env={"SLUICE_TRANSPORT": "tpc"})
        told = [line for line in lines if " WARN " in line and "SLUICE_TRANSPORT" in line]
        self.assertEqual(len(told), 2, lines)
        self.assertEqual(self.ways(lines), [], lines)

    def test_whose_device_may_not_be_used_is_refused_by_name(self):
        lines = self.play("net-close", "--ranks", 2, env={"SLUICE_TRANSPORT": "rdma", "SLUICE_IB_HCA": "=none"}, expect=1)
        self.assertTrue([line for line in lines if "NET/SLUICE: listen: variable SLUICE_TRANSPORT is rdma: no RDMA" in line], lines)

    def test_whose_device_may_not_be_used_goes_over_tcp_and_says_why_once(self):
        lines = self.play("net-close", "--ranks", 2, "--rounds", 1, "--verbose", env={"SLUICE_TRANSPORT": "auto", "SLUICE_IB_HCA": "=none"})
        ways = self.ways(lines)
        self.assertEqual(len(ways), 2, lines)
        for way in ways:
            self.assertRegex(way, "^streams over TCP: no RDMA", lines)

    @over_rdma
    def test_every_stream_goes_over_rdma(self):
        lines = self.play("net-close", "--ranks", 2, "--rounds", 1, "--verbose")
        # Two links, two ranks, both ends.
        self.assertEqual(self.ways(lines), ["streams over RDMA"] * 8, lines)

    @over_rdma
    def test_an_end_that_offers_none_is_refused_by_name(self):
        lines = self.play("net-close", "--ranks", 2, "--rank-env", "1:SLUICE_TRANSPORT=tcp", expect=1)
        self.assertTrue([line for line in lines if "no RDMA for a stream, and nothing else is allowed: the receiver offers none" in line], lines)

    @over_rdma
    def test_an_end_that_offers_none_is_met_over_tcp(self):
        lines = self.play("net-close", "--ranks", 2, "--rounds", 1, "--verbose", "--rank-env", "1:SLUICE_TRANSPORT=tcp", env={"SLUICE_TRANSPORT": "auto"})
        ways = self.ways(lines)
        self.assertEqual(sorted(set(ways)), ["streams over TCP: the receiver offers no RDMA", "streams over TCP: the sender offers no RDMA"], lines)


if __name__ == "__main__":
    main()
