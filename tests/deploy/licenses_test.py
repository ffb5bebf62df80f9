"""Checks the license and copyright holder of each file (REUSE), the license texts, and that THIRD_PARTY.md lists all linked
libraries."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import deploy_case
from deploy_case import DEADLINE_S, DeployTest, main, need, program

sys.path.append(str(Path(__file__).resolve().parents[1] / "lint"))

from tree_rules import Tree  # noqa: E402


class Licenses(DeployTest):
    def setUp(self):
        super().setUp()
        # A copy of the sources: without git, reuse would also read the build folder.
        self.tree = self.folder / "tree"
        for path in Tree(deploy_case.ROOT).files:
            (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(deploy_case.ROOT / path, self.tree / path)

    def test_reuse(self):
        need("reuse")
        output = self.command("reuse", "--root", self.tree, "lint", cwd=self.tree).stdout
        self.assertRegex(output, r"compliant with version")

    def test_bill_of_materials(self):
        need("reuse")
        done = self.command("reuse", "--root", self.tree, "spdx", "-o", self.folder / "sluice.spdx", cwd=self.tree, timeout=120)
        text = (self.folder / "sluice.spdx").read_text()
        self.assertIn("SPDXVersion: SPDX-2.1", text, done.stdout)
        self.assertRegex(text, r"FileName: \./CMakeLists\.txt")
        digits = text[text.index("FileName: ./demo/digits/digits.csv.gz"):]
        self.assertIn("LicenseInfoInFile: CC-BY-4.0", digits[:600])

    def test_linked_libraries_are_listed(self):
        need("readelf")
        listed = (deploy_case.ROOT / "THIRD_PARTY.md").read_text()
        linked = set()
        for path in [program(), program("sluice-gpu-bench"), *(deploy_case.BUILD / "lib").glob("*.so")]:
            output = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout
            linked |= set(re.findall(r"\(NEEDED\).*\[(.*?)\.so", output))
        self.assertIn("libc", linked)
        own = {"libsluice", "libsluice_tls", "ld-linux-x86-64"}
        self.assertEqual({name for name in linked - own if f"`{name}`" not in listed}, set())


if __name__ == "__main__":
    main()
