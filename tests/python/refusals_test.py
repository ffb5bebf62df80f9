"""What is wrong is said at once, by the exception of its kind, and nothing is done."""

import subprocess
import sys
from pathlib import Path

import numpy
import sluice
from package_bed import DEADLINE_S, PACKAGE, PackageTest, main, open_session, variables
from sluice_process import closed_port

WORDS = numpy.ones(8, dtype="float32")
TWICE = numpy.ones(12, dtype="float32")
READ_ONLY = numpy.ones(8, dtype="float32")
READ_ONLY.flags.writeable = False
ODD = numpy.frombuffer(bytearray(33), dtype="uint8")[1:].view("float32")


class Refusals(PackageTest):
    @classmethod
    def setUpClass(cls):
        cls.bed = cls("start_bed")
        cls.bed.setUp()
        cls.addClassCleanup(cls.bed.doCleanups)
        cls.address = cls.bed.start_reducer()[1]
        cls.session = open_session(cls.address)
        cls.addClassCleanup(cls.session.close)

    def start_bed(self):
        """unittest wants a name for the test whose reducer all others share."""

    def test_arrays_that_cannot_be_reduced(self):
        for kind, words, arguments in (
                (TypeError, r"^x is a list, neither", ([1.0, 2.0],)),
                (TypeError, r"^x is a float, neither", (1.0,)),
                (TypeError, r"^x is bool; what can be reduced is int8, ", (WORDS > 0,)),
                (TypeError, r"^x is int16; ", (WORDS.astype("int16"),)),
                (TypeError, r"^x is complex64; ", (WORDS.astype("complex64"),)),
                (TypeError, r"^x is float32 of the other byte order; ", (WORDS.astype(">f4"),)),
                (TypeError, r"^x is float32, out is float64$", (WORDS, "sum", WORDS.astype("float64"))),
                (ValueError, r"^x is not contiguous: its strides are \(8,\) bytes for the shape \(4,\)", (WORDS[::2],)),
                (ValueError, r"^x is not contiguous", (WORDS.reshape(2, 4).T,)),
                (ValueError, r"^x is not aligned", (ODD,)),
                (ValueError, r"^x is read-only, and the result would go there: give out=", (READ_ONLY,)),
                (ValueError, r"^out is read-only", (WORDS, "sum", READ_ONLY)),
                (ValueError, r"^out is not contiguous", (WORDS[:4], "sum", WORDS[::2])),
                (ValueError, r"^x has the shape \(8,\), out \(2, 4\)", (WORDS, "sum", WORDS.copy().reshape(2, 4))),
                (ValueError, r"^x and out overlap", (TWICE[:8], "sum", TWICE[4:])),
                (ValueError, r"^op is 'mean'; there are sum, prod, min, max, avg", (WORDS, "mean"))):
            with self.subTest(words), self.assertRaisesRegex(kind, words):
                self.session.allreduce(*arguments)
        with self.assertRaisesRegex(TypeError, "stream is a str, which has none of"):
            self.session.allreduce(WORDS, stream="side")
        self.assertEqual((self.session.stats().operations, self.session.error()), (0, None))

    def test_options_that_are_none(self):
        for kind, words, options in (
                (TypeError, "unexpected keyword argument 'windowbytes'", {"windowbytes": 1}),
                (TypeError, "lanes is 1.5, not a whole number", {"lanes": 1.5}),
                (ValueError, r"lanes is -1, which is not in 0\.\.4294967295", {"lanes": -1}),
                (ValueError, r"window_bytes is 4294967296, which is not in", {"window_bytes": 1 << 32}),
                (ValueError, "session_id has 3 bytes, not 16", {"session_id": b"abc"}),
                (ValueError, "wire_dtype is 'fp8', not None, 'bf16' or 'f16'", {"wire_dtype": "fp8"}),
                (ValueError, "device is 'tpu', not 'cpu', 'cuda'", {"device": "tpu"}),
                (ValueError, "device is -2, which is no GPU's", {"device": -2}),
                (sluice.InvalidArgument, "session_id is all zero", {"session_id": bytes(16)}),
                (sluice.InvalidArgument, r"rank 3 is not in 0\.\.0", {"rank": 3}),
                (sluice.InvalidArgument, "piece_bytes", {"piece_bytes": 1000}),
                (sluice.System, "no/such/key", {"key_file": self.folder / "no/such/key"})):
            with self.subTest(words), self.assertRaisesRegex(kind, words):
                open_session(self.address, **options)
        with self.assertRaisesRegex(sluice.InvalidArgument, "^reducers: "):
            open_session("nobody:99999")

    def test_reducers_that_are_not_there_or_refuse(self):
        holder, port = closed_port()
        with holder, self.assertRaises(sluice.Timeout) as caught:
            open_session(f"127.0.0.1:{port}", connect_timeout_ms=200)
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertEqual(caught.exception.status, 5)
        with self.assertRaisesRegex(sluice.Refused, "bytes here; the limit is"):
            open_session(self.start_reducer("--memory-limit", "1M")[1])

    def test_a_gpu_that_is_not_there(self):
        if Path("/proc/driver/nvidia").exists():
            self.skipTest("left out: this machine has a driver for GPUs")
        for device in ("cuda", "cuda:1", 0):
            with self.subTest(device), self.assertRaises(sluice.Unsupported) as caught:
                open_session(self.address, device=device)
            self.assertNotEqual(str(caught.exception), "unsupported", "it says why")

    def test_a_library_that_is_not_there_or_is_another(self):
        ask = "import sluice\ntry: sluice.library_version()\nexcept sluice.LibraryNotFound as e: print(isinstance(e, ImportError), e)"
        for file, words in (("/no/such/libsluice.so.0", "True no libsluice: /no/such/libsluice.so.0: cannot open shared object file"),
                            ("libm.so.6", "True libm.so.6 has no sluice_version: it is no libsluice, or one older than this package")):
            done = subprocess.run([sys.executable, "-B", "-c", ask], capture_output=True, text=True, timeout=DEADLINE_S, check=True,
                                  env=variables(SLUICE_LIBRARY=file))
            self.assertIn(words, done.stdout)

    def test_versions_and_structs_are_those_of_the_headers(self):
        version = (PACKAGE.parents[1] / "VERSION").read_text().strip()
        self.assertEqual((sluice.__version__, sluice.library_version()), (version, version))
        lines, expected = [], []
        for struct, name in ((sluice._library.Options, "sluice_options"), (sluice._library.Stats, "sluice_stats"),
                             (sluice._library.StreamOptions, "sluice_stream_options"), (sluice._library.StreamStats, "sluice_stream_stats")):
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected.append(f"{name} {sluice._library.ctypes.sizeof(struct)}")
            for field, *_ in struct._fields_:
                lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
                expected.append(f"{name}.{field} {getattr(struct, field).offset}")
        source = self.folder / "structs.c"
        source.write_text("#include <sluice/streams.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n")
        program = self.folder / "structs"
        subprocess.run(["cc", "-I", PACKAGE.parent / "include", source, "-o", program], check=True, timeout=DEADLINE_S)
        printed = subprocess.run([program], capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
        self.assertEqual(printed.splitlines(), expected)


if __name__ == "__main__":
    main()
