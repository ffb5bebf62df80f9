"""FSDP2 and HSDP: sluice.torch.fsdp.offload() on CPU tensors beside torch's own collectives, and examples/python/hsdp.py."""

import json
import re

from package_test_bed import ROOT, main
from torch_test_bed import TorchTest

EXAMPLE = ROOT / "examples" / "python" / "hsdp.py"

# Prints whether CollNet is enabled in the options of the replicas' groups, and by default.
OPTIONS = """
import json
import hsdp
import torch.distributed as dist

options = [hsdp.replicas_options(), dist.ProcessGroupNCCL.Options()] if dist.is_nccl_available() else []
print(json.dumps([each.config.collnet_enable for each in options]))
"""

FSDP = ("torch.distributed.fsdp",)
RANKS = 4
LONGER = 3  # times more steps with wire types than in other trainings
REFUSALS = {
    "twice": "ValueError: the root module is offloaded already; close() the Offload",
    "closed": "DistBackendError: the session is closed",
    "custom": "ValueError: the root module has had set_custom_all_gather() called",
    "no fsdp": "TypeError: model is a Net without a module of fully_shard()",
    "no module": "TypeError: model is 7; expected a torch.nn.Module",
    "wire": "ValueError: wire is 'fp4'; expected one of 'f32'",
    "options": "TypeError: options is a dict; expected sluice.torch.Options",
    "two wires": "ValueError: options.wire_dtype is 'bf16', but wire is 'f32'",
    "number": "TypeError: timeout is 60; expected a datetime.timedelta",
    "negative": "ValueError: timeout is -1 s; expected more than 0 s",
    "some ranks": "ValueError: the root module is sharded over 2 of 4 ranks: if the others hold copies of the shards, pass replicas=",
    "replicas": "TypeError: replicas is 'all'; expected a process group",
    "two dimensions": "ValueError: replicas is a mesh of 2 dimensions",
    "torch reduces": "ValueError: the root module has a replicate dimension, over which torch reduces, and which has the backend 'gloo'; make the mesh with",
    "replicate": "ValueError: the root module has a replicate dimension, over which torch reduces, and which has the backend 'gloo'",
    "torch reduces, replicas": "ValueError: the root module has a mesh with a replicate dimension",
    "meta": "ValueError: tensor 'first.weight' is on the meta device",
    "wires differ": "ValueError: ranks differ in wire: 'bf16' on rank 0, 'f32' on rank 1",
    "models differ": "ValueError: ranks differ in parameters: ",
}


