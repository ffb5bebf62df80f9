"""What the plugin offers to NCCL, by what is configured, and what it says about that."""

import re

from playing import Play, main


class Offer(Play):
    def offered(self, version, env, drop=()):
        """(net devices, CollNet devices or -1 when NCCL would not have asked), and the lines."""
        playing = self.begin_play("offer", "--abi", version, "--ranks", 1, "--verbose", env=env, drop=drop)
        self.assertEqual(playing.wait(), 0, playing.text())
        found = re.search(r"net (-?\d+) collnet (-?\d+)$", playing.text(), re.MULTILINE)
        self.assertIsNotNone(found, playing.text())
        return (int(found[1]), int(found[2])), playing.lines()

    def test_nothing_without_reducers(self):
        for version in (5, 8, 10, 11, 12):
            with self.subTest(version=version):
                devices, lines = self.offered(version, {}, drop=["SLUICE_NET"])
                self.assertEqual(devices, (0, -1))
                self.assertEqual(len([line for line in lines if "NET/SLUICE" in line and "SLUICE_REDUCERS" in line]), 1, lines)

    def test_the_net_alone_when_it_is_wanted(self):
        for version in (8, 12):
            self.assertEqual(self.offered(version, {"SLUICE_NET": "always"})[0], (1, 0))

    def test_both_with_reducers(self):
        # They need not be there: nothing on a network decides how many devices there are.
        for version in (8, 12):
            self.assertEqual(self.offered(version, {"SLUICE_REDUCERS": "127.0.0.1:1", "SLUICE_NET": "always"})[0], (1, 1))

    def test_a_wrong_name_is_told_with_the_right_one(self):
        _, lines = self.offered(12, {"SLUICE_REDUCER": "127.0.0.1:1"})
        self.assertEqual(len([line for line in lines if "WARN" in line and re.search(r"SLUICE_REDUCER\b.*SLUICE_REDUCERS", line)]), 1, lines)

    def test_a_wrong_value_is_told_and_not_fatal(self):
        devices, lines = self.offered(12, {"SLUICE_STREAMS": "many", "SLUICE_REDUCERS": "127.0.0.1:1"})
        self.assertEqual(devices, (1, 1))
        self.assertEqual(len([line for line in lines if "WARN" in line and "SLUICE_STREAMS" in line]), 1, lines)

    def test_interfaces_by_nccls_variable_too(self):
        env = {"NCCL_SOCKET_IFNAME": "=lo", "SLUICE_REDUCERS": "127.0.0.1:1", "SLUICE_NET": "always"}
        self.assertEqual(self.offered(12, env, drop=["SLUICE_IFNAME"])[0], (1, 1))

    def test_the_name_that_an_image_asks_for(self):
        _, lines = self.offered(12, {"SLUICE_NET_NAME": "Socket", "SLUICE_REDUCERS": "127.0.0.1:1"})
        self.assertTrue([line for line in lines if "name Socket " in line], lines)


if __name__ == "__main__":
    main()
