"""Invalid arguments raise a suitable exception at once and have no effect."""

import subprocess
import sys
from pathlib import Path

import numpy
import sluice
from package_test_bed import DEADLINE_S, PACKAGE, PackageTest, main, open_session, variables

VALUES = numpy.ones(8, dtype="float32")
LONGER = numpy.ones(12, dtype="float32")
READ_ONLY = numpy.ones(8, dtype="float32")
READ_ONLY.flags.writeable = False
UNALIGNED = numpy.frombuffer(bytearray(33), dtype="uint8")[1:].view("float32")


class Refusals(PackageTest):
    @classmethod
    def setUpClass(cls):
        cls.test_bed = cls("shared_reducer")
        cls.test_bed.setUp()
        cls.addClassCleanup(cls.test_bed.doCleanups)
        cls.address = cls.test_bed.start_reducer()[1]
        cls.session = open_session(cls.address)
        cls.addClassCleanup(cls.session.close)

    def shared_reducer(self):
        """Does nothing; unittest needs a method for the instance whose reducer all tests share."""

    def test_unsupported_arrays(self):
        before = self.session.stats().operations  # of other tests
        for kind, text, arguments in (
                (TypeError, r"^x is a list; expected", ([1.0, 2.0],)),
                (TypeError, r"^x is a float; expected", (1.0,)),
                (TypeError, r"^x is bool; supported types are int8, ", (VALUES > 0,)),
                (TypeError, r"^x is int16; ", (VALUES.astype("int16"),)),
                (TypeError, r"^x is complex64; ", (VALUES.astype("complex64"),)),
                (TypeError, r"^x is big-endian float32; ", (VALUES.astype(">f4"),)),
                (TypeError, r"^x is float32, but out is float64$", (VALUES, "sum", VALUES.astype("float64"))),
                (ValueError, r"^x is not contiguous: strides \(8,\) bytes for shape \(4,\)", (VALUES[::2],)),
                (ValueError, r"^x is not contiguous", (VALUES.reshape(2, 4).T,)),
                (ValueError, r"^x is not aligned", (UNALIGNED,)),
                (ValueError, r"^x is read-only and cannot receive the result; pass a writable array as out=", (READ_ONLY,)),
                (ValueError, r"^out is read-only", (VALUES, "sum", READ_ONLY)),
                (ValueError, r"^out is not contiguous", (VALUES[:4], "sum", VALUES[::2])),
                (ValueError, r"^x has shape \(8,\), but out has shape \(2, 4\)", (VALUES, "sum", VALUES.copy().reshape(2, 4))),
                (ValueError, r"^x and out overlap", (LONGER[:8], "sum", LONGER[4:])),
                (ValueError, r"^op is 'mean'; expected one of sum, prod, min, max, avg", (VALUES, "mean"))):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                self.session.allreduce(*arguments)
        with self.assertRaisesRegex(TypeError, "stream is a str; expected a handle"):
            self.session.allreduce(VALUES, stream="side")
        self.assertEqual((self.session.stats().operations, self.session.error()), (before, None))

    def test_invalid_options(self):
        for kind, text, options in (
                (TypeError, "unexpected keyword argument 'windowbytes'", {"windowbytes": 1}),
                (TypeError, "lanes is 1.5; expected an integer", {"lanes": 1.5}),
                (ValueError, r"lanes is -1; expected 0\.\.4294967295", {"lanes": -1}),
                (ValueError, r"window_bytes is 4294967296; expected 0\.\.", {"window_bytes": 1 << 32}),
                (ValueError, "session_id has 3 bytes; expected 16", {"session_id": b"abc"}),
                (ValueError, "wire_dtype is 'fp8'; expected None, 'f32', 'bf16', 'f16', 'mxfp8' or 'int8'", {"wire_dtype": "fp8"}),
                (ValueError, "device is 'tpu'; expected 'cpu', 'cuda'", {"device": "tpu"}),
                (ValueError, "device is -2; expected the ordinal", {"device": -2}),
                (sluice.InvalidArgument, "session_id is all zero", {"session_id": bytes(16)}),
                (sluice.InvalidArgument, r"rank 3 is not in 0\.\.0", {"rank": 3}),
                (sluice.InvalidArgument, "piece_bytes", {"piece_bytes": 1000}),
                (sluice.System, "no/such/key", {"key_file": self.folder / "no/such/key"})):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                open_session(self.address, **options)
        with self.assertRaisesRegex(sluice.InvalidArgument, "^reducers: "):
            open_session("nobody:99999")

    def test_timeouts_are_numbers_of_seconds(self):
        request = self.session.allreduce_async(VALUES.copy())
        self.assertRaisesRegex(TypeError, "timeout is '5'; expected a number of seconds", request.wait, "5")
        self.assertRaisesRegex(ValueError, "timeout is -0.5 s; expected 0 or more", request.wait, -0.5)
        request.wait(numpy.float32(DEADLINE_S))

    def test_unreachable_and_refusing_reducers(self):
        port = self.reserve_port()
        with self.assertRaises(sluice.Timeout) as caught:
            open_session(f"127.0.0.1:{port}", connect_timeout_ms=200)
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertEqual(caught.exception.status, 5)
        with self.assertRaisesRegex(sluice.Refused, "bytes; the memory limit is"):
            open_session(self.start_reducer("--memory-limit", "1M")[1])

    def test_a_missing_gpu(self):
        if Path("/proc/driver/nvidia").exists():
            self.skipTest("left out: this machine has a driver for GPUs")
        for device in ("cuda", "cuda:1", 0):
            with self.subTest(device), self.assertRaises(sluice.Unsupported) as caught:
                open_session(self.address, device=device)
            self.assertNotEqual(str(caught.exception), "unsupported", "the text must contain the cause")

    def test_a_missing_or_wrong_library(self):
        program = "import sluice\ntry: sluice.library_version()\nexcept sluice.LibraryNotFound as e: print(isinstance(e, ImportError), e)"
        for file, text in (("/no/such/libsluice.so.0", "True cannot load libsluice: /no/such/libsluice.so.0: cannot open shared object file"),
                            ("libm.so.6", "True libm.so.6 has no function sluice_version: it is not libsluice, or older than this package")):
            done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=True,
                                  env=variables(SLUICE_LIBRARY=file))
            self.assertIn(text, done.stdout)

    def test_unsupported_releases_of_torch(self):
        for version, is_available, reason in (("2.3.1+cpu", True, "is too old: the backend 'sluice' needs torch 2.4 or later"),
                                              ("2.15.0", False, "was built without torch.distributed or gloo: the backend 'sluice' needs torch 2.4 or later with both")):
            with self.subTest(version):
                folder = self.folder / version
                (folder / "torch").mkdir(parents=True)
                (folder / "torch" / "__init__.py").write_text(f"__version__ = {version!r}\n")
                (folder / "torch" / "distributed.py").write_text(f"def is_available(): return {is_available}\n")
                process = self.python("-c", "import sluice.torch", PYTHONPATH=f"{folder}:{PACKAGE / 'src'}")
                _, error = process.communicate(timeout=DEADLINE_S)
                self.assertEqual(error.splitlines()[-1], f"sluice.errors.Unsupported: torch {version} {reason}")

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
