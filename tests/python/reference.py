"""Computes the expected bits of reductions with NumPy: docs/reference/protocol.md section 7."""

import numpy

DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
OPS = ("sum", "prod", "min", "max", "avg")


def values(dtype, rank, count):
    """Returns a rank's values: random bits for integers, so that sums wrap; floats of both signs and several magnitudes."""
    random = numpy.random.default_rng([rank, DTYPES.index(dtype)])
    kind = numpy.dtype(dtype)
    if kind.kind in "iu":
        return numpy.frombuffer(random.bytes(count * kind.itemsize), dtype=dtype).copy()
    return (random.standard_normal(count) * 2.0 ** random.integers(-4, 4, count)).astype(dtype)


def tree(fold, values):
    """Folds as a balanced binary tree: the largest power of two below the number of values on the left."""
    if len(values) == 1:
        return values[0]
    left = 1 << (len(values) - 1).bit_length() - 1
    return fold(tree(fold, values[:left]), tree(fold, values[left:]))


def reduced(dtype, op, contributions):
    """Adds 16-bit floats in float32 and rounds once. Integers wrap, and averages of integers round towards zero."""
    wide = numpy.float32 if dtype == "float16" else numpy.dtype(dtype).type
    fold = {"sum": numpy.add, "avg": numpy.add, "prod": numpy.multiply, "min": numpy.minimum, "max": numpy.maximum}[op]
    total = tree(fold, [contribution.astype(wide) for contribution in contributions])
    if op == "avg":
        ranks = len(contributions)
        if total.dtype.kind in "iu":
            total = numpy.sign(total) * (abs(total.astype(object)) // ranks).astype(total.dtype)
        else:
            total = total / wide(ranks)
    return total.astype(dtype)
