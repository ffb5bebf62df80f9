"""Real libnccl loads the built plugin without a GPU. Releases up to 2.21 look up the network in ncclGetUniqueId, later releases only with a communicator;
of the newest ones the names are compared that they look up.

usage: real_nccl_test.py --plugin FILE --wheels FOLDER. Exit status 77 if no release can be downloaded."""

import argparse
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1] / "capabilities"), str(Path(__file__).resolve().parent / "compatibility")]

from capabilities import require, skip  # noqa: E402
from compatibility import RELEASES as RELEASE_TABLE  # noqa: E402
from compatibility import contains, read_rows  # noqa: E402
from evidence import Evidence, run_and_record  # noqa: E402

# release: package, net version that it uses, whether it uses the CollNet of the plugin (v8 and newer)
RELEASES = {
    "2.18.3": ("nvidia-nccl-cu12", 6, False),
    "2.19.3": ("nvidia-nccl-cu12", 7, False),
    "2.20.5": ("nvidia-nccl-cu12", 8, True),
    "2.21.5": ("nvidia-nccl-cu12", 8, True),
}
# The newest releases in packages, whose source was not read: the names in their libraries are compared with releases.tsv.
NEWEST = {"2.31.2": "nvidia-nccl-cu13", "2.32.3": "nvidia-nccl-cu13"}
SYMBOLS = {"net": "ncclNetPlugin", "collnet": "ncclCollNetPlugin", "tuner": "ncclTunerPlugin", "profiler": "ncclProfiler"}
DEADLINE_S = 120

PLUGIN = None
LIBRARIES = {}  # release: libnccl.so.2
EVIDENCE = None

SCRIPT = """
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
print("result", nccl.ncclGetUniqueId(ctypes.create_string_buffer(128)))
print("\\n".join("mapped " + line.split(maxsplit=5)[-1].rstrip() for line in open("/proc/self/maps") if "libnccl" in line))
"""

# Passes a function of the library as NCCL's logger, then asks tuner v3 about an allreduce of 4 nodes without CollNet: the reason depends on the release.
ASK_TUNER = """
import ctypes, sys
from ctypes import CFUNCTYPE, byref, c_char_p, c_float, c_int, c_size_t, c_uint64, c_ulong, c_void_p
nccl, plugin = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
LOGGER = CFUNCTYPE(None, c_int, c_ulong, c_char_p, c_int, c_char_p, c_char_p)
log = LOGGER(lambda level, flags, file, line, form, text: print(text.decode()))
net, tuner = (c_void_p * 2).in_dll(plugin, "ncclNetPlugin_v12"), (c_void_p * 3).in_dll(plugin, "ncclTunerPlugin_v3")
context, channels, costs = c_void_p(), c_int(), (c_float * 21)(*([-1.0] * 20), 1.0)
init = CFUNCTYPE(c_int, c_void_p, c_uint64, c_void_p, c_void_p, c_void_p)(net[1])
print(init(byref(context), 1, None, ctypes.cast(nccl.ncclGetErrorString, c_void_p), None))
print(CFUNCTYPE(c_int, c_size_t, c_size_t, LOGGER, c_void_p)(tuner[1])(4, 4, log, byref(context)))
ask = CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_int, c_void_p, c_int, c_int, c_void_p)(tuner[2])
print(ask(context, 4, 1 << 24, 1, costs, 7, 3, byref(channels)))
"""


def fetch(release, package, wheels):
    """Returns libnccl.so.2 of the release; downloads it into the folder if necessary."""
    target = wheels / release / "libnccl.so.2"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps", "-d", folder,
                   f"{package}=={release}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        wheel = next(Path(folder).glob("*.whl"), None)
        if wheel is None:
            raise RuntimeError((done.stderr.strip().splitlines() or ["pip downloaded no wheel"])[-1])
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(".part")
        with zipfile.ZipFile(wheel) as archive, archive.open("nvidia/nccl/lib/libnccl.so.2") as source, open(fresh, "wb") as out:
            shutil.copyfileobj(source, out)
        fresh.rename(target)
    return target


