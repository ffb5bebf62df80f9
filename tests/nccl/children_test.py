"""Communicators made from others as by ncclCommSplit, Shrink and Grow: their sums are exact, and the reducers keep no session of a communicator that ended."""

from nccl_player import COLLNET_ABIS, NET_ABIS, PlayerTest, is_brief, main

# The versions of the releases with these calls.
SPLIT_ABIS = range(6, max(NET_ABIS) + 1)


def tested(versions):
    return [max(versions)] if is_brief() else versions


class Children(PlayerTest):
    def sessions(self, address):
        return self.status(address)["sessions"]

    def test_split(self):
        self.start_pool(2)
        for abi in tested(SPLIT_ABIS):
            with self.subTest(abi=abi):
                before = [self.sessions(address)["completed"] for address in self.addresses]
                self.run_player("split", "--abi", abi, "--ranks", 6)
                # The parent, two children of a parent with CollNet, two columns and three rows.
                expected = 8 if abi in COLLNET_ABIS else 0
                for address, count in zip(self.addresses, before):
                    sessions = self.sessions(address)
                    self.assertEqual((sessions["completed"] - count, sessions["failed"]), (expected, 0), sessions)


if __name__ == "__main__":
    main(proves="children", subjects=[f"split v{version}" for version in SPLIT_ABIS])
