"""Compares the package's structs and functions with libsluice-0.abi, the recorded ABI of the library."""

import unittest

from package_test_bed import ROOT, main
from sluice import _library

RECORD = ROOT / "tests" / "unit" / "gpu_client" / "libsluice-0.abi"
STRUCTS = {"sluice_options": _library.Options, "sluice_stats": _library.Stats, "sluice_finding": _library.Finding,
           "sluice_stream_options": _library.StreamOptions, "sluice_stream_stats": _library.StreamStats, "sluice_store_options": _library.StoreOptions}


class Layout(unittest.TestCase):
    def setUp(self):
        self.lines = [line.split() for line in RECORD.read_text().splitlines()]

    def test_fields_have_the_offsets_of_the_library(self):
        recorded = {}
        for kind, name, *rest in self.lines:
            if kind == "field":
                struct, field = name.split(".")
                recorded.setdefault(struct, {})[field] = (int(rest[1]), int(rest[3]))
        self.assertEqual(recorded.keys(), STRUCTS.keys())
        for name, struct in STRUCTS.items():
            ours = {field: (getattr(struct, field).offset, getattr(struct, field).size) for field, _ in struct._fields_}
            self.assertEqual(ours, recorded[name], name)

    def test_values_are_those_of_the_library(self):
        numbers = {name: int(rest[0]) for kind, name, *rest in self.lines if kind == "number"}
        names = {"int8": "I8", "uint8": "U8", "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "float32": "F32",
                 "float64": "F64", "bfloat16": "BF16", "float8_e4m3fn": "F8E4M3", "float8_e5m2": "F8E5M2"}
        self.assertEqual(_library.DTYPES, {ours: numbers[f"SLUICE_{theirs}"] for ours, theirs in names.items()})
        self.assertEqual(_library.OPS, {op: numbers[f"SLUICE_{op.upper()}"] for op in _library.OPS})
        wire = {"f32": "WIRE_AS_GIVEN", "f16": "F16", "bf16": "BF16", "mxfp8": "MXFP8", "int8": "INT8_BLOCK"}
        self.assertEqual(_library.WIRE_DTYPES, {ours: numbers[f"SLUICE_{theirs}"] for ours, theirs in wire.items()})

    def test_every_function_exists_in_the_library(self):
        symbols = {name.split("@@")[0] for kind, name, *_ in self.lines if kind == "symbol"}
        self.assertLessEqual(_library._PROTOTYPES.keys(), symbols)


if __name__ == "__main__":
    main()
