"""mypy --strict reports nothing for the package, and its types are visible to users."""

import ast
import subprocess
import sys
import unittest
from pathlib import Path

from package_test_bed import DEADLINE_S, PACKAGE, ROOT, PackageTest, main, variables

CACHE = Path(sys.prefix) / "mypy-cache"  # for the types of the standard library, which take most of the time

# Following the sources of torch takes a minute, and is the same work for every user of torch.
CONFIGURATION = """
[mypy]
strict = true

[mypy-torch.*]
follow_imports = skip
"""

USER = """
import sluice

def mean(session: sluice.Session, gradient: object) -> None:
    session.allreduce_async(gradient, "avg").wait(timeout=1.5)
    session.group().__enter__().done()
    count: int = session.stats().operations
"""


class Typed(PackageTest):
    def mypy(self, *arguments, folder, expect):
        done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", CACHE, *arguments], capture_output=True, text=True, cwd=folder,
                              timeout=4 * DEADLINE_S, env=variables(), check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout

    def test_the_package_is_strict(self):
        files = len(list((PACKAGE / "src").rglob("*.py")))
        for oldest in ("3.10", f"{sys.version_info.major}.{sys.version_info.minor}"):  # the oldest version that mypy supports
            self.assertIn(f"no issues found in {files} source files", self.mypy("--python-version", oldest, folder=ROOT, expect=0))

    def test_the_syntax_is_valid_in_python_3_9(self):
        for file in (PACKAGE / "src" / "sluice").glob("*.py"):
            ast.parse(file.read_text(), file.name, feature_version=(3, 9))

    def test_users_see_its_types(self):
        self.write("mypy.ini", CONFIGURATION)
        self.write("right.py", USER)
        self.write("wrong.py", USER.replace("timeout=1.5", "timeout='long'").replace("count: int", "count: str"))
        output = self.mypy("right.py", "wrong.py", folder=self.folder, expect=1)
        self.assertRegex(output, 'wrong.py:.*"wait" of "Request" has incompatible type "str"')
        self.assertIn("Found 2 errors in 1 file (checked 2 source files)", output)


if __name__ == "__main__":
    main()
