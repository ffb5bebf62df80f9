"""sluice.torchft: the contract of torchft's process groups, and a job with torchft's manager and lighthouse whose replicas are killed and restarted."""

import concurrent.futures
import importlib
import itertools
import json
import os
import sys
import unittest
from datetime import timedelta
from unittest import mock

import sluice
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from package_test_bed import ROOT, PackageTest, main
from sluice.torchft import ProcessGroupSluice

CHAOS = ROOT / "bench" / "chaos" / "torchft_chaos.py"
KILLS = 3


class TorchFT(PackageTest):
    def setUp(self):
        super().setUp()
        _, self.reducer = self.start_reducer()

    def test_kills_do_not_stop_the_other_replicas(self):
        results = self.folder / "results.json"
        run = self.python(CHAOS, "--kills", KILLS, "--heartbeat-timeout", 3000, "--json", results, SLUICE_REDUCERS=self.reducer, MASTER_ADDR="127.0.0.1")
        # It fails if weights differ, a loss is not finite, or the survivors make no step. Each replica imports torch, which takes long on a busy machine.
        _, errors = run.communicate(timeout=250)
        self.assertEqual(run.returncode, 0, errors[-5000:])
        found = json.loads(results.read_text())
        print(found["times"], flush=True)
        self.assertEqual(found["kills"], KILLS)
        self.assertGreater(found["steps"], 50)

    def test_the_module_says_what_it_needs(self):
        missing = {name: None for name in sys.modules if name.partition(".")[0] == "torchft"}
        with mock.patch.dict(sys.modules, missing), self.assertRaisesRegex(sluice.Unsupported, "pip install torchft"):
            del sys.modules["sluice.torchft"]
            importlib.import_module("sluice.torchft")


class Contract(PackageTest):
    """Two ranks as threads of this process, each with its group."""

    def setUp(self):
        super().setUp()
        _, os.environ["SLUICE_REDUCERS"] = self.start_reducer()
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        self.addCleanup(os.environ.pop, "SLUICE_REDUCERS")
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.configurations = itertools.count()
        self.groups = [ProcessGroupSluice(timedelta(seconds=20)) for _ in range(2)]
        self.threads = concurrent.futures.ThreadPoolExecutor(2)
        self.addCleanup(self.threads.shutdown)
        for group in self.groups:
            self.addCleanup(group.shutdown)

    def on_each(self, call):
        """Calls call(group, rank) on both ranks and returns the results."""
        return list(self.threads.map(call, self.groups, range(len(self.groups)), timeout=60))

    def configure(self):
        address = f"127.0.0.1:{self.store.port}/quorum/{next(self.configurations)}"
        self.on_each(lambda group, rank: group.configure(address, f"replica_{rank}", rank, len(self.groups), 1, 0, 1, [0, 1]))

    def sums(self):
        def reduce(group, rank):
            x = torch.full((100,), float(rank + 1))
            work = group.allreduce([x], dist.AllreduceOptions())
            self.assertTrue(work.wait())
            self.assertTrue(torch.equal(work.get_future().wait()[0], x))
            return x[0].item()

        return self.on_each(reduce)

    def test_collectives(self):
        self.configure()
        self.assertEqual(self.sums(), [3, 3])
        self.assertEqual([(group.size(), group.getBackendName(), group.errored()) for group in self.groups], [(2, "torchft-sluice", None)] * 2)

        def others(group, rank):
            x, outputs, both = torch.full((4,), float(rank + 1)), [torch.empty(4), torch.empty(4)], torch.empty(8)
            group.allgather([outputs], [x], c10d.AllgatherOptions()).wait()
            group.allgather_into_tensor_coalesced([both], [x], c10d.AllgatherOptions()).wait()
            part = torch.empty(2)
            group.reduce_scatter_tensor_coalesced([part], [x], c10d.ReduceScatterOptions()).wait()
            group.allreduce_coalesced([x.clone(), x.clone()], c10d.AllreduceCoalescedOptions()).wait()
            exchanged = torch.empty(4)
            group.alltoall_base(exchanged, x, [], [], c10d.AllToAllOptions()).wait()
            group.broadcast_one(x, 0).wait()
            group.barrier(c10d.BarrierOptions()).wait()
            sent = torch.full((1,), 9.0)
            (group.send([sent], 1, 0) if rank == 0 else group.recv([sent], 0, 0)).wait()
            return [torch.cat(outputs).tolist(), both.tolist(), part.tolist(), exchanged.tolist(), x.tolist(), sent.item()]

        both = [1.0] * 4 + [2.0] * 4
        self.assertEqual(self.on_each(others), [[both, both, [3.0, 3.0], [1.0, 1.0, 2.0, 2.0], [1.0] * 4, 9.0]] * 2)

    def test_work_in_progress_fails_at_once_when_its_group_is_configured_again(self):
        self.configure()
        self.sums()
        work = self.groups[0].allreduce([torch.ones(100)], dist.AllreduceOptions())  # rank 1 never joins
        future = work.get_future()
        self.configure()
        self.assertFalse(work.wait())
        with self.assertRaisesRegex(RuntimeError, "aborted the process group"):
            future.wait()
        self.assertEqual(self.sums(), [3, 3])
        self.assertIsNone(self.groups[0].errored())

    def test_an_abort_needs_a_new_configuration(self):
        self.configure()
        work = self.groups[1].allreduce([torch.ones(100)], dist.AllreduceOptions())
        self.groups[0].abort()
        self.assertFalse(work.wait())
        self.assertIsInstance(self.groups[1].errored(), sluice.Lost)
        self.assertIn("aborted", str(self.groups[0].errored()))
        self.configure()
        self.assertEqual([group.errored() for group in self.groups], [None, None])
        for group in self.groups:
            group.set_timeout(timedelta(seconds=5))
        self.assertEqual(self.sums(), [3, 3])
        for call in self.groups[0].set_timeout, ProcessGroupSluice:
            self.assertRaisesRegex(TypeError, "timeout is 5; expected a datetime.timedelta", call, 5)
            self.assertRaisesRegex(ValueError, "timeout is 0 s; expected more than 0 s", call, timedelta())


if __name__ == "__main__":
    main()
