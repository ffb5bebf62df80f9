"""A rank that reduces every type by every operation, in place and beside, and compares with what numpy makes of it."""

import os

import numpy
import reference
from package_bed import session_of_environment

COUNT = 40_001  # more than one chunk, and no round number

with session_of_environment() as session:
    checked = 0
    for dtype in reference.DTYPES:
        contributions = [reference.values(dtype, rank, COUNT) for rank in range(session.ranks)]
        for op in reference.OPS:
            expected = reference.reduced(dtype, op, contributions)
            mine = contributions[session.rank].copy()
            out = numpy.zeros_like(mine)
            assert session.allreduce(mine, op, out) is out
            numpy.testing.assert_array_equal(mine, contributions[session.rank], f"{dtype} {op}: x is not what it was")
            numpy.testing.assert_array_equal(out, expected, f"{dtype} {op}, beside")
            assert session.allreduce(mine, op) is mine
            numpy.testing.assert_array_equal(mine, expected, f"{dtype} {op}, in place")
            checked += 1
    print(os.environ["RANK"], checked, session.stats().operations)
