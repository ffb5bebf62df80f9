"""examples/python/hsdp.py: it trains on CPUs, and its groups of replicas have CollNet with NCCL."""

import re
import sys
import unittest

import torch.distributed as dist
from package_test_bed import ROOT, PackageTest, main

FOLDER = ROOT / "examples" / "python"
sys.path.insert(0, str(FOLDER))

import hsdp  # noqa: E402


class Hsdp(PackageTest):
    def test_trains_two_replicas_of_two_shards(self):
        run = self.python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 4, FOLDER / "hsdp.py", "--backend", "gloo", "--shards", 2,
                          "--steps", 30)
        printed = self.outputs([run])[0]
        print(printed, end="", flush=True)
        found = re.fullmatch(r"replicas \[0, 2\], 30 steps: loss (\S+) to (\S+)\n", printed)
        self.assertTrue(found, printed)
        self.assertLess(float(found[2]), 0.9 * float(found[1]))

    @unittest.skipUnless(dist.is_nccl_available(), "PyTorch was built without NCCL")
    def test_the_replicas_have_collnet(self):
        config = hsdp.replicas_options().config
        self.assertEqual(config.collnet_enable, 1)
        # Without it NCCL decides by NCCL_COLLNET_ENABLE.
        self.assertNotIn(dist.ProcessGroupNCCL.Options().config.collnet_enable, (0, 1))


if __name__ == "__main__":
    main()
