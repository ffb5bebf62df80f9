"""PyTorch tensors on the CPU: types that NumPy lacks, and 16-bit wire types."""

import threading
import unittest
import unittest.mock

import torch
from package_test_bed import ReducerTest, main, open_session
from sluice.completions import CompletionThreads

RANKS = 3


class Tensors(ReducerTest):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)

    def results(self, work, **options):
        results = self.by_ranks(RANKS, self.address, work, **options)
        self.assertEqual([result for result in results if isinstance(result, Exception)], [])
        return results

    def values(self, rank, count=10_007):
        return torch.randn(count, generator=torch.Generator().manual_seed(rank))

    def test_8_and_16_bit_floats_are_added_in_float32_and_rounded_once(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
            inputs = [self.values(rank).to(dtype) for rank in range(RANKS)]
            total = (inputs[0].float() + inputs[1].float()) + inputs[2].float()
            for op, expected in (("sum", total), ("avg", total / RANKS)):
                with self.subTest(dtype=dtype, op=op):
                    for result in self.results(lambda session, op=op, inputs=inputs: session.allreduce(inputs[session.rank].clone(), op)):
                        self.assertEqual(result.dtype, dtype)
                        self.assertTrue(torch.equal(result.float(), expected.to(dtype).float()))

    def test_unsupported_tensors(self):
        with open_session(self.address) as session:
            for kind, text, tensor in (
                    (TypeError, r"^x is bool; supported types are", torch.ones(3) > 0),
                    (TypeError, r"^x is int16;", torch.ones(3, dtype=torch.int16)),
                    (TypeError, r"^x is complex64;", torch.ones(3, dtype=torch.complex64)),
                    (ValueError, r"^x is not contiguous: strides \(1, 3\) for shape \(3, 4\)", torch.ones(4, 3).t()),
                    (ValueError, r"^x has layout torch.sparse_coo", torch.eye(3).to_sparse()),
                    (ValueError, r"^x is on device meta; expected", torch.ones(3, device="meta")),
                    (ValueError, r"^x is a negated view", torch.ones(1, dtype=torch.complex64).conj().imag)):
                with self.subTest(text), self.assertRaisesRegex(kind, text):
                    session.allreduce(tensor)
            weight = torch.nn.Parameter(torch.ones(3))
            self.assertIs(session.allreduce(weight), weight)
            self.assertEqual(session.stats().operations, 1)

    def test_bf16_on_the_wire_halves_the_bytes_and_reports_its_error(self):
        inputs = [self.values(rank) for rank in range(RANKS)]
        as_sent = [x.bfloat16().float() for x in inputs]
        expected = ((as_sent[0] + as_sent[1]) + as_sent[2]).bfloat16().float()

        def work(session):
            out = torch.empty_like(inputs[session.rank])
            session.allreduce(inputs[session.rank], out=out)
            maximum = session.allreduce(inputs[session.rank].clone(), "max")  # only sums and averages are rounded
            return out, maximum, session.stats().payload_bytes_out, session.stream_stats()

        count = inputs[0].numel()
        for rank, (out, maximum, sent, streams) in enumerate(self.results(work, wire_dtype="bf16", measure_error=True)):
            self.assertTrue(torch.equal(out, expected))
            self.assertTrue(torch.equal(maximum, torch.stack(inputs).amax(0)))
            self.assertEqual(sent, 2 * count + 4 * count)
            self.assertEqual(streams.elements_cast, count)
            error = ((as_sent[rank] - inputs[rank]).double().norm() / inputs[rank].double().norm()).item()
            self.assertAlmostEqual(streams.relative_error, error, delta=error * 1e-6)
            self.assertLess(error, 2 ** -8)
        for _, _, _, streams in self.results(work):
            self.assertEqual((streams.elements_cast, streams.relative_error), (0, None))

    def test_f16_on_the_wire_supports_sums_beyond_its_range(self):
        def work(session):
            return session.allreduce(torch.full((1000,), 60_000.0))

        for result in self.results(work, wire_dtype="f16"):
            self.assertTrue(torch.allclose(result, torch.full((1000,), 180_000.0), rtol=2 ** -10))


class HeldOperation:
    """An operation that ends when the test says so."""

    def __init__(self):
        self.ended = threading.Event()

    def wait(self, timeout=None):
        self.ended.wait(timeout)

    def done(self):
        return self.ended.is_set()


class FakeSession:
    def _call_at_close(self, stop):
        self.stop = stop


class Completions(unittest.TestCase):
    def setUp(self):
        self.session = FakeSession()  # the object refers to it weakly
        self.completions = CompletionThreads("test", self.session)
        self.operations = [HeldOperation() for _ in range(50)]
        self.addCleanup(self.end)

    def end(self):
        for operation in self.operations:
            operation.ended.set()
        self.session.stop()

    def futures(self, *values):
        return [self.completions.future_of(operation, value) for operation, value in zip(self.operations, values)]

    def test_one_thread_starts_for_many_operations(self):
        may_run, threads = threading.Event(), []
        self.addCleanup(may_run.set)

        class LateThread(threading.Thread):
            def run(self):
                threads.append(self)
                may_run.wait()
                super().run()

        with unittest.mock.patch.object(threading, "Thread", LateThread):
            futures = self.futures(*(lambda n=n: n for n in range(50)))
            self.assertEqual(len(threads), 1)
            may_run.set()
            for operation in self.operations:
                operation.ended.set()
            self.assertEqual([future.wait() for future in futures], list(range(50)))
        self.assertLess(len(threads), 25)  # one more where a thread is late to leave its callback

    def test_any_exception_of_a_callback_is_that_of_its_future(self):
        def fail(error):
            raise error
        errors = (ValueError("first"), KeyboardInterrupt("second"), SystemExit(3), GeneratorExit("fourth"))
        futures = self.futures(*(lambda error=error: fail(error) for error in errors), lambda: "last")
        for operation in self.operations:
            operation.ended.set()
        self.assertEqual(futures[-1].wait(), "last")
        for future, error in zip(futures, errors):
            with self.assertRaises(BaseException) as raised:
                future.wait()
            self.assertIn(type(error).__name__, f"{type(raised.exception).__name__} {raised.exception}")


if __name__ == "__main__":
    main()
