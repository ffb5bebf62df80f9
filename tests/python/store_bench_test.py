"""Tests bench/test_network/models.py: the bounds, a short run of Sluice's entries over rate-limited links, and the section of the report."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from package_test_bed import DEADLINE_S, ROOT, PackageTest, main, variables

sys.path[:0] = [str(ROOT / "bench" / folder) for folder in ("test_network", "peers", "report")]

import models  # noqa: E402
import sluice_process  # noqa: E402
from sections import models as section  # noqa: E402

from capabilities import enter_namespaces, needs  # noqa: E402, I001: sluice_process says where it is


class Bounds(unittest.TestCase):
    def test_of_four_workers(self):
        def bound(*entry):
            return models.Entry(*entry).bound(4, 8)

        self.assertEqual([bound("overlapped", "sluice", reducers) for reducers in (5, 4, 1)], [1, 1.25, 4])
        self.assertAlmostEqual(bound("overlapped", "sluice", 5, "nesterov"), 1.2)
        self.assertAlmostEqual(bound("step", "sluice", 5), 2.2)
        self.assertEqual([bound("push_pull", "sluice", reducers) for reducers in (8, 5, 4, 1)], [1, 1, 1.25, 4])
        self.assertEqual((bound("step", "sluice", 1), bound("read", "sluice", 5), bound("read", "sluice", 16)), (8, 1.6, 1))
        self.assertAlmostEqual(bound("step", "sluice", 4, "add", "mxfp8"), 264 / 1024 + 1 + 1 / 4)
        self.assertAlmostEqual(bound("read", "sluice", 4, "add", "mxfp8"), 2 * 264 / 1024)
        self.assertEqual((bound("step", "redis", 5), bound("overlapped", "redis", 5), bound("step", "torchft DiLoCo")), (2.75, 1.5, 1.5))


@needs("network-namespaces")
@needs("program:etcd")
class Run(PackageTest):
    def test_steps_and_readers_over_limited_links(self):
        out = self.folder / "out.json"
        command = [sys.executable, "-B", ROOT / "bench/test_network/models.py", "--sluice", sluice_process.PROGRAM, "--python", sys.executable, "--json", out,
                   "--workers", 2, "--readers", 2, "--reducers", 2, "--rate", "100mbit", "--bytes", "2M", "--models", 2, "--rounds", 1, "--repetitions", 1,
                   "--cases", "step,push_pull,read", "--entries", "sluice, 2 reducers"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False, env=variables())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        output = json.loads(out.read_text(encoding="utf-8"))
        rows = {(row["case"], row["entry"]): row for row in output["rows"]}
        self.assertEqual(set(rows), {(case, f"sluice, 2 reducers{wire}") for case in ("step", "push_pull", "read") for wire in ("", ", mxfp8")})
        for row in rows.values():
            self.assertEqual(row["runs"], 1)
            # Less than the bound is possible only by what the token buckets hold.
            self.assertGreater(row["over_bound"], 0.7, row)
            self.assertEqual(row.get("disk_read_bytes", 0), 0)
        with tempfile.TemporaryDirectory() as folder:
            cases = [{"options": ["--rate", "100mbit"], **output}]
            self.assertIn("| 100mbit | 2 MiB | step | sluice, 2 reducers |", section.table(cases))
            self.assertIn("Reducers read no bytes from disks.", section.text(cases))
            for _, plot in section.plots(cases, Path(folder)):
                self.assertIn("sluice, 2 reducers", (Path(folder) / plot).read_text(encoding="utf-8"))


if __name__ == "__main__":
    enter_namespaces()
    main()
