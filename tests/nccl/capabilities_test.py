"""The devices that the plugin offers to NCCL in each configuration, and what it logs about them."""

import re

from nccl_player import PlayerTest, main


class Capabilities(PlayerTest):
    def offered(self, version, env, drop=()):
        """Returns (net devices, CollNet devices; -1 if NCCL would not ask), and the lines."""
        player = self.start_player("capabilities", "--abi", version, "--ranks", 1, "--verbose", env=env, drop=drop)
        self.assertEqual(player.wait(), 0, player.text())
        found = re.search(r"net (-?\d+) collnet (-?\d+)$", player.text(), re.MULTILINE)
        self.assertIsNotNone(found, player.text())
        return (int(found[1]), int(found[2])), player.lines()

    def test_nothing_without_reducers(self):
        for version in (5, 8, 10, 11, 12):
            with self.subTest(version=version):
                devices, lines = self.offered(version, {}, drop=["SLUICE_NET"])
                self.assertEqual(devices, (0, -1))
                self.assertEqual(len([line for line in lines if "NET/SLUICE" in line and "SLUICE_REDUCERS" in line]), 1, lines)
                version_lines = [line for line in lines if re.search(r"NET/SLUICE: version \d+\.\d+\.\d+, revision \S+$", line)]
                self.assertEqual(len(version_lines), 1, lines)

    def test_only_net_with_sluice_net_always(self):
        for version in (8, 12):
            self.assertEqual(self.offered(version, {"SLUICE_NET": "always"})[0], (1, 0))

    def test_both_with_reducers(self):
        # The reducers need not exist: the number of devices does not depend on the network.
        for version in (8, 12):
            self.assertEqual(self.offered(version, {"SLUICE_REDUCERS": "127.0.0.1:1", "SLUICE_NET": "always"})[0], (1, 1))

    def test_both_without_dedicated_reducers(self):
        for version in (8, 12):
            self.assertEqual(self.offered(version, {"SLUICE_REDUCERS": "none"}, drop=["SLUICE_NET"])[0], (1, 1))
        devices, lines = self.offered(12, {"SLUICE_REDUCERS": "none", "SLUICE_COLOCATED": "off"}, drop=["SLUICE_NET"])
        self.assertEqual(devices, (0, -1))
        self.assertEqual(len([line for line in lines if "unset SLUICE_COLOCATED=off" in line]), 1, lines)

    def test_an_unknown_variable_causes_a_suggestion(self):
        _, lines = self.offered(12, {"SLUICE_REDUCER": "127.0.0.1:1"})
        self.assertEqual(len([line for line in lines if "WARN" in line and re.search(r"SLUICE_REDUCER\b.*SLUICE_REDUCERS", line)]), 1, lines)

    def test_an_invalid_value_causes_a_warning_only(self):
        devices, lines = self.offered(12, {"SLUICE_STREAMS": "many", "SLUICE_REDUCERS": "127.0.0.1:1"})
        self.assertEqual(devices, (1, 1))
        self.assertEqual(len([line for line in lines if "WARN" in line and "SLUICE_STREAMS" in line]), 1, lines)

    def test_interfaces_from_nccls_variable(self):
        env = {"NCCL_SOCKET_IFNAME": "=lo", "SLUICE_REDUCERS": "127.0.0.1:1", "SLUICE_NET": "always"}
        self.assertEqual(self.offered(12, env, drop=["SLUICE_IFNAME"])[0], (1, 1))

    def test_the_configured_name(self):
        _, lines = self.offered(12, {"SLUICE_NET_NAME": "Socket", "SLUICE_REDUCERS": "127.0.0.1:1"})
        self.assertTrue([line for line in lines if "name Socket " in line], lines)


if __name__ == "__main__":
    main()