class Fsdp(TorchTest):
    preloaded = FSDP

    def start_training(self, ranks, what):
        self.reducer = self.start_reducer()[1]
        return self.start_ranks("fsdp_rank.py", ranks, self.reducer, what, SLUICE_REDUCERS=self.reducer, SLUICE_HOSTS="off")  # each has a host of its own

    def test_trains_as_torch_does_in_each_layout_and_refuses_what_it_cannot_serve(self):
        ranks = [json.loads(printed) for printed in self.outputs(self.start_training(RANKS, "layouts"))]
        received = sum(reducer["status"]["data"]["bytes_in"] for reducer in json.loads(self.run_sluice("status", "--reducers", self.reducer).stdout))
        self.assertGreater(received, sum(sent[0] for rank in ranks for (_, *sent) in rank["wires"].values() if sent))
        for rank in ranks:
            for case, (own, ours) in rank["cases"].items():  # of two ranks: the order of a sum does not matter
                self.assertEqual(ours, own, case)
            self.check_wires(rank["wires"])
            self.check_copies(rank["copies"])
            self.check_near(*rank["factor"], 1e-6)
            (own, _), (ours, _) = rank["fewer"]
            self.check_near(ours, own, 1e-6)
            self.check_hosts(rank["hosts"], rank["copies"]["native"], rank["fewer"][0], rank["wires"]["f32"][1] / LONGER)
            first, last, errors = rank["cycles"]
            print(f"offloaded once: {first}, 6 times: {last}")
            self.assertEqual((last["groups"], last["threads"]), (first["groups"], first["threads"]))
            self.assertLess(last["descriptors"], first["descriptors"] + 5)  # other ranks may still close connections; a leak would be 10 in each cycle
            for error in errors:
                self.assertRegex(error, "^DistBackendError: fsdp.offload: .*TLS")
            self.assertRegex(rank["named"], r"^DistBackendError: fsdp.offload: rank 0 \([\d.]+\) and rank 3 \([\d.]+\) have the same SLUICE_HOST_ID 'a' on different machines$")
            self.assertEqual(rank["rails"], [[0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11], list(range(12))])
            for case, text in REFUSALS.items():
                self.assertIn(text, rank["refusals"][case])
        for number, rank in enumerate(ranks):  # the average is 2.5 x the number, and then doubled
            self.assertEqual(rank["streams"], [[True, [[5.0 * number], [0.0, 1.0, 2.0, 3.0]]]] * 2)
        self.assertEqual(len({rank["wires"]["bf16"][-1] for rank in ranks}), 1)  # all have the same parameters

    def check_near(self, losses, others, tolerance):
        self.assertEqual(len(losses), len(others))
        for loss, other in zip(losses, others):
            self.assertAlmostEqual(loss, other, delta=tolerance * other)

    def check_wires(self, wires):
        f32, sent, operations, _ = wires["f32"]
        self.check_near(f32, wires["gloo"][0], 1e-6)
        self.assertEqual(wires["again"], wires["bf16"])
        for name, share, tolerance in ("bf16", 1 / 2, 2e-3), ("mxfp8", 264 / 1024, 2e-2), ("fed back", 264 / 1024, 2e-2):
            losses, bytes_out, count, _ = wires[name]
            self.check_near(losses, f32, tolerance)
            self.assertNotEqual(losses, f32)
            self.assertEqual(count, operations)
            self.assertAlmostEqual(bytes_out / sent, share, delta=0.03)

    def check_copies(self, found):
        self.assertEqual(found["copies"], found["native"])  # each sum has two ranks
        self.assertEqual(found["backend"], found["native"])
        f32, bf16 = found["sent"]
        self.assertAlmostEqual(bf16 / f32, 1 / 2, delta=0.03)
        self.check_near(found["narrow"][0], found["native"][0], 2e-3)
        self.assertIn("which travels as f32; make the mesh with init_device_mesh(", found["refused"])

    def check_hosts(self, hosts, pairs, torchs, flat_bytes):
        (flat, _, warned), (two, (two_bytes,), quiet) = hosts["aaab"], hosts["aabb"]
        self.assertEqual(two, pairs)  # the same pairs first, as in the balanced tree over all ranks
        self.check_near(flat[0], pairs[0], 1e-6)  # three ranks of a host first
        self.assertAlmostEqual(two_bytes / flat_bytes, 1 / 2, delta=0.03)
        self.check_near(hosts["abab"][0][0], pairs[0], 1e-6)
        self.assertEqual(hosts["aaaa"][:2], [torchs, []])
        self.assertEqual(quiet, [])
        self.assertEqual(warned, ["fsdp.offload: the hosts have 3, 1 ranks of the model; torch does not reduce within them, because the numbers differ"])
        self.assertIn("all ranks of the model run on one host", hosts["aaaa"][2][0])

    def test_a_lost_rank_is_named_in_the_error_of_the_others(self):
        ranks = self.start_training(3, "lost")
        for process in ranks:
            self.assertEqual(process.stdout.readline(), "begun\n")
        ranks[1].kill()
        for process in ranks[0], ranks[2]:
            for error in json.loads(self.outputs([process])[0]):
                self.assertRegex(error, "^DistBackendError: .*rank 1")


class HsdpExample(TorchTest):
    """It trains on CPUs, and its groups of replicas have CollNet with NCCL."""

    preloaded = FSDP

    def test_trains_two_replicas_of_two_shards(self):
        printed = "".join(self.outputs(self.start_job(EXAMPLE, 4, "--backend", "gloo", "--shards", 2, "--steps", 30)))
        print(printed, end="", flush=True)
        found = re.fullmatch(r"replicas \[0, 2\], 30 steps: loss (\S+) to (\S+)\n", printed)
        self.assertTrue(found, printed)
        self.assertLess(float(found[2]), 0.9 * float(found[1]))

    def test_the_replicas_have_collnet(self):
        script = self.write("options.py", OPTIONS)
        enabled = json.loads(*self.outputs([self.start_script(script, PYTHONPATH=str(EXAMPLE.parent))]))
        if not enabled:
            self.skipTest("PyTorch was built without NCCL")
        of_replicas, default = enabled
        self.assertEqual(of_replicas, 1)
        self.assertNotIn(default, (0, 1))  # NCCL decides by NCCL_COLLNET_ENABLE


if __name__ == "__main__":
    main()
