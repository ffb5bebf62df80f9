"""Tests bench/report: sections that need no other library are measured, and the page is written."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "bench" / "report" / "report.py"


class Report(unittest.TestCase):
    def setUp(self):
        self.docs = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def report(self, *options):
        return subprocess.run([sys.executable, "-B", str(REPORT), "--docs", str(self.docs), *options], capture_output=True, text=True, timeout=100, check=False)

    def measure(self, sections):
        return self.report("--sluice", SLUICE, "--peers", str(self.docs), "--brief", "--sections", sections)

    def page(self):
        return (self.docs / "results" / "benchmarks.md").read_text(encoding="utf-8")

    def kernel_rows(self):
        """The cells of the kernels' table, which stands in the page or in a CSV file."""
        file = self.docs / "results" / "kernels.csv"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else [line.strip("| ").replace(" | ", ",") for line in self.page().splitlines()]
        return [line.split(",") for line in lines]

    def test_page_shows_figures_and_revision(self):
        done = self.measure("reducer_cpu,kernels")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = json.loads((self.docs / "results" / "results.json").read_text(encoding="utf-8"))
        kernels = {(row["type"], row["target"]): row for row in results["kernels"]["data"]}
        self.assertEqual({row["wrong"] for row in kernels.values()}, {0})
        page = self.page()
        for (kind, target), row in kernels.items():
            self.assertIn([kind, target, "64 KiB", f"{row['in_gbps']:.1f}"], [cells[:4] for cells in self.kernel_rows()])
        self.assertEqual([row["name"] for row in results["reducer_cpu"]["data"]], ["with checksums", "without", "with --health"])
        self.assertIn(f"revision {results['kernels']['machine']['revision']}", page)

    def test_other_sections_keep_their_results(self):
        self.assertEqual(self.measure("kernels").returncode, 0)
        before = self.page()
        self.assertEqual(self.measure("reducer_cpu").returncode, 0)
        self.assertIn(before.split("## Reduction kernels")[1], self.page())
        self.assertLess(self.page().index("## CPU time of a reducer"), self.page().index("## Reduction kernels"))
        after = self.page()
        self.assertEqual(self.report("--render-only").returncode, 0)
        self.assertEqual(self.page(), after)

    def test_a_part_of_a_section_has_results_of_its_own(self):
        self.assertEqual(self.measure("kernels").returncode, 0)
        before = self.page()
        self.assertEqual(self.measure("kernels/orders").returncode, 0)
        self.assertIn(before.split("## Reduction kernels")[1].strip(), self.page())
        self.assertLess(self.page().index("## Reduction kernels"), self.page().index("### Order of sums"))
        table = (self.docs / "results" / "kernels_orders.csv").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len({line.split(",")[0] for line in table[1:]}), 14)  # types
        self.assertEqual({line.split(",")[-1] for line in table[1:]}, {"0"})  # wrong

    def test_committed_page_is_what_the_committed_results_render(self):
        committed = ROOT / "docs" / "results"
        (self.docs / "results").mkdir()
        for file in committed.glob("*.json"):
            shutil.copy(file, self.docs / "results")
        done = self.report("--render-only")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for file in ("benchmarks.md", *(table.name for table in (self.docs / "results").glob("*.csv"))):
            # Without matplotlib there are no plots and no lines that show them.
            written, expected = (re.sub(r"\n!\[.*\n", "", (folder / file).read_text(encoding="utf-8")) for folder in (self.docs / "results", committed))
            self.assertEqual(written, expected, f"{file}: run bench/report/report.py --render-only")

    def test_section_that_cannot_run_prints_the_reason(self):
        done = self.measure("loopback")
        self.assertEqual(done.returncode, 1)
        self.assertIn("-- loopback: not measured, previous results kept: ", done.stdout)
        self.assertNotIn("## Loopback on one machine", self.page())
        self.assertEqual(self.measure("lynx").returncode, 2)


if __name__ == "__main__":
    SLUICE = sys.argv[sys.argv.index("--sluice") + 1]
    unittest.main(argv=sys.argv[:1])
