"""examples/python/ddp.py, once under torchrun: it reaches the same accuracy with bf16 and with f32 on the wire."""

import json
import sys
import unittest
from pathlib import Path

from package_test_bed import ROOT, main
from torch_test_bed import TorchTest

EXAMPLE = ROOT / "examples" / "python" / "ddp.py"
TORCHRUN = Path(sys.executable).with_name("torchrun")
IMAGES = 360  # held out


class Digits(TorchTest):
    def torchrun(self, script, ranks, *arguments, **extra):
        return [self.start_script(TORCHRUN, "--standalone", "--nproc-per-node", ranks, script, *arguments, **extra)]

    def train(self, start, *options):
        result = self.folder / "result.json"
        # Without the variable the bytes depend on the zeros among the gradients.
        run = start(EXAMPLE, 2, "--reducers", self.address, "--json", result, *options, SLUICE_ZERO_BLOCKS="send")
        print(*self.outputs(run), sep="", end="", flush=True)
        return json.loads(result.read_text())

    def test_bf16_on_the_wire_is_as_accurate_as_f32(self):
        self.address = ",".join(self.start_reducer()[1] for _ in range(2))
        full, half = self.train(self.torchrun), self.train(self.start_job, "--wire-dtype", "bf16")
        for result in (full, half):
            self.assertGreaterEqual(result["accuracy"], 0.95)
            self.assertEqual((result["ranks"], len(result["losses"])), (2, 440))
        # One percent.
        self.assertLessEqual(abs(full["accuracy"] - half["accuracy"]), 0.01)
        # Shows that bf16 was used: half the bytes, an error of 8 bits of significand, and other losses from the second step on.
        self.assertEqual(full["payload_bytes_out"], 2 * half["payload_bytes_out"])
        self.assertIsNone(full["relative_error"])
        self.assertTrue(2 ** -11 < half["relative_error"] < 2 ** -8, half["relative_error"])
        self.assertEqual(full["losses"][0], half["losses"][0])
        self.assertNotEqual(full["losses"][1:], half["losses"][1:])
        print(f"f32 {full['accuracy'] * IMAGES:.0f}, bf16 {half['accuracy'] * IMAGES:.0f} of {IMAGES}; relative error {half['relative_error']:.1e}")


if __name__ == "__main__":
    main()
