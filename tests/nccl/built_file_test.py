"""The dependencies and the exported symbols of the built plugin, and of a module built like it that contains a reducer."""

import ctypes
import re
import subprocess
from pathlib import Path

import nccl_player
import sluice_process
from sluice_process import SluiceTest

NEEDED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
NEWEST_GLIBC = (2, 34)
SYMBOLS = {f"ncclNetPlugin_v{version}" for version in range(5, 13)} | {
    f"ncclCollNetPlugin_v{version}" for version in range(8, 13)} | {f"ncclTunerPlugin_v{version}" for version in range(2, 8)} | {
    f"ncclProfiler_v{version}" for version in range(1, 8)}
REDUCER_SYMBOLS = {"hosted_reducer_start", "hosted_reducer_stop"}


def reducer_module():
    return nccl_player.library_beside_plugin("libsluice_hosted_reducer.so")


def readelf(*options, of):
    return subprocess.run(["readelf", "--wide", *options, str(of)], capture_output=True, text=True, check=True).stdout


def symbols(of):
    """Yields (name, is defined) of the dynamic symbols, without versions."""
    for line in readelf("--dyn-syms", of=of).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit() and fields[4] in ("GLOBAL", "WEAK"):
            yield fields[7], fields[6] != "UND"


def exported(of):
    return {name.split("@")[0] for name, defined in symbols(of) if defined and "@" not in name}


class BuiltFile(SluiceTest):
    def modules(self):
        for module in (nccl_player.PLUGIN, reducer_module()):
            with self.subTest(module.name):
                yield module

    def test_exports_the_tables_and_nothing_else(self):
        self.assertEqual(exported(nccl_player.PLUGIN), SYMBOLS)
        self.assertEqual(exported(reducer_module()), REDUCER_SYMBOLS)

    def test_needs_only_the_c_library(self):
        for module in self.modules():
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic", of=module)))
            self.assertLessEqual(needed, NEEDED)

    def test_only_the_tls_library_needs_openssl(self):
        for file in (nccl_player.PLUGIN, nccl_player.library_beside_plugin("libsluice.so"), sluice_process.PROGRAM):
            self.assertEqual(re.findall(r"\(NEEDED\).*(?:ssl|crypto|sluice_tls).*", readelf("--dynamic", of=file)), [])
        library = nccl_player.library_beside_plugin("libsluice_tls.so")
        if library.exists():
            self.assertEqual(exported(library), {"sluice_tls_v2"})

    def test_uses_no_symbol_of_cuda(self):
        undefined = [name for name, defined in symbols(nccl_player.PLUGIN) if not defined]
        self.assertEqual([name for name in undefined if re.match(r"cu[A-Z]|cuda|nccl|nv[A-Z]", name)], [])

    def test_needs_no_glibc_newer_than_2_34(self):
        for module in self.modules():
            versions = set(re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("--version-info", of=module)))
            self.assertTrue(versions)
            self.assertEqual({version for version in versions if tuple(map(int, version)) > NEWEST_GLIBC}, set())
            self.assertEqual(re.findall(r"GLIBCXX_[\d.]+|CXXABI_[\d.]+", readelf("--version-info", of=module)), [])

    def test_stays_loaded_after_dlclose(self):
        for module in self.modules():
            self.assertRegex(readelf("--dynamic", of=module), r"FLAGS_1.*NODELETE")

    def test_has_no_library_search_path(self):
        for module in self.modules():
            self.assertNotRegex(readelf("--dynamic", of=module), r"R(UN)?PATH")


class ReducerModule(SluiceTest):
    def test_serves_inside_a_foreign_process(self):
        library = ctypes.CDLL(str(reducer_module()))
        library.hosted_reducer_start.restype = ctypes.c_uint16
        threads = lambda: len(list(Path("/proc/self/task").iterdir()))
        before = threads()
        port = library.hosted_reducer_start()
        self.addCleanup(library.hosted_reducer_stop)
        self.assertNotEqual(port, 0)
        self.assertEqual(threads(), before + 2)  # the control loop and a lane
        self.run_sluice("bench", "allreduce", "-b", "64K", "-e", "64K", "-n", 3, "--workers", 2, "--connect", f"127.0.0.1:{port}")
        library.hosted_reducer_stop()
        self.assertEqual(threads(), before)


if __name__ == "__main__":
    nccl_player.main()
