"""bench/report: measures what needs no other library, and writes the page."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "bench" / "report" / "report.py"


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.docs = Path(folder.name)

    def report(self, *words):
        return subprocess.run([sys.executable, "-B", str(REPORT), "--docs", str(self.docs), *words], capture_output=True, text=True, timeout=100, check=False)

    def measure(self, sections):
        return self.report("--sluice", SLUICE, "--peers", str(self.docs), "--brief", "--sections", sections)

    def page(self):
        return (self.docs / "benchmarks.md").read_text(encoding="utf-8")

    def test_writes_tables_with_what_was_measured_and_where(self):
        done = self.measure("reducer_cpu,kernels")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = json.loads((self.docs / "benchmarks" / "results.json").read_text(encoding="utf-8"))
        kernels = {(row["type"], row["target"]): row for row in results["kernels"]["data"]}
        self.assertEqual({row["wrong"] for row in kernels.values()}, {0})
        page = self.page()
        for (kind, target), row in kernels.items():
            self.assertIn(f"| {kind} | {target} | 64 KiB | {row['in_gbps']:.1f} |", page)
        self.assertEqual([row["name"] for row in results["reducer_cpu"]["data"]], ["with checksums", "without"])
        self.assertIn(f"revision {results['kernels']['machine']['revision']}", page)

    def test_keeps_what_is_not_measured_again(self):
        self.assertEqual(self.measure("kernels").returncode, 0)
        before = self.page()
        self.assertEqual(self.measure("reducer_cpu").returncode, 0)
        self.assertIn(before.split("## Arithmetic")[1], self.page())
        self.assertLess(self.page().index("## What a reducer costs"), self.page().index("## Arithmetic"))
        after = self.page()
        self.assertEqual(self.report("--render-only").returncode, 0)
        self.assertEqual(self.page(), after)

    def test_a_section_that_cannot_run_says_why(self):
        done = self.measure("loopback")
        self.assertEqual(done.returncode, 1)
        self.assertIn("-- loopback: left as it was: ", done.stdout)
        self.assertNotIn("## On one machine", self.page())
        self.assertEqual(self.measure("lynx").returncode, 2)


if __name__ == "__main__":
    SLUICE = sys.argv[sys.argv.index("--sluice") + 1]
    unittest.main(argv=sys.argv[:1])
