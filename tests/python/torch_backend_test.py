"""The torch.distributed backend "sluice": the results of gloo in the same script, groups, lost ranks and wrong settings."""

import itertools
import json
import os
import time
import unittest
from importlib.util import find_spec
from pathlib import Path

from package_test_bed import main, unpack_wheel
from torch_test_bed import TorchTest

RANK = "torch_backend_rank.py"
GROUPS = os.environ.get("SLUICE_TEST_GROUPS", "20")
MIB = 1 << 20
FINDS_BACKENDS = "torch.distributed.backends" in (Path(find_spec("torch").origin).parent / "distributed" / "distributed_c10d.py").read_text()


class TorchBackend(TorchTest):
    def start_job(self, ranks, *arguments, **extra):
        """Starts the ranks on loopback."""
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), RANK)
        common = {"WORLD_SIZE": str(ranks), "STORE": str(self.folder / f"store-{time.monotonic_ns()}"), "MASTER_ADDR": "127.0.0.1", **extra}
        return [self.start_script(path, *arguments, RANK=str(rank), **common) for rank in range(ranks)]

    def run_job(self, *arguments, **extra):
        return [[json.loads(line) for line in printed.splitlines()] for printed in self.outputs(self.start_job(*arguments, **extra))]

    def test_returns_what_gloo_returns(self):
        for gloo, none, pool in self.run_job(2, "results", "gloo", "memory", self.start_reducer()[1]):
            # With two ranks the order of a sum does not matter, so that all bits are equal.
            for found in (none, pool):  # besides, they have results of types that gloo refuses
                self.assertEqual({name: found["results"][name] for name in gloo["results"]}, gloo["results"])
            self.assertEqual(none["results"], pool["results"])
            self.assertEqual([none["losses"], pool["losses"]], [gloo["losses"]] * 2)
            self.assertGreater(none["offloaded"], 200)
            self.assertEqual(none["offloaded"], pool["offloaded"])
            self.assertEqual(none["sent"], 0)  # the ranks share a host, and without a pool its memory
            self.assertGreater(pool["sent"], 0)

    def test_four_ranks_get_equal_bits_with_and_without_reducers_and_the_losses_of_gloo(self):
        for gloo, none, pool in self.run_job(4, "results", "gloo", "memory", self.start_reducer()[1]):
            self.assertEqual(none.pop("sent"), 0)
            self.assertGreater(pool.pop("sent"), 0)
            self.assertEqual(none, pool)
            self.assertEqual(none["losses"].keys(), gloo["losses"].keys())
            # With four ranks gloo adds in another order. The second term is for losses near 0, beside which the rounding of
            # the outputs is large.
            for name, loss in gloo["losses"].items():
                self.assertAlmostEqual(none["losses"][name], loss, delta=1e-6 * loss + 1e-8, msg=name)

    def test_trainings_have_equal_bits_for_every_number_of_ranks_on_a_host(self):
        printed = [json.loads(line) for line in self.outputs(self.start_job(8, "hosts", self.start_reducer()[1]))]
        for rank, found in enumerate(printed):
            for per_host in ("2", "4", "8"):
                self.assertEqual(found[per_host]["losses"], found["1"]["losses"], f"rank {rank}, {per_host} ranks on a host")
            self.assertEqual(found["8"]["sent"], 0)  # one host: no network
        # A host sends its sums once, whatever the number of its ranks.
        sent = {per_host: sum(found[per_host]["sent"] for found in printed) for per_host in ("1", "2", "4")}
        self.assertLess(sent["2"], 0.6 * sent["1"])
        self.assertLess(sent["4"], 0.35 * sent["1"])

    def test_groups_are_sessions_of_their_own_and_leave_nothing_behind(self):
        jobs = self.run_job(4, "groups", "none", "none", SLUICE_TEST_GROUPS=GROUPS)
        for rank, printed in enumerate(jobs):
            self.assertEqual(len(printed), 2)
            for job in printed:
                replicas, shards = {rank, (rank + 2) % 4}, {rank, rank ^ 1}
                self.assertEqual(job["sums"], [sum(replicas), sum(shards)])
                self.assertEqual(job["crossed"], [2, 2])
                self.assertEqual(job["alone"], [7, 7, 7])
                print(f"rank {rank}, {GROUPS} groups: before {job['before']}, after {job['after']}")
                self.assertEqual(job["after"]["threads"], job["before"]["threads"])
                # Other ranks may still be closing connections of the last group. A leak would be one for each of them.
                self.assertLess(job["after"]["descriptors"], job["before"]["descriptors"] + 20)
                self.assertLess(job["after"]["memory"], job["before"]["memory"] + MIB * (4 + int(GROUPS) // 50))

    def test_a_lost_rank_is_named_in_the_error_of_the_others(self):
        _, reducer = self.start_reducer()
        ranks = self.start_job(3, "lost", reducer)
        for process in ranks:
            self.assertEqual(process.stdout.readline(), "begun\n")
        ranks[1].kill()
        for process in (ranks[0], ranks[2]):
            first, again = map(json.loads, self.outputs([process])[0].splitlines())
            self.assertIn("rank 1", first)
            self.assertEqual(again, ["DistBackendError"] * 2)

    def test_the_error_of_a_group_lists_its_ranks(self):
        ranks = self.start_job(3, "lost_in_group", "memory")
        for process in ranks[1:]:
            self.assertEqual(process.stdout.readline(), "begun\n")
        ranks[1].kill()
        first = json.loads(self.outputs([ranks[2]])[0].splitlines()[0])
        self.assertRegex(first, "^rank 0 lost: .*; ranks of this group are ranks 1, 2 of the job, in this order$")
        ranks[0].kill()

    def test_every_rank_is_told_both_calls_when_they_differ(self):
        fields = {"shape": "count", "dtype": "dtype", "op": "op", "root": "root", "order": "kind", "barrier": "dtype", "large order": "kind",
                  "large shape": "count", "large future": "kind"}
        for printed in itertools.chain(*self.run_job(2, "disagree", "none", self.start_reducer()[1])):
            self.assertEqual(printed.keys(), fields.keys())
            for case, field in fields.items():
                self.assertRegex(printed[case], rf"disagree on {field}: rank \d operation \d is .* of count \d+ .*, rank \d operation \d is .* of count \d+")

    def test_missing_reducers_are_an_error_and_no_hang(self):
        ranks = self.start_job(2, "results", "none", SLUICE_COLOCATED="off", SLUICE_HOSTS="off")
        for process in ranks:
            _, error = process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn("DistBackendError: backend sluice: no reducers", error)
            self.assertIn("set SLUICE_REDUCERS, or SLUICE_COLOCATED=auto", error)

    @unittest.skipUnless(FINDS_BACKENDS, "this release of torch does not look for backends in installed packages")
    def test_torch_finds_the_installed_package_without_an_import(self):
        installed = unpack_wheel(self.folder)
        for rank, printed in enumerate(self.run_job(4, "groups", "none", "no-import", PYTHONPATH=str(installed))):
            self.assertEqual(printed[0]["sums"][0], rank + (rank + 2) % 4)


if __name__ == "__main__":
    main()
