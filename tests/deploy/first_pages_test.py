"""Runs every command of README.md and docs/get-started.md, taken from the page, and compares the output with the output that the page shows.

The build is not repeated: quickstart.sh is replaced by a script that runs the same demo from the build under test, test.sh by its own --help."""

import contextlib
import os
import re
import subprocess
import unittest

import deploy_case
from deploy_case import DeployTest, environment, main

END_OF_BLOCK = "== end of block"
PORTS = ("7470", "7471", "9470")
# What the commands wait for takes longer beside other tests.
LONGER = (("sleep 1\n", "until grep -q 'listens on' reducer-0.log && grep -q 'listens on' reducer-1.log; do sleep 0.1; done\n"),
          ("--duration 6s", "--duration 12s"), ("sleep 2\n", "sleep 6\n"))


def blocks(page):
    """[[commands, expected output], ...] of the fenced blocks: a block `text` belongs to the block `sh` before it."""
    found = []
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", (deploy_case.ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if language == "sh":
            found.append([body, ""])
        else:
            found[-1][1] += body
    return found


def pattern_of(line):
    """A line of a page as a regular expression: numbers, ids and widths may differ; "..." stands for anything."""
    number = r"\d+(?:\.\d+)*"
    words = []
    for word in line.split():
        word = re.sub(r"\b[0-9a-f]{8,}\b", "\0", word)  # ids before the numbers in them
        word = re.sub(number, "\1", word.replace("...", "\2"))
        words.append(re.escape(word).replace("\0", "[0-9a-f]{8,}").replace("\1", number).replace("\2", ".*"))
    return r"\s+".join(words)


class FirstPages(DeployTest):
    def setUp(self):
        super().setUp()
        (self.folder / "build").mkdir()
        (self.folder / "build/release").symlink_to(deploy_case.BUILD)
        demo = next(line for line in (deploy_case.ROOT / "quickstart.sh").read_text(encoding="utf-8").splitlines() if line.startswith("exec build/release/"))
        self.script("quickstart.sh", f'[ "$*" = --build-only ] && exit 0\n{demo}')
        self.script("test.sh", f'exec "{deploy_case.ROOT}/test.sh" --help')

    def script(self, name, body):
        self.write(name, f"#!/usr/bin/env bash\n{body}\n").chmod(0o755)

    def run_page(self, page):
        """The output of each block, all of them run by one shell."""
        parts = blocks(page)
        self.assertTrue(parts, page)
        script = "set -eo pipefail\n" + "".join(f"{commands}\necho '{END_OF_BLOCK}'\n" for commands, _ in parts)
        for port in PORTS:
            script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{self.reserve_port()}")
        for on_an_idle_machine, on_a_busy_one in LONGER:
            script = script.replace(on_an_idle_machine, on_a_busy_one)
        done = subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            output, _ = done.communicate(timeout=2 * deploy_case.DEADLINE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(done.pid, 9)
        self.assertEqual(done.returncode, 0, output)
        return zip(parts, output.split(END_OF_BLOCK), strict=False)

    def check(self, page):
        for (commands, expected), output in self.run_page(page):
            for line in expected.splitlines():
                if line.strip() not in ("", "..."):
                    self.assertRegex(output, re.compile(pattern_of(line)), f"{page}, after\n{commands}")

    def test_readme(self):
        self.check("README.md")

    def test_get_started(self):
        self.check("docs/get-started.md")


class Patterns(unittest.TestCase):
    def test_numbers_may_differ_and_words_may_not(self):
        line = "reducer 1b436201f72380ea listens on 127.0.0.1:7470: 2 lanes, ..."
        self.assertRegex("reducer e0542495bab1192b listens on 127.0.0.1:40123: 16 lanes, memory", pattern_of(line))
        self.assertNotRegex("reducer e0542495bab1192b listens at 127.0.0.1:40123: 16 lanes", pattern_of(line))


if __name__ == "__main__":
    main()
