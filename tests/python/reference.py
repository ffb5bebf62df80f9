"""What a reduction must give, bit for bit, by numpy: wire/PROTOCOL.md section 7, for up to eight ranks."""

import numpy

DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
OPS = ("sum", "prod", "min", "max", "avg")


def values(dtype, rank, count):
    """A rank's numbers: for integers any bits, so that sums wrap; for floats of either sign and of many sizes."""
    random = numpy.random.default_rng([rank, DTYPES.index(dtype)])
    kind = numpy.dtype(dtype)
    if kind.kind in "iu":
        return numpy.frombuffer(random.bytes(count * kind.itemsize), dtype=dtype).copy()
    return (random.standard_normal(count) * 2.0 ** random.integers(-4, 4, count)).astype(dtype)


def reduced(dtype, op, contributions):
    """16 bit floats are added in float32 and rounded once; integers wrap; averages of integers go towards zero."""
    wide = numpy.float32 if dtype == "float16" else numpy.dtype(dtype).type
    fold = {"sum": numpy.add, "avg": numpy.add, "prod": numpy.multiply, "min": numpy.minimum, "max": numpy.maximum}[op]
    total = contributions[0].astype(wide)
    for contribution in contributions[1:]:
        total = fold(total, contribution.astype(wide))
    if op == "avg":
        ranks = len(contributions)
        if total.dtype.kind in "iu":
            total = numpy.sign(total) * (abs(total.astype(object)) // ranks).astype(total.dtype)
        else:
            total = total / wide(ranks)
    return total.astype(dtype)
