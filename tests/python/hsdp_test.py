"""examples/python/hsdp.py: it trains on CPUs, and its groups of replicas have CollNet with NCCL."""

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


class Hsdp(TorchTest):
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
