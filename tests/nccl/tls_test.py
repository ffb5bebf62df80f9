"""CollNet over TLS: libsluice_tls.so, found beside the plugin and loaded by it. Skipped where that was not built.

The deadlines and losses themselves are failure_test.py's; here a loss has to be survived by connections that shake hands again."""

import json
import unittest

from playing import SurvivingPlay, abi, beside_plugin, main
from relay import Relay

REQUIRED = ("--tls", "require")


class OverTls(SurvivingPlay):
    @classmethod
    def setUpClass(cls):
        if not beside_plugin("libsluice_tls.so").exists():
            raise unittest.SkipTest("needs tls-library: libsluice_tls.so was not built")  # ctest looks for these words

    def setUp(self):
        super().setUp()
        self.key = self.folder / "pool.key"
        self.run_sluice("keygen", "--out", self.key)

    def environment(self, extra=None, drop=()):
        return super().environment({"SLUICE_TLS": "require", "SLUICE_KEY_FILE": str(self.key), **(extra or {})}, drop)

    def start_pool(self, count, *arguments):
        super().start_pool(count, "--key-file", self.key, *REQUIRED, *arguments)

    def secured(self, address):
        """Connections that came through TLS; the one that asks is one of them."""
        done = self.run_sluice("status", "--reducers", address, "--key-file", self.key, env={"SLUICE_TLS": "require"})
        tls = json.loads(done.stdout)[0]["status"]["tls"]
        self.assertEqual(tls["failed"], 0)
        return tls["agreed"]

    def test_every_type_and_operator_bit_for_bit(self):
        self.start_pool(2, "--lanes", 2)
        self.play("kinds", "--ranks", 3)
        for address in self.addresses:
            # Of each rank a control connection and two lanes, besides those by which it saw that the reducer is there.
            self.assertGreaterEqual(self.secured(address), 3 * 3 + 1)

    def test_without_tls_every_rank_is_refused(self):
        self.start_pool(1)
        lines = self.play("connect", "--ranks", 3, "--expect", "fail", env={"SLUICE_TLS": "off"})
        self.assertEqual(len([line for line in lines if "nobody without TLS" in line]), 3, lines)

    def test_a_reducer_dies(self):
        for victim, env in ((0, {}), (1, {"SLUICE_THREADS": "0"})):
            with self.subTest(victim=victim, **env):
                playing = self.begin(2, env=env)
                self.reducers[victim].end()
                self.goes_on(playing)
                self.finish(playing, self.addresses[victim])

    def test_connections_break(self):
        self.start_pool(2)
        reducers = self.addresses
        relays = [Relay(address) for address in reducers]
        for relay in relays:
            self.addCleanup(relay.close)
        self.addresses = [relay.address for relay in relays]
        playing = self.begin_play("until-stopped", "--abi", abi(), "--ranks", 3, "--verbose", env={"SLUICE_RESUME_TIMEOUT": "10s"})
        self.assertTrue(playing.wait_for(": round "), playing.text())
        before = [self.secured(address) for address in reducers]
        for relay in relays:
            relay.cut()
        self.assertTrue(playing.wait_for("connections resumed (reducer", 3), playing.text())
        self.assertTrue(playing.wait_for(": round ", playing.count(": round ") + 2), playing.text())
        for address, agreed in zip(reducers, before, strict=True):
            self.assertGreaterEqual(self.secured(address), agreed + 3 * 2 + 1)
        self.assertEqual(playing.stop(), 0, playing.text())
        self.assertEqual(playing.count("all right:"), 3, playing.text())
        self.assertEqual(playing.count(" 0 view changes, 0 reducers lost"), 3, playing.text())


if __name__ == "__main__":
    main()
