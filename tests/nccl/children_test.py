"""Communicators made from others as by ncclCommSplit, Shrink and Grow: their sums are exact, and the reducers keep no session of a communicator that ended."""

import re
import time

from nccl_player import COLLNET_ABIS, NET_ABIS, PlayerTest, is_brief, main
from sluice_process import until

# The versions of the releases with these calls.
ABIS = {"split": range(6, max(NET_ABIS) + 1), "shrink": range(10, max(NET_ABIS) + 1), "grow": range(11, max(NET_ABIS) + 1)}
# The plugin waits 5 s for other ranks when a communicator is closed, unless all that it needs is known before.
CLOSE_MS = 3000
# The time of a reducer to forget the session of a parent, of which a rank died.
FORGET_S = 5


def tested(call):
    return [max(ABIS[call])] if is_brief() else ABIS[call]


class Children(PlayerTest):
    def expect_sessions(self, **expected):
        """Waits until all reducers report these counts of sessions. Returns the seconds that it took."""
        begin = time.monotonic()
        for address in self.addresses:
            seen = {}

            def has_expected(address=address, seen=seen):
                seen.update(self.status(address)["sessions"])
                return expected.items() <= seen.items()

            try:
                until("the sessions", has_expected)
            except AssertionError as late:
                raise AssertionError(f"{address} has the sessions {seen}, expected {expected}") from late
        return time.monotonic() - begin

    def test_split(self):
        self.start_pool(2)
        completed = 0
        for abi in tested("split"):
            with self.subTest(abi=abi):
                self.run_player("split", "--abi", abi, "--ranks", 6)
                # The parent, two children of a parent with CollNet, two columns and three rows.
                completed += 8 if abi in COLLNET_ABIS else 0
                self.expect_sessions(completed=completed, failed=0, open=0)

    def test_shrink(self):
        # No deadline of a reducer helps: they are longer than this test.
        self.start_pool(2, "--absence-timeout", "10m", "--peer-timeout", "10m", "--linger-timeout", "10m")
        rounds = [(abi, *how) for abi in tested("shrink") for how in (("shrink", 0), ("shrink", 2), ("shrink-idle", 1))]
        for earlier, (abi, scenario, dead) in enumerate(rounds):
            with self.subTest(abi=abi, scenario=scenario, dead=dead):
                player = self.start_player(scenario, "--abi", abi, "--ranks", 4, "--killed-rank", dead)
                self.assertTrue(player.wait_for("parent closed after", 3), player.text())
                durations = [int(found[1]) for line in player.lines() if (found := re.search(r"parent closed after (\d+) ms", line))]
                self.assertLess(max(durations), CLOSE_MS, player.text())
                self.assertLess(self.expect_sessions(open=1, ending=0, failed=earlier + 1, completed=earlier), FORGET_S)
                self.assertEqual(player.stop(), 0, player.text())
                self.expect_sessions(open=0, ending=0)

    def test_grow(self):
        self.start_pool(2)
        for earlier, abi in enumerate(tested("grow")):
            with self.subTest(abi=abi):
                player = self.start_player("grow", "--abi", abi, "--ranks", 4)
                self.assertTrue(player.wait_for("parent closed", 3), player.text())
                self.expect_sessions(open=1, ending=0, failed=0, completed=2 * earlier + 1)
                self.assertEqual(player.stop(), 0, player.text())
                self.expect_sessions(open=0, ending=0)


if __name__ == "__main__":
    main(proves="children", subjects=[f"{call} v{version}" for call in ABIS for version in tested(call)])
