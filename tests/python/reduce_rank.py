"""A rank that reduces every type with every operator, in place and out of place, and compares with NumPy."""

import os

import numpy
import reference
from package_test_bed import session_of_environment

COUNT = 40_001  # more than one chunk, and not a multiple of anything

with session_of_environment() as session:
    checked = 0
    for dtype in reference.DTYPES:
        contributions = [reference.values(dtype, rank, COUNT) for rank in range(session.ranks)]
        for op in reference.OPS:
            expected = reference.reduced(dtype, op, contributions)
            mine = contributions[session.rank].copy()
            out = numpy.zeros_like(mine)
            assert session.allreduce(mine, op, out) is out
            numpy.testing.assert_array_equal(mine, contributions[session.rank], f"{dtype} {op}: x has changed")
            numpy.testing.assert_array_equal(out, expected, f"{dtype} {op}, out of place")
            assert session.allreduce(mine, op) is mine
            numpy.testing.assert_array_equal(mine, expected, f"{dtype} {op}, in place")
            checked += 1
    print(os.environ["RANK"], checked, session.stats().operations)