def get_unique_id(release, variables, folder):
    """Returns the output of a process that calls ncclGetUniqueId of this release."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "SLUICE_"))}
    clean |= {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET_PLUGIN": "sluice", "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(LIBRARIES[release])], capture_output=True, text=True, timeout=DEADLINE_S,
                          check=False, env=clean | variables)
    return done.stdout + done.stderr


class RealNccl(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_uses_net_and_collnet_of_the_built_file(self):
        (self.folder / PLUGIN.name).symlink_to(PLUGIN)
        for release in sorted(RELEASES.keys() & LIBRARIES):
            with self.subTest(release):
                _, version, collnet = RELEASES[release]
                text = get_unique_id(release, {"SLUICE_NET": "always", "SLUICE_REDUCERS": "localhost", "SLUICE_IFNAME": "lo"}, self.folder)
                self.assertIn("result 0", text)
                self.assertIn(f"mapped {PLUGIN}", text)
                # NCCL logs each version that it does not find, from the newest down.
                missed = [int(v) for v in re.findall(r"Failed to find ncclNetPlugin_v(\d+)", text)]
                self.assertTrue(all(v > version for v in missed), text)
                self.assertEqual("ncclCollNetPlugin" in text, not collnet, text)
                EVIDENCE.add("net", release, "loaded")
                if collnet:
                    EVIDENCE.add("collnet", release, "loaded")
                print(f"NCCL {release}: net v{version}{', CollNet v8' if collnet else ', no CollNet, as expected'}")

    def test_exports_the_newest_tables_that_the_newest_releases_look_up(self):
        exported = subprocess.run(["nm", "-D", "--defined-only", str(PLUGIN)], capture_output=True, text=True, check=True).stdout.split()
        if not NEWEST.keys() & LIBRARIES:
            self.skipTest(f"no library of NCCL {' or '.join(NEWEST)}")
        for release in sorted(NEWEST.keys() & LIBRARIES):
            row = next(row for row in read_rows(RELEASE_TABLE) if contains(row["release"], release))
            with open(LIBRARIES[release], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                names = set(re.findall(rb"\0(nccl(?:NetPlugin|CollNetPlugin|TunerPlugin|Profiler)_v\d+)(?=\0)", data))
            for feature, symbol in SYMBOLS.items():
                with self.subTest(release=release, feature=feature):
                    newest = max(int(name.rpartition(b"v")[2]) for name in names if name.startswith(symbol.encode() + b"_v"))
                    self.assertEqual(row[feature], f"v{newest}")
                    self.assertIn(f"{symbol}_v{newest}", exported)

    def test_finds_the_release_of_the_library(self):
        env = os.environ | {"SLUICE_REDUCERS": "h:1,h:2,h:3,h:4", "SLUICE_NET": "always", "SLUICE_IFNAME": "lo"}
        env.pop("NCCL_COLLNET_ENABLE", None)
        for release, library in sorted(LIBRARIES.items()):
            with self.subTest(release):
                done = subprocess.run([sys.executable, "-c", ASK_TUNER, str(library), str(PLUGIN)], capture_output=True, text=True, timeout=DEADLINE_S,
                                      check=True, env=env)
                self.assertIn("offload OFF (NCCL_COLLNET_ENABLE=1 is not set", done.stdout)
                has_member = [int(part) for part in release.split(".")] >= [2, 27]
                self.assertEqual("set config.collnetEnable=1" in done.stdout, has_member, done.stdout)

    def test_works_without_the_file(self):
        for release in sorted(RELEASES.keys() & LIBRARIES):
            with self.subTest(release):
                text = get_unique_id(release, {}, self.folder)
                self.assertIn("result 0", text)
                self.assertNotIn(f"mapped {PLUGIN}", text)
                self.assertIn("o plugin found", text)


def main():
    global PLUGIN, EVIDENCE
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--wheels", type=Path, required=True)
    arguments, rest = parser.parse_known_args()
    PLUGIN = arguments.plugin.resolve()
    EVIDENCE = Evidence(is_whole_program=not rest)
    require("pypi")
    reason = ""
    packages = {release: package for release, (package, _, _) in RELEASES.items()} | NEWEST
    for release, package in packages.items():
        try:
            LIBRARIES[release] = fetch(release, package, arguments.wheels)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            reason = f"NCCL {release}: {error}"
            print(reason)
    if not LIBRARIES:
        skip(f"needs pypi: {reason}")
    if reason:
        EVIDENCE = Evidence(is_whole_program=False)
    run_and_record(EVIDENCE, lambda: unittest.main(argv=[sys.argv[0], *rest], verbosity=2))


if __name__ == "__main__":
    main()
