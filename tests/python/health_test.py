"""Findings of reducers with --health: exceptions, calls, names of operations, the DDP hook, and the torch backend."""

import json
import unittest

import numpy
import sluice
from package_test_bed import main
from torch_test_bed import TorchTest

NAN = float("nan")


class Health(TorchTest):
    def session(self, *arguments, **options):
        return self.session_with(self.start_reducer(*arguments)[1], **options)

    def test_an_operation_raises_its_finding(self):
        session = self.session("--health", on_finding="raise")
        x = numpy.ones(1000, dtype="float32")
        x[[3, 7, 999]] = NAN
        with self.assertRaises(sluice.UnhealthyGradient) as raised:
            session.allreduce(x.copy(), name="bucket 12 at step 1041")
        self.assertEqual(str(raised.exception), "rank 0: 3 NaN or infinite in bucket 12 at step 1041")
        self.assertIsInstance(raised.exception, sluice.Error)
        self.assertEqual(raised.exception.finding, sluice.Finding(0, "non_finite", 3, 0.0, "bucket 12 at step 1041"))
        numpy.testing.assert_array_equal(session.allreduce(numpy.ones(1000, dtype="float32")), 1)  # the session continues
        sick, well = session.allreduce_async(x), session.allreduce_async(numpy.ones(10))
        well.wait()
        with self.assertRaisesRegex(sluice.UnhealthyGradient, "^rank 0: 3 NaN or infinite in operation 3, allreduce of 1000 float32$"):
            sick.wait()
        self.assertIsInstance(sick.error(), sluice.UnhealthyGradient)
        self.assertIsNone(session.error())

    def test_a_function_is_called(self):
        findings = []
        session = self.session("--health", on_finding=findings.append)
        x = numpy.full(5, NAN)
        with session.group() as request:
            session.allreduce_async(numpy.ones(3))
            session.allreduce_async(x, name="the loss")
        request.wait()
        self.assertEqual([str(f) for f in findings], ["rank 0: 5 NaN or infinite in the loss"])
        session.reduce_scatter_async(numpy.full(1, NAN), numpy.empty(1)).wait()
        self.assertEqual(str(findings[-1]), "rank 0: 1 NaN or infinite in operation 1, reduce_scatter of 1 float64")

    def test_without_the_option_nothing_happens(self):
        x = numpy.full(5, NAN, dtype="float32")
        self.session(on_finding="raise").allreduce(x)
        self.session("--health").allreduce(x)
        with self.assertRaisesRegex(ValueError, "on_finding is 'log'; expected None, 'raise' or a function"):
            self.session(on_finding="log")

    def test_the_text_of_each_kind(self):
        for kind, count, ratio, text in (("non_finite", 3, 0.0, "3 NaN or infinite"), ("zeros", 0, 0.0, "only zeros"),
                                         ("outlier", 0, 23456.0, "largest value 2.35e+04 times the median of the ranks")):
            self.assertEqual(str(sluice.Finding(5, kind, count, ratio, "x")), f"rank 5: {text} in x")

    def test_the_hook_names_bucket_and_step(self):
        address = self.start_reducer("--health")[1]
        for text in self.outputs(self.start_ranks("health_rank.py", 3, address, "hook")):
            printed = json.loads(text)
            self.assertEqual(printed["steps"], 2)
            self.assertRegex(printed["error"], r"rank 1: 1 NaN or infinite in bucket \d+ at step 3")

    def test_the_torch_backend_names_rank_and_tensor(self):
        address = self.start_reducer("--health")[1]
        for rank, text in enumerate(self.outputs(self.start_ranks("health_rank.py", 3, address, "backend"))):
            printed, sick = json.loads(text), r"^rank 1: 1 NaN or infinite in operation \d+, "
            expected = ([r"allreduce of \d+ float32$"], [r"allreduce of 1000 float32$", r"reduce_scatter of 150 float32$"])
            for found, of_rank_0 in zip((printed["training"], printed["calls"]), expected):
                self.assertEqual(len(found), 0 if rank else len(of_rank_0), found)
                for finding, operation in zip(found, of_rank_0):
                    self.assertRegex(finding, sick + operation)
            self.assertRegex(printed["raised"][0], sick + "allreduce of 1000 float32$")
            self.assertEqual(printed["raised"][1], 1)


if __name__ == "__main__":
    main()
