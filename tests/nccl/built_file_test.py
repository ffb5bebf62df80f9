"""The dependencies and the exported symbols of the built plugin."""

import re
import subprocess

import nccl_player
import sluice_process
from sluice_process import SluiceTest

NEEDED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
NEWEST_GLIBC = (2, 34)
SYMBOLS = {f"ncclNetPlugin_v{version}" for version in range(5, 13)} | {
    f"ncclCollNetPlugin_v{version}" for version in range(8, 13)} | {f"ncclTunerPlugin_v{version}" for version in range(2, 8)} | {
    f"ncclProfiler_v{version}" for version in range(1, 8)}


def readelf(*options, of=None):
    return subprocess.run(["readelf", "--wide", *options, str(of or nccl_player.PLUGIN)], capture_output=True, text=True, check=True).stdout


class BuiltFile(SluiceTest):
    def symbols(self, of=None):
        """Yields (name, is defined) of the dynamic symbols, without versions."""
        for line in readelf("--dyn-syms", of=of).splitlines():
            fields = line.split()
            if len(fields) >= 8 and fields[0].rstrip(":").isdigit() and fields[4] in ("GLOBAL", "WEAK"):
                yield fields[7], fields[6] != "UND"

    def test_exports_the_tables_and_nothing_else(self):
        self.assertEqual({name.split("@")[0] for name, defined in self.symbols() if defined and "@" not in name}, SYMBOLS)

    def test_needs_only_the_c_library(self):
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic")))
        self.assertLessEqual(needed, NEEDED)

    def test_only_the_tls_library_needs_openssl(self):
        for file in (nccl_player.PLUGIN, nccl_player.library_beside_plugin("libsluice.so"), sluice_process.PROGRAM):
            self.assertEqual(re.findall(r"\(NEEDED\).*(?:ssl|crypto|sluice_tls).*", readelf("--dynamic", of=file)), [])
        library = nccl_player.library_beside_plugin("libsluice_tls.so")
        if library.exists():
            self.assertEqual({name.split("@")[0] for name, defined in self.symbols(library) if defined and "@" not in name}, {"sluice_tls_v1"})

    def test_uses_no_symbol_of_cuda(self):
        undefined = [name for name, defined in self.symbols() if not defined]
        self.assertEqual([name for name in undefined if re.match(r"cu[A-Z]|cuda|nccl|nv[A-Z]", name)], [])

    def test_needs_no_glibc_newer_than_2_34(self):
        versions = set(re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("--version-info")))
        self.assertTrue(versions)
        self.assertEqual({version for version in versions if tuple(map(int, version)) > NEWEST_GLIBC}, set())
        self.assertEqual(re.findall(r"GLIBCXX_[\d.]+|CXXABI_[\d.]+", readelf("--version-info")), [])

    def test_stays_loaded_after_dlclose(self):
        self.assertRegex(readelf("--dynamic"), r"FLAGS_1.*NODELETE")

    def test_has_no_library_search_path(self):
        self.assertNotRegex(readelf("--dynamic"), r"R(UN)?PATH")


if __name__ == "__main__":
    nccl_player.main()
