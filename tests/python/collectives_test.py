"""Reduce-scatter, all-gather, reduce and broadcast of NumPy arrays: results, bytes on the network, and wrong calls."""

import numpy
import reference
import sluice
from package_test_bed import PackageTest, main, open_session

COUNTS = (0, 1, 7, 5_003, 300_001)


class Collectives(PackageTest):
    def pools(self):
        return "none", ",".join(self.start_reducer()[1] for _ in range(2))

    def expect_results(self, ranks, work, **options):
        for reducers in self.pools():
            with self.subTest(reducers=reducers):
                for error in self.by_ranks(ranks, reducers, work, **options):
                    self.assertIsNone(error)

    def test_every_type_and_operator_has_the_bits_of_allreduce(self):
        def work(session):
            for dtype in reference.DTYPES:
                for op in reference.OPS:
                    inputs = [reference.values(dtype, rank, 3 * 1_001) for rank in range(3)]
                    expected = reference.reduced(dtype, op, inputs)
                    mine = slice(session.rank * 1_001, (session.rank + 1) * 1_001)
                    x, out = inputs[session.rank].copy(), numpy.zeros(1_001, inputs[0].dtype)
                    session.reduce_scatter_async(x, out, op).wait()
                    numpy.testing.assert_array_equal(out, expected[mine], f"{dtype} {op}")
                    numpy.testing.assert_array_equal(x, inputs[session.rank], "x has changed")
                    session.reduce_scatter_async(x, x[mine], op).wait()
                    numpy.testing.assert_array_equal(x[mine], expected[mine], f"{dtype} {op} in place")
                    x = inputs[session.rank].copy()
                    session.reduce_async(x, op, root=2).wait()
                    numpy.testing.assert_array_equal(x, expected if session.rank == 2 else inputs[session.rank], f"{dtype} {op}")

        self.expect_results(3, work)

    def test_parts_of_any_sizes_are_gathered(self):
        def work(session):
            for count in COUNTS:
                for counts in (None, [count * ((rank + 2) % 3) for rank in range(session.ranks)]):
                    parts = [numpy.full(count if counts is None else counts[rank], rank + 1.5) for rank in range(session.ranks)]
                    expected, mine = numpy.concatenate(parts), parts[session.rank]
                    out = numpy.zeros_like(expected)
                    session.all_gather_async(mine, out, counts=counts).wait()
                    numpy.testing.assert_array_equal(out, expected)
                    begin = sum(len(part) for part in parts[:session.rank])
                    out[:] = 0
                    out[begin:begin + len(mine)] = mine
                    session.all_gather_async(out[begin:begin + len(mine)], out, counts=counts).wait()
                    numpy.testing.assert_array_equal(out, expected)
                    back = numpy.zeros_like(mine)
                    session.reduce_scatter_async(out, back, counts=counts).wait()
                    numpy.testing.assert_array_equal(back, mine * session.ranks)

        self.expect_results(4, work)

    def test_a_broadcast_reaches_all_ranks_and_operations_keep_their_order(self):
        def work(session):
            arrays = [numpy.full(count, 10 * session.rank + root, "int32") for root in range(session.ranks) for count in COUNTS]
            sums = [numpy.ones(1_000, "float32") for _ in arrays]
            requests = []
            for i, (x, y) in enumerate(zip(arrays, sums)):
                requests += [session.allreduce_async(y), session.broadcast_async(x, root=i // len(COUNTS))]
            for request in requests:
                request.wait()
            for i, x in enumerate(arrays):
                numpy.testing.assert_array_equal(x, 11 * (i // len(COUNTS)))
            for y in sums:
                numpy.testing.assert_array_equal(y, session.ranks)

        self.expect_results(3, work)
        self.expect_results(10, work)  # more than one group of ranks

    def test_ranks_send_and_receive_no_more_than_they_must(self):
        part = 1_000_000

        def bytes_of(session, call):
            before = session.stats()
            call().wait()
            after = session.stats()
            return after.payload_bytes_out - before.payload_bytes_out, after.payload_bytes_in - before.payload_bytes_in

        def work(session):
            whole, own = numpy.ones(4 * part, "uint8"), numpy.ones(part, "uint8")
            return (bytes_of(session, lambda: session.reduce_scatter_async(whole, own)), bytes_of(session, lambda: session.all_gather_async(own, whole)),
                    bytes_of(session, lambda: session.broadcast_async(own, root=1)), bytes_of(session, lambda: session.reduce_async(own, root=1)))

        for rank, found in enumerate(self.by_ranks(4, self.start_reducer()[1], work)):
            is_root = rank == 1
            self.assertEqual(found, ((4 * part, part), (part, 3 * part), (part, 0) if is_root else (0, part), (part, part if is_root else 0)))

    def test_ranks_that_call_differently_are_told_both_calls(self):
        def expect_mismatch(call, text):
            for error in self.by_ranks(2, reducer, lambda session: call(session).wait()):
                self.assertIsInstance(error, sluice.Mismatch)
                self.assertRegex(str(error), text)

        _, reducer = self.start_reducer()
        ones = numpy.ones(100, "float32")
        expect_mismatch(lambda s: s.broadcast_async(ones, root=s.rank), "disagree on root")
        expect_mismatch(lambda s: s.broadcast_async(ones) if s.rank else s.reduce_async(ones),
                        r"disagree on kind: rank \d operation 0 is (reduce|broadcast) of count 100 .*, rank \d operation 0 is (reduce|broadcast) of")
        expect_mismatch(lambda s: s.reduce_scatter_async(ones, numpy.ones(50 if s.rank else 40, "float32"), counts=[50, 50] if s.rank else [40, 60]),
                        "disagree on counts")

    def test_unsuitable_arguments_are_refused_before_the_call(self):
        ones, whole = numpy.ones(10, "float32"), numpy.ones(20, "float32")
        readonly = numpy.ones(10, "float32")
        readonly.flags.writeable = False
        with open_session(self.start_reducer()[1]) as session:
            for kind, text, call in (
                    (ValueError, "the arrays have 20 and 10 elements; expected 20 and 20", lambda: session.reduce_scatter_async(whole, ones)),
                    (ValueError, "counts is .*; expected 1 numbers", lambda: session.all_gather_async(ones, whole, counts=[10, 10])),
                    (ValueError, "root is 1; expected a rank, 0 to 0", lambda: session.broadcast_async(ones, root=1)),
                    (ValueError, "op is 'mean'", lambda: session.reduce_async(ones, "mean")),
                    (ValueError, "out is read-only", lambda: session.reduce_scatter_async(ones, readonly)),
                    (TypeError, "x is float32, but out is float64", lambda: session.all_gather_async(ones, numpy.ones(10))),
                    (ValueError, "x is float32 of shape", lambda: session.reduce_async(ones, out=whole)),
                    (sluice.InvalidArgument, "", lambda: session.all_gather_async(whole[5:15], whole[:10]))):
                with self.subTest(text), self.assertRaisesRegex(kind, text):
                    call()
            with self.assertRaisesRegex(ValueError, "root is 1"), session.group():
                session.broadcast_async(ones, root=1)
            session.allreduce(ones)

    def test_a_group_has_operations_of_all_kinds(self):
        def work(session):
            parts = [numpy.full(3 + session.rank, session.rank + i, "float64") for i in range(5)]
            counts = [3 + rank for rank in range(session.ranks)]
            wholes = [numpy.zeros(sum(counts)) for _ in parts]
            scattered = [numpy.zeros(3 + session.rank) for _ in parts]
            whole, root = numpy.arange(sum(counts), dtype="float64"), numpy.full(7, session.rank, "int8")
            total = numpy.ones(4)
            with session.group() as request:
                for part, gathered, mine in zip(parts, wholes, scattered):
                    self.assertIs(session.all_gather_async(part, gathered, counts=counts), request)
                    session.reduce_scatter_async(whole, mine, "max", counts=counts)
                session.broadcast_async(root, root=2)
                session.reduce_async(total, root=1)
                session.allreduce_async(total[:0])
            request.wait()
            for i, (gathered, mine) in enumerate(zip(wholes, scattered)):
                numpy.testing.assert_array_equal(gathered, numpy.concatenate([numpy.full(n, rank + i) for rank, n in enumerate(counts)]))
                numpy.testing.assert_array_equal(mine, whole[sum(counts[:session.rank]):][:len(mine)])
            numpy.testing.assert_array_equal(root, 2)
            numpy.testing.assert_array_equal(total, session.ranks if session.rank == 1 else 1)

        self.expect_results(3, work)

    def test_sums_travel_in_the_wire_type_and_keep_their_errors(self):
        def work(session):
            counts = [100, 70_000, 0]
            random = numpy.random.default_rng(session.rank)
            x, residual = random.standard_normal(70_100).astype("float32"), numpy.zeros(70_100, "float32")
            contributed = x.copy()
            mine = numpy.zeros(counts[session.rank], "float32")
            before = session.stats().payload_bytes_out
            session.reduce_scatter_async(x, mine, counts=counts, residual=residual).wait()
            sent = session.stats().payload_bytes_out - before
            numpy.testing.assert_array_equal(x, contributed)
            exact = sum(numpy.random.default_rng(rank).standard_normal(70_100).astype("float32") for rank in range(3))
            numpy.testing.assert_allclose(mine, exact[sum(counts[:session.rank]):][:len(mine)], atol=0.6)
            gathered = numpy.zeros(70_100, "float32")
            session.all_gather_async(mine, gathered, counts=counts).wait()  # not rounded again
            numpy.testing.assert_array_equal(gathered[sum(counts[:session.rank]):][:len(mine)], mine)
            return sent, bool((residual != 0).any())

        reducer = self.start_reducer()[1]
        blocks = (1 + -(-70_000 // 256)) * 264
        for wire, expected in (("bf16", (140_200, False)), ("mxfp8", (blocks, True)), ("int8", (blocks, True))):
            with self.subTest(wire):
                self.assertEqual(self.by_ranks(3, reducer, work, wire_dtype=wire), [expected] * 3)


if __name__ == "__main__":
    main()
