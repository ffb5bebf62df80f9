"""float32 that travels as mxfp8 or int8, with and without error feedback."""

import json
import os
import signal
import subprocess
import sys
import unittest
from contextlib import suppress

import numpy
from package_test_bed import DEADLINE_S, ROOT, ReducerTest, main, sluice_process
from torch_test_bed import TorchTest

BLOCK_TYPES = ("mxfp8", "int8")


class WireTypes(TorchTest, ReducerTest):
    def test_a_residual_receives_what_rounding_loses(self):
        x = numpy.random.default_rng(1).standard_normal(1000).astype("float32")
        for wire in BLOCK_TYPES:
            session = self.session(wire_dtype=wire)
            residual = numpy.zeros(1000, dtype="float32")
            for _ in range(3):
                before, out = residual.copy(), numpy.empty_like(x)
                session.allreduce(x, out=out, residual=residual)
                # A single rank's result is encoded again without loss.
                numpy.testing.assert_array_equal(out + residual, x + before)
                self.assertGreater(abs(residual).max(), 0)
            self.assertEqual(session.stream_stats().elements_cast, 3000)

    def test_unsuitable_residuals_are_refused(self):
        session = self.session(wire_dtype="mxfp8")
        x = numpy.ones(10, dtype="float32")
        readonly = numpy.zeros(10, dtype="float32")
        readonly.flags.writeable = False
        for residual, text in ((numpy.zeros(9, dtype="float32"), "residual is float32 of 9 elements; expected writable float32 of 10"),
                               (numpy.zeros(10, dtype="float64"), "residual is float64"), (readonly, "expected writable")):
            with self.assertRaisesRegex(ValueError, text):
                session.allreduce(x, residual=residual)
        with self.assertRaisesRegex(ValueError, "wire_dtype is 'fp4'; expected None, 'f32', 'bf16', 'f16', 'mxfp8' or 'int8'"):
            self.session(wire_dtype="fp4")

    def test_the_variable_is_the_default(self):
        for text, name in (("int8", "int8"), ("f32", "f32"), ("", "f32")):
            os.environ["SLUICE_WIRE"] = text
            self.addCleanup(os.environ.pop, "SLUICE_WIRE", None)
            self.assertEqual(self.session().wire_dtype, name)
            self.assertEqual(self.session(wire_dtype="bf16").wire_dtype, "bf16")
        os.environ["SLUICE_WIRE"] = "fp4"
        with self.assertRaisesRegex(ValueError, 'variable SLUICE_WIRE: "fp4": expected f32, bf16, f16, mxfp8 or int8'):
            self.session()

    def by_types(self, text):
        lines = [json.loads(line) for line in text.splitlines()]
        self.assertEqual(len(lines), len(BLOCK_TYPES))
        self.assertNotEqual(*lines)
        return lines

    def test_the_hook_trains_with_error_feedback(self):
        first, second = self.run_ranks("wire_rank.py", 2, self.address, "hook", *BLOCK_TYPES)
        self.assertEqual(first, second)
        for printed in self.by_types(first):
            self.assertTrue(printed["feedback_equal"] and printed["none_equal"])
            self.assertGreater(printed["cast"], 0)
            for name in ("feedback", "none"):
                self.assertLess(sum(printed[name][-10:]) / 10, 0.8 * printed[name][0])
            self.assertNotEqual(printed["feedback"], printed["none"])

    def test_the_backend_reduces_large_tensors_in_blocks(self):
        for text in self.run_ranks("wire_rank.py", 2, self.address, "backend", *BLOCK_TYPES):
            for printed in self.by_types(text):
                self.assertLess(printed["first"], 0.05)
                self.assertLess(printed["mean"], printed["first"])  # the residuals arrive in later steps
                self.assertEqual(printed["short"], [float(2 * numpy.float32(1 / 3))])
                self.assertLess(printed["sent"], 32 * 100_000 * 1.04 + 40_000)
                self.assertTrue(printed["plain"])
                first, second, mean = printed["scattered"]["unasked"]
                self.assertEqual(first, second)
                self.assertAlmostEqual(mean, first, delta=1e-3 * first)
                first, second, mean = printed["scattered"]["asked"]
                self.assertNotEqual(first, second)
                self.assertLess(mean, first / 2)

    def test_the_training_benchmark_compares_wire_types(self):
        result = self.folder / "training.json"
        program = subprocess.Popen([sys.executable, "-B", ROOT / "bench/training/wire_types.py", "--sluice", sluice_process.PROGRAM, "--library",
                                    os.environ["SLUICE_LIBRARY"], "--python", sys.executable, "--brief", "--tasks", "unequal data", "--json", result],
                                   stdout=subprocess.DEVNULL, start_new_session=True)  # a group of its own, so that its reducer and ranks end with it
        try:
            self.assertEqual(program.wait(4 * DEADLINE_S), 0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        data = json.loads(result.read_text())["data"]
        self.assertEqual([(run["wire"], run["feedback"]) for run in data["runs"]],
                         [("f32", False), ("bf16", False), ("mxfp8", False), ("mxfp8", True), ("int8", False), ("int8", True)])
        for run in data["runs"]:
            self.assertLess(run["losses"][-1], 0.7 * run["losses"][0])
        self.assertEqual(len({run["parameters"] for run in data["runs"]}), 6)
        arrived = {(row["wire"], row["feedback"], row["ranks"]): row["arrived"] for row in data["small_values"]}
        self.assertGreater(arrived["mxfp8", True, 2], 0.99)
        self.assertGreater(arrived["int8", True, 1], 0.99)
        self.assertLess(arrived["int8", False, 2], 0.05)


if __name__ == "__main__":
    main()
