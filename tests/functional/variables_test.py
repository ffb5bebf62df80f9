"""Compares the table of known variables (config/variables.cc) with the code that reads them: the options of all commands and the sources."""

import re
import sys
from pathlib import Path

from sluice_process import SluiceTest, main

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/lint"))

from tree_rules import Tree  # noqa: E402

TABLE = ROOT / "config" / "variables.cc"
NAME = re.compile(r"SLUICE_[A-Z0-9]+(?:_[A-Z0-9]+)*")
# A quoted word, or one before '=': names passed to getenv, setenv and environments. Excludes macros and names within a text.
IN_SOURCE = re.compile(rf"""["'](?P<name>{NAME.pattern})(?=["'=])""")
IN_SHELL = re.compile(rf"""\$\{{?(?P<name>{NAME.pattern})\b|\bexport (?P<exported>{NAME.pattern})=""")
IN_DOCKERFILE = re.compile(rf"""\b(?P<name>{NAME.pattern})=""")
# Variables of the build, which no program reads, and an example in help texts.
NOT_IN_ENVIRONMENT = {"SLUICE_VERSION", "SLUICE_FOO_BAR"}


def table():
    text = TABLE.read_text()
    return set(re.findall(r'^    "(SLUICE_\w+)",$', text, re.MULTILINE))


def in_sources():
    """{name: a file}, without build folders. Works without git, because the tree may come from an archive."""
    found = {}
    for path in Tree(ROOT).files:
        file = ROOT / path
        if path.startswith("tests/") or file == TABLE or not file.is_file():
            continue  # tests use invalid names on purpose
        text = file.read_text(errors="replace")
        if file.suffix in (".cc", ".h", ".hpp", ".cpp", ".cu", ".py"):
            pattern = IN_SOURCE
        elif file.suffix in (".sh", ".sbatch") or (not file.suffix and text.startswith("#!")):
            pattern = IN_SHELL
        elif file.name.startswith("Dockerfile"):
            pattern = IN_DOCKERFILE
        else:
            continue
        for match in pattern.finditer(text):
            found.setdefault(next(filter(None, match.groupdict().values())), path)
    return {name: path for name, path in found.items() if name not in NOT_IN_ENVIRONMENT and not name.startswith("SLUICE_TEST_")}


class Variables(SluiceTest):
    def options(self, *command):
        """{variable: command} of a command and its subcommands."""
        text = self.run_sluice(*command, "--help").stdout
        found = {name: " ".join(("sluice", *command)) for name in re.findall(r"\(Env:(SLUICE_\w+)\)", text)}
        sections = text.split("\nSubcommands:\n")
        for name in re.findall(r"^  ([a-z][\w-]*)  ", sections[1], re.MULTILINE) if len(sections) == 2 else ():
            found |= self.options(*command, name)
        return found

    def test_every_option_is_in_the_table(self):
        options = self.options()
        self.assertGreater(len(options), 100)
        for variable, command in sorted(options.items()):
            self.assertIn(variable, table(), f"an option of {command}: add it to config/variables.cc")

    def test_the_table_and_the_sources_agree(self):
        sources = in_sources()
        self.assertGreater(len(sources), 30)
        for variable, path in sorted(sources.items()):
            self.assertIn(variable, table(), f"{path} reads it: add it to config/variables.cc")
        # Includes the options of bin/sluice-gpu-bench, which this test does not run.
        declared = {"SLUICE_" + name.replace("-", "_").upper()
                    for file in (ROOT / "cli").rglob("*.*") for name in re.findall(r'"(?:-\w,)?--([a-z][\w-]*)"', file.read_text())}
        in_tests = {match.group("name") for file in (ROOT / "tests").rglob("*.py") for match in IN_SOURCE.finditer(file.read_text())}
        for variable in sorted(table()):
            self.assertIn(variable, set(sources) | declared | in_tests, "no code reads it: remove it from config/variables.cc")


if __name__ == "__main__":
    main()
