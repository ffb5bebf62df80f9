"""Compares the bits of the block types with an implementation in NumPy, whose E4M3 and E8M0 are those of ml_dtypes (protocol.md section 6)."""

import ctypes
import functools
import os
import unittest

import ml_dtypes
import numpy
from package_test_bed import main

F32, E4M3, E8M0 = numpy.float32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
MXFP8, INT8_BLOCK = 12, 13
VALUES, SCALE_BYTES = 256, 8
NAN = 0x7FC00000


@functools.cache
def library_function(name):
    function = ctypes.CDLL(os.environ["SLUICE_LIBRARY"])[name]
    function.argtypes, function.restype = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p), None
    return function


def encode(dtype, values):
    """Returns the blocks of the library: one row of 264 bytes for each 256 values."""
    blocks = numpy.full((-(-len(values) // VALUES), SCALE_BYTES + VALUES), 0xA5, numpy.uint8)
    library_function("sluice_encode_blocks")(dtype, values.ctypes.data, len(values), blocks.ctypes.data)
    return blocks


def decode(dtype, blocks):
    values = numpy.full(blocks.shape[0] * VALUES, 1, F32)
    library_function("sluice_decode_blocks")(dtype, blocks.ctypes.data, len(values), values.ctypes.data)
    return values


def encode_mxfp8(values):
    """The blocks of multiples of 256 values. E4M3 and E8M0 are exact in float64."""
    with numpy.errstate(invalid="ignore"):  # signaling NaNs
        groups = values.reshape(-1, 32).astype(numpy.float64)
    finite = numpy.isfinite(groups)
    largest = numpy.where(finite, abs(groups), 0).max(axis=1)
    powers = numpy.arange(248, dtype=numpy.uint8).view(E8M0).astype(numpy.float64)
    scales = numpy.searchsorted(448 * powers, largest).astype(numpy.uint8)  # the first that is not below `largest`
    with numpy.errstate(invalid="ignore"):
        scaled = groups / powers[scales][:, None]
    codes = numpy.where(finite, scaled, 0).astype(E4M3).view(numpy.uint8)
    codes = numpy.where(finite, codes, 0x7F).astype(numpy.uint8)
    return numpy.hstack((scales.reshape(-1, 8), codes.reshape(-1, VALUES)))


def decode_mxfp8(blocks):
    scales = numpy.repeat(numpy.ascontiguousarray(blocks[:, :SCALE_BYTES]).view(E8M0).astype(numpy.float64), 32, axis=1)
    codes = numpy.ascontiguousarray(blocks[:, SCALE_BYTES:]).view(E4M3).astype(numpy.float64)
    with numpy.errstate(over="ignore"):
        return (codes * scales).astype(F32).ravel()


def encode_int8_block(values):
    """The blocks of multiples of 256 values, in float32 as the protocol requires."""
    groups = values.reshape(-1, 128)
    finite = numpy.isfinite(groups).all(axis=1)
    largest = numpy.where(finite, abs(groups).max(axis=1, initial=0), 0).astype(F32)
    bits = (largest / F32(127)).view(numpy.uint32) & numpy.uint32(0xFFFFFF00)
    scales = numpy.maximum(bits.view(F32), F32(2**-126))
    scales = numpy.where(largest == 0, F32(0), scales)
    inverses = numpy.divide(F32(1), scales, out=numpy.zeros_like(scales), where=scales != 0)
    codes = numpy.rint(numpy.where(finite[:, None], groups, 0) * inverses[:, None]).astype(numpy.int8)
    scales = numpy.where(finite, scales.view(numpy.uint32), numpy.uint32(NAN))
    return numpy.hstack((scales.reshape(-1, 2).view(numpy.uint8), codes.reshape(-1, VALUES).view(numpy.uint8)))


def decode_int8_block(blocks):
    scales = numpy.repeat(numpy.ascontiguousarray(blocks[:, :SCALE_BYTES]).view(F32).astype(numpy.float64), 128, axis=1)
    codes = numpy.ascontiguousarray(blocks[:, SCALE_BYTES:]).view(numpy.int8)
    with numpy.errstate(over="ignore"):
        return (codes * scales).astype(F32).ravel()


TYPES = {"mxfp8": (MXFP8, encode_mxfp8, decode_mxfp8, 32), "int8-block": (INT8_BLOCK, encode_int8_block, decode_int8_block, 128)}


def blocks_of(scales):
    """Returns a block with all 256 codes for each row of 8 scale bytes."""
    return numpy.hstack((scales, numpy.tile(numpy.arange(VALUES, dtype=numpy.uint8), (len(scales), 1))))


def int8_scales():
    """Returns the scales that senders may use: 0, NaN, and some positive normal numbers of 16 bits of each exponent."""
    random = numpy.random.default_rng(1)
    exponents = numpy.repeat(numpy.arange(1, 255, dtype=numpy.uint32), 64) << 23
    scales = exponents | random.integers(0, 1 << 15, len(exponents), dtype=numpy.uint32) << 8
    return numpy.concatenate((scales, numpy.array([0, NAN, 0x00800000, 0x7F7FFF00], numpy.uint32)))


def ties(group):
    """Returns values halfway between neighboring codes and the float32 values beside them, in groups with any largest value."""
    if group == 32:
        codes = numpy.arange(0x7E, dtype=numpy.uint8)
        halves = (codes.view(E4M3).astype(F32) + (codes + 1).astype(numpy.uint8).view(E4M3).astype(F32)) / 2
        largest = F32(448)
    else:
        halves, largest = numpy.arange(127, dtype=F32) + F32(0.5), F32(127)
    halves = numpy.concatenate((halves, numpy.nextafter(halves, F32(0)), numpy.nextafter(halves, largest)))
    halves = numpy.concatenate((halves, -halves))
    halves = numpy.resize(halves, -(-len(halves) // (group - 1)) * (group - 1)).reshape(-1, group - 1)
    rows = numpy.hstack((numpy.full((len(halves), 1), largest), halves))
    powers = 2.0 ** numpy.arange(-160, 120)
    with numpy.errstate(over="ignore"):
        return (rows.astype(numpy.float64)[None] * powers[:, None, None]).astype(F32).ravel()


def samples(group):
    """Yields (name, values); their numbers are multiples of 256."""
    random = numpy.random.default_rng(2)
    count = 1000 * VALUES
    bits = random.integers(0, 1 << 32, count, dtype=numpy.uint32)
    yield "any bits", bits.view(F32)
    yield "finite bits", numpy.where((bits & 0x7F800000) == 0x7F800000, bits & 0x80FFFFFF, bits).astype(numpy.uint32).view(F32)
    normal = random.standard_normal(count).astype(F32)
    yield "normal", normal
    yield "several magnitudes", numpy.ldexp(normal, numpy.repeat(random.integers(-150, 126, count // group), group)).astype(F32)
    yield "heavy tails", (normal * numpy.exp(4 * random.standard_normal(count))).astype(F32)
    yield "subnormal", (bits & 0x807FFFFF).astype(numpy.uint32).view(F32)
    yield "huge", ((bits & 0x807FFFFF) | 0x7F000000).astype(numpy.uint32).view(F32)
    special = normal.copy()
    special[::97], special[1::89], special[2::83], special[5::5] = numpy.nan, numpy.inf, -numpy.inf, -0.0
    yield "special", special
    rare = normal.copy()
    rare[:: 3 * VALUES], rare[VALUES + 7 :: 3 * VALUES] = numpy.inf, numpy.nan
    yield "a few special", rare
    yield "zeros", numpy.copysign(F32(0), normal)
    edges = numpy.array([0x00000001, 0x007FFFFF, 0x00800000, 0x00800001, 0x7F7FFFFF, 0x43E00000, 0x43E00001, 0x43DFFFFF], numpy.uint32)
    firsts = numpy.arange(count) % group == 0
    yield "one of a group", numpy.where(firsts, numpy.resize(numpy.repeat(edges, group), count), numpy.uint32(0)).view(F32)
    yield "ties", numpy.resize(ties(group), -(-len(ties(group)) // VALUES) * VALUES)


def canonical(values):
    """Returns the bits of float32 values, the same ones for all NaNs."""
    return numpy.where(numpy.isnan(values), numpy.uint32(NAN), values.view(numpy.uint32))


class Blocks(unittest.TestCase):
    def assert_same(self, ours, theirs, what):
        different = numpy.flatnonzero(ours.ravel() != theirs.ravel())
        if len(different):
            first = different[0]
            self.fail(f"{what}: {len(different)} of {ours.size} differ; {first} is {ours.ravel()[first]:#x}, expected {theirs.ravel()[first]:#x}")

    def test_every_code_with_every_scale_has_its_value(self):
        scales = {"mxfp8": numpy.repeat(numpy.arange(256, dtype=numpy.uint8), 8).reshape(-1, 8),
                  "int8-block": numpy.repeat(int8_scales(), 2).view(numpy.uint8).reshape(-1, 8)}
        for name, (dtype, _, expected, _) in TYPES.items():
            blocks = blocks_of(scales[name])
            self.assert_same(canonical(decode(dtype, blocks)), canonical(expected(blocks)), name)

    def test_scales_belong_to_their_groups(self):
        random = numpy.random.default_rng(3)
        scales = {"mxfp8": random.integers(0, 256, (500, 8), dtype=numpy.uint8),
                  "int8-block": random.choice(int8_scales(), (500, 2)).view(numpy.uint8)}
        for name, (dtype, _, expected, _) in TYPES.items():
            blocks = numpy.hstack((scales[name], random.integers(0, 256, (500, VALUES), dtype=numpy.uint8)))
            self.assert_same(canonical(decode(dtype, blocks)), canonical(expected(blocks)), name)

    def test_encoding_has_the_bits_of_the_specification(self):
        for name, (dtype, expected, _, group) in TYPES.items():
            for what, values in samples(group):
                self.assertEqual(len(values) % VALUES, 0)
                self.assert_same(encode(dtype, values), expected(values), f"{name}, {what}")

    def test_last_block_is_filled_up_with_zeros(self):
        random = numpy.random.default_rng(4)
        for name, (dtype, expected, _, _) in TYPES.items():
            for count in (1, 31, 33, 255, 257, 700):
                values = random.standard_normal(count).astype(F32)
                filled = numpy.zeros(-(-count // VALUES) * VALUES, F32)
                filled[:count] = values
                self.assert_same(encode(dtype, values), expected(filled), f"{name}, {count} values")

    def test_decoded_values_keep_their_codes(self):
        for name, (dtype, _, _, group) in TYPES.items():
            for what, values in samples(group):
                if what in ("any bits", "finite bits", "huge", "one of a group"):
                    continue  # the largest float32 values may be rounded up to infinity
                once = decode(dtype, encode(dtype, values))
                self.assert_same(canonical(decode(dtype, encode(dtype, once))), canonical(once), f"{name}, {what}")


if __name__ == "__main__":
    main()
