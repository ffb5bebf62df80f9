"""All versions of the tuner, with and without a connected CollNet."""

import json
import re

from nccl_player import BESIDE_POOL, TUNER_ABIS, WITHOUT_POOL, PlayerTest, main


class Tuner(PlayerTest):
    def test_offload_is_on(self):
        self.start_pool(3)
        lines = self.run_player("tuner", "--ranks", 4, "--verbose")
        # One line per version and rank.
        self.assertEqual(len([line for line in lines if "NET/SLUICE: offload ON 3 reducers over TCP, " in line]), 4 * len(TUNER_ABIS), lines)

    def test_offload_is_on_with_co_located_reducers(self):
        # 8 GPUs on 4 nodes: a ring takes 1.75 S, the nodes alone 1.5 S, and with one dedicated reducer 1.33 S.
        self.start_pool(1)
        for env, text in ((BESIDE_POOL, "1 reducers, 67 % co-located"), (WITHOUT_POOL, "no dedicated reducers, 100 % co-located")):
            lines = self.run_player("tuner", "--ranks", 4, "--verbose", env=env)
            verdict = f"NET/SLUICE: offload ON {text}, over TCP, 8 ranks on 4 nodes, allreduces of 256 KiB and more"
            self.assertEqual(len([line for line in lines if verdict in line]), 4 * len(TUNER_ABIS), lines)

    def test_offload_never(self):
        self.start_pool(1)
        self.run_player("tuner", "--ranks", 2, "--expect", "never", env={"SLUICE_OFFLOAD": "never"})

    def test_offload_without_a_reachable_reducer(self):
        self.addresses = ["127.0.0.1:1"]
        lines = self.run_player("tuner", "--ranks", 2, "--expect", "fail", "--verbose")
        self.assertTrue([line for line in lines if "offload OFF" in line and "127.0.0.1:1" in line], lines)

    def test_one_verdict_for_each_communicator(self):
        self.start_pool(3)
        path = self.folder / "stats.jsonl"
        lines = self.run_player("verdict", "--ranks", 3, "--verbose", "--nccl", 22809, env={"SLUICE_STATS_FILE": str(path), "NCCL_COLLNET_ENABLE": "1"})
        verdicts = [line.partition("offload ")[2] for line in lines if "NET/SLUICE: offload O" in line and line.startswith("rank 1")]
        parent = hash_comm_id("parent")
        expected = [
            r"ON 3 reducers, 3 nodes, .*it asks no tuner",
            r"ON 3 reducers over TCP, 3 ranks on 3 nodes, allreduces of 256 KiB and more",
            rf"OFF \(probably a child of .* \(commId 0x{parent:x}\): .*collnetEnable=1.*\), 3 ranks on 3 nodes",
            r"OFF \(NCCL has no CollNet .*\), 4 ranks on 4 nodes",
            rf"OFF \(one node: .*\), 8 ranks on 1 node, commId 0x{hash_comm_id('one node'):x}$",
            r"OFF \(the communicator ran no allreduce\), 3 ranks on 3 nodes",
        ]
        self.assertEqual(len(verdicts), len(expected), verdicts)
        for verdict, pattern in zip(verdicts, expected):
            self.assertRegex(verdict, pattern)
        stats = [json.loads(line) for line in path.read_text().splitlines()]
        reasons = [line.get("reason") for line in stats if line["kind"] == "communicator"]
        self.assertEqual(sorted(map(str, reasons)), sorted(3 * ["None", "child", "no_collnet", "one_node", "no_allreduce"]))

    def test_releases_without_a_tuner_and_of_unknown_age(self):
        self.start_pool(2)
        for release, text in ((22005, "offload OFF (NCCL_COLLNET_ENABLE=1 is not set; "), (24001, "NCCL 2.40.1 is newer than 2.32.3")):
            path = self.folder / f"{release}.jsonl"
            lines = self.run_player("kinds", "--ranks", 2, "--types", "int8", "--verbose", "--nccl", release, env={"SLUICE_STATS_FILE": str(path)})
            self.assertEqual(len([line for line in lines if text in line]), 2, lines)
            reasons = [line["reason"] for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "refused"]
            self.assertEqual(reasons, 2 * ["collnet_not_enabled"] if release == 22005 else [])
        path = self.folder / "old.jsonl"
        lines = self.run_player("net-ring", "--ranks", 2, "--verbose", "--nccl", 21903, env={"SLUICE_STATS_FILE": str(path)})
        self.assertEqual([json.loads(line)["reason"] for line in path.read_text().splitlines()], 2 * ["nccl_too_old"])
        self.assertEqual(len([line for line in lines if re.search(r"offload OFF \(NCCL 2\.19\.3 .* 2\.20 or newer", line)]), 2, lines)

    def test_a_release_that_drops_errors_fails_the_next_allreduce(self):
        self.start_pool(1)
        for release, expect in ((22705, "fail"), (22803, "ok")):
            lines = self.run_player("dropped-error", "--ranks", 3, "--expect", expect, "--verbose", "--nccl", release)
            notes = [line for line in lines if re.search(r"offload ended: .*; node [12]: NCCL 2\.27\.5 drops this error", line)]
            self.assertEqual(len(notes), 2 if expect == "fail" else 0, lines)

    def test_a_plugin_that_is_loaded_again(self):
        self.start_pool(3)
        path = self.folder / "stats.jsonl"
        lines = self.run_player("reload", "--ranks", 3, "--rounds", 3, "--verbose", "--nccl", 22809, env={"SLUICE_STATS_FILE": str(path)})
        self.assertEqual(len([line for line in lines if "offload ON 3 reducers over TCP, 3 ranks on 3 nodes" in line]), 9, lines)
        kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
        self.assertEqual((kinds.count("offloaded"), kinds.count("communicator")), (9, 9))

    def test_a_node_without_the_plugin_is_named(self):
        self.addresses = ["127.0.0.1:1"]
        lines = self.run_player("mixed-nodes", "--ranks", 3)
        named = [line for line in lines if "node 127.0.0.1 uses NCCL's own network: SLUICE_REDUCERS is not set there" in line]
        self.assertEqual(sorted(line[:6] for line in named), ["rank 0", "rank 1"], lines)


def hash_comm_id(name):
    """The player's commId of a communicator."""
    value = 0xcbf29ce484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001b3) % 2**64
    return value


if __name__ == "__main__":
    main(proves="tuner", subjects=[f"v{abi}" for abi in TUNER_ABIS])
