"""The memory of a rank with the backend "sluice" is what docs/guides/python-and-c.md says of a session."""

import json
from pathlib import Path

from package_test_bed import PackageTest, main

RANK = Path(__file__).with_name("torch_memory_rank.py")
MIB = 1 << 20
WINDOW = 2 * MIB


class TorchMemory(PackageTest):  # processes of their own: one that was forked has copies of pages to make
    def memory(self, hosts, ranks_per_host, reducers=()):
        """For each rank what the first group took, and what the second one did."""
        ranks = hosts * ranks_per_host
        common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "STORE": str(self.folder / f"store-{hosts}-{ranks_per_host}-{len(reducers)}"), "SLUICE_HOSTS": "auto",
                  "SLUICE_REDUCERS": ",".join(reducers) or "none", "SLUICE_COLOCATED": "off" if reducers else "auto"}
        processes = [self.start_script(RANK, f"host{rank // ranks_per_host}", RANK=str(rank), **common) for rank in range(ranks)]
        return [json.loads(printed) for printed in self.outputs(processes)]

    def expect(self, found, shared, own):
        """`shared`: MiB of the host, with some percent of bookkeeping. `own`: the most bytes of a rank."""
        for rank, groups in enumerate(found):
            for group in groups:
                self.assertGreaterEqual(group["shared"], shared * MIB, f"rank {rank}: {groups}")
                self.assertLessEqual(group["shared"], 1.05 * shared * MIB, f"rank {rank}: {groups}")
                self.assertLess(group["own"], own, f"rank {rank}: {groups}")

    def test_ranks_of_one_host_take_a_segment_and_nothing_of_their_own(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                self.expect(self.memory(1, ranks), shared=ranks + 1, own=4 * MIB)

    def test_ranks_of_several_hosts_take_a_window_for_each_reducer_too(self):
        reducers = [self.start_reducer()[1] for _ in range(3)]
        for hosts, ranks_per_host in ((2, 1), (2, 2), (3, 1)):
            shared = max(ranks_per_host, 2) * (ranks_per_host + 1) if ranks_per_host > 1 else 0
            with self.subTest(hosts=hosts, ranks_per_host=ranks_per_host):
                self.expect(self.memory(hosts, ranks_per_host, reducers), shared, own=len(reducers) * WINDOW + 4 * MIB)
                # Each rank also hosts a reducer of the hosts that it serves.
                self.expect(self.memory(hosts, ranks_per_host), shared, own=hosts * WINDOW + (hosts + 1) * WINDOW + 4 * MIB)


if __name__ == "__main__":
    main()
