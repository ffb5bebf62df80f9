"""CollNet over TLS with libsluice_tls.so, which the plugin loads from its own folder. Skipped if the library was not built.

failure_test.py tests the deadlines and losses. Here recovery must repeat the TLS handshake."""

import json
import unittest

from nccl_player import BESIDE_POOL, WITHOUT_POOL, RecoveryTest, abi, library_beside_plugin, main
from relay import Relay
from sluice_process import until

REQUIRED = ("--tls", "require")


class OverTls(RecoveryTest):
    @classmethod
    def setUpClass(cls):
        if not library_beside_plugin("libsluice_tls.so").exists():
            raise unittest.SkipTest("needs tls-library: libsluice_tls.so was not built")  # ctest looks for these words

    def setUp(self):
        super().setUp()
        self.key = self.folder / "pool.key"
        self.run_sluice("keygen", "--out", self.key)

    def environment(self, extra=None, drop=()):
        return super().environment({"SLUICE_TLS": "require", "SLUICE_KEY_FILE": str(self.key), **(extra or {})}, drop)

    def start_pool(self, count, *arguments):
        super().start_pool(count, "--key-file", self.key, *REQUIRED, *arguments)

    def tls_connections(self, address):
        """Returns the number of TLS connections that the reducer has accepted, including the connection of this query."""
        done = self.run_sluice("status", "--reducers", address, "--key-file", self.key, env={"SLUICE_TLS": "require"})
        tls = json.loads(done.stdout)[0]["status"]["tls"]
        self.assertEqual(tls["failed"], 0)
        return tls["agreed"]

    def test_every_type_and_operator_bit_for_bit(self):
        self.start_pool(2, "--lanes", 2)
        self.run_player("kinds", "--ranks", 3)
        for address in self.addresses:
            # Per rank: a control connection, two lanes, and the connection that checks the reducer.
            self.assertGreaterEqual(self.tls_connections(address), 3 * 3 + 1)

    def test_co_located_reducers_use_tls(self):
        self.start_pool(1)
        for env in (BESIDE_POOL, WITHOUT_POOL):
            self.run_player("kinds", "--ranks", 3, "--types", "float32,int8", env=env)

    def test_without_pool_and_token_every_rank_is_refused(self):
        # A reducer of a node has no certificate, so it needs the token for TLS.
        lines = self.run_player("connect", "--ranks", 3, "--expect", "fail", env=WITHOUT_POOL | {"SLUICE_KEY_FILE": ""})
        self.assertEqual(len([line for line in lines if "TLS between workers needs the token" in line]), 3, lines)

    def test_without_tls_every_rank_is_refused(self):
        self.start_pool(1)
        lines = self.run_player("connect", "--ranks", 3, "--expect", "fail", env={"SLUICE_TLS": "off"})
        self.assertEqual(len([line for line in lines if "reducer requires TLS" in line]), 3, lines)

    def test_a_reducer_dies(self):
        for victim, env in ((0, {}), (1, {"SLUICE_THREADS": "0"})):
            with self.subTest(victim=victim, **env):
                player = self.start_traffic(2, env=env)
                self.reducers[victim].end()
                self.expect_recovery(player)
                self.finish(player, self.addresses[victim])

    def test_connections_break(self):
        self.start_pool(2)
        reducers = self.addresses
        relays = [Relay(address) for address in reducers]
        for relay in relays:
            self.addCleanup(relay.close)
        self.addresses = [relay.address for relay in relays]
        player = self.start_player("until-stopped", "--abi", abi(), "--ranks", 3, "--verbose", env={"SLUICE_RESUME_TIMEOUT": "10s"})
        self.assertTrue(player.wait_for(": round "), player.text())
        before = [self.tls_connections(address) for address in reducers]
        for relay in relays:
            relay.close_connections()
        self.assertTrue(player.wait_for("connections resumed (reducer", 3), player.text())
        self.assertTrue(player.wait_for(": round ", player.count(": round ") + 2), player.text())
        for address, agreed in zip(reducers, before, strict=True):
            until("every rank has connected again", lambda: self.tls_connections(address) >= agreed + 3 * 2 + 1)
        self.assertEqual(player.stop(), 0, player.text())
        self.assertEqual(player.count("all right:"), 3, player.text())
        self.assertEqual(player.count(" 0 view changes, 0 reducers lost"), 3, player.text())


if __name__ == "__main__":
    main()
