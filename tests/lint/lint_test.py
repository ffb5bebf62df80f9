"""Runs every rule over the tree, and over small trees that break it, so that a rule cannot go blind. Python 3.11 alone."""

import argparse
import sys
import tempfile
import unittest
from pathlib import Path

import message_rules
import page_rules
import tree_rules

RULES = tree_rules.load_rules(Path(__file__).with_name("rules.toml"))
ROOT = Path(__file__).resolve().parents[2]


# Every rule: a function from a tree to its problems.
CHECKS = {
    "includes follow the arrows": lambda tree: tree_rules.check_includes(tree, RULES),
    "headers are included once": tree_rules.check_pragma_once,
    "clang-tidy sees every header": tree_rules.check_tidy_filter,
    "Python modules import in one direction": tree_rules.check_python_circles,
    "files are short": lambda tree: tree_rules.check_sizes(tree, RULES),
    "folders are short": lambda tree: tree_rules.check_folders(tree, RULES),
    "names say what is inside": lambda tree: tree_rules.check_names(tree, RULES),
    "no path of one machine": tree_rules.check_machine_paths,
    "nothing is left open": tree_rules.check_open_ends,
    "shell scripts parse": tree_rules.check_shell,
    "links lead somewhere": page_rules.check_links,
    "pages are wrapped": page_rules.check_widths,
    "headings are in order": page_rules.check_headings,
    "pages quote what is printed": message_rules.check_quoted_messages,
}


class ThisTree(unittest.TestCase):
    def test_follows_every_rule(self):
        tree = tree_rules.Tree(ROOT)
        print(tree_rules.describe_sizes(tree), file=sys.stderr)
        for rule, check in CHECKS.items():
            with self.subTest(rule):
                if problems := list(check(tree)):
                    self.fail("\n" + "\n".join(problems))


class Rules(unittest.TestCase):
    def setUp(self):
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def problems(self, rule):
        return list(CHECKS[rule](tree_rules.Tree(self.root)))

    def expect_problems(self, rule, count, files):
        """`files`: contents by path."""
        for path, text in files.items():
            self.write(path, text)
        self.assertEqual(len(self.problems(rule)), count)

    def expect_include_refused(self, path, line, words):
        self.write(path, line + "\n")
        problems = self.problems("includes follow the arrows")
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(words, problems[0])
        (self.root / path).unlink()

    def test_arrows_point_one_way(self):
        for header in ("core/a.h", "wire/frame.h", "wire/dtype.h", "transport/a.h", "config/a.h", "reducer/a.h",
                       "gpu_client/engine/a.h", "gpu_client/include/sluice/a.h", "tests/support/a.h"):
            self.write(header, "#pragma once\n")
        self.write("reducer/b.cc", '#include "reducer/a.h"\n#include "transport/a.h"\n#include <vector>\n#include <sys/mman.h>\n')
        self.write("reducer/kernels/b.cc", '#include "wire/dtype.h"\n#include "hwy/highway.h"\n')
        self.write("gpu_client/api/b.cc", '#include "sluice/a.h"\n')
        self.assertEqual(self.problems("includes follow the arrows"), [])
        self.expect_include_refused("core/b.cc", '#include "wire/frame.h"', "core may not include")
        self.expect_include_refused("wire/b.cc", '#include "transport/a.h"', "wire may not include")
        self.expect_include_refused("config/b.cc", '#include "wire/frame.h"', "config may not include")
        self.expect_include_refused("reducer/c.cc", '#include "gpu_client/engine/a.h"', "reducer may not include")
        self.expect_include_refused("gpu_client/engine/b.cc", '#include "reducer/a.h"', "gpu_client/engine may not include")
        self.expect_include_refused("gpu_client/include/sluice/b.h", '#include "core/a.h"', "may not include")
        self.expect_include_refused("reducer/kernels/c.cc", '#include "wire/frame.h"', "reducer/kernels may not")
        self.expect_include_refused("transport/b.cc", '#include "tests/support/a.h"', "transport may not include")
        self.expect_include_refused("stray/b.cc", "", "no folder of rules.toml")

    def test_a_library_is_seen_by_its_folders_alone(self):
        self.expect_include_refused("core/b.cc", "#include <hwy/highway.h>", "Highway")
        self.expect_include_refused("wire/b.cc", "#include <fmt/core.h>", "fmt")
        self.expect_include_refused("transport/rdma/b.cc", "#include <boost/asio.hpp>", "Asio")
        self.expect_include_refused("reducer/lane/b.cc", "#  include <spdlog/spdlog.h>", "spdlog")
        self.expect_include_refused("core/b.cc", "#include <openssl/evp.h>", "OpenSSL")
        self.expect_include_refused("core/b.cc", "#include <absl/status.h>", "no library")
        self.write("tests/b.cc", "#include <gtest/gtest.h>\n")
        self.write("transport/tcp/b.cc", "#include <boost/asio.hpp>\n")
        self.assertEqual(self.problems("includes follow the arrows"), [])

    def test_includes_start_at_the_root(self):
        self.write("core/a.h", "")
        self.expect_include_refused("core/b.cc", '#include "a.h"', "no file below the root")
        self.expect_include_refused("core/b.cc", '#include "../core/a.h"', "no file below the root")

    def test_a_header_without_pragma_once_is_found(self):
        self.expect_problems("headers are included once", 1, {"core/a.h": "// #pragma once\n", "core/b-inl.h": ""})

    def test_a_header_that_clang_tidy_does_not_see_is_found(self):
        self.expect_problems("clang-tidy sees every header", 1, {".clang-tidy": "HeaderFilterRegex: '/(wire|transport)/[^/]+$'\n", "wire/a.h": "", "room/b.h": ""})

    def test_a_circle_of_python_modules_is_found(self):
        folder = "gpu_client/python/src/p/"
        rule = "Python modules import in one direction"
        self.expect_problems(rule, 0, {folder + "__init__.py": "from .a import A\n", folder + "a.py": "from . import b\n", folder + "b.py": "import os\n"})
        self.expect_problems(rule, 1, {folder + "b.py": "def f():\n    from .sub.c import C\n", folder + "sub/c.py": "from ..a import A\n"})

    def test_a_long_file_is_found(self):
        self.expect_problems("files are short", 2, {"core/a.cc": "\n" * 401, "core/b.cc": "\n" * 400, "tests/a.cc": "\n" * 501, "tests/b.cc": "\n" * 500})

    def test_a_full_folder_is_found(self):
        for number in range(19):
            for folder in ("core", "tests/unit", "nccl_plugin/abi"):
                self.write(f"{folder}/unit{number}.cc", "")
        self.assertEqual(self.problems("folders are short"), ["core: 19 units, the limit is 18"])
        (self.root / "core/unit18.cc").rename(self.root / "core/unit17.h")
        self.assertEqual(self.problems("folders are short"), [])

    def test_an_empty_name_is_found(self):
        paths = ("core/string_utils.h", "wire/common/a.h", "cli/session_manager.cc", "cli/community.cc")
        self.expect_problems("names say what is inside", 3, dict.fromkeys(paths, ""))

    def test_a_path_of_one_machine_is_found(self):
        self.expect_problems("no path of one machine", 2, {
            "docs/a.md": "see /home/ann/sluice\n", "docs/b.md": "see /etc/sluice/reducer.toml and docs/home/plan\n", "run": "#!/bin/bash\ncat /root/key\n"})

    def test_an_open_end_is_found(self):
        self.expect_problems("nothing is left open", 1, {"core/a.cc": "// TODO later\n", "core/b.cc": 'mkdtemp("sluice.XXXXXX");\n'})

    def test_a_quoted_text_that_nothing_prints_is_found(self):
        self.write("reducer/a.cc", 'return fail("cannot read " + path + ": wrong "\n            "or missing token for job " + job);\nfmt::format("lane {} of {} ended", a, b);\n')
        page = "# T\n\n* **`cannot read FILE: wrong or missing token`:** text\n* **`lane 3 of 7 ended`:** text `not quoted`\n"
        self.expect_problems("pages quote what is printed", 0, {"docs/guides/troubleshoot.md": page.replace("FILE", "...")})
        self.expect_problems("pages quote what is printed", 2, {
            "docs/guides/troubleshoot.md": page.replace("FILE", "...").replace("missing", "absent").replace("ended", "stopped")})
        self.expect_problems("pages quote what is printed", 3, {"docs/a.md": '# A\n\n```text\nlevel=info msg="lane 3 of 7 broke"\n```\n'})

    def test_a_broken_script_is_found(self):
        self.write("scripts/a.sh", "#!/bin/bash\nif true; then\n")
        self.write("run", "#!/usr/bin/env bash\nfor\n")
        self.write("b.sh", "#!/bin/bash\ntrue\n")
        found = {problem.split(":")[0] for problem in self.problems("shell scripts parse")}
        self.assertEqual(found, {"scripts/a.sh", "run"})

    def test_a_dead_link_is_found(self):
        self.write("docs/a.md", "# A\n[here](b.md#part-two) [web](https://example.org) [top](#a) `[x](code.md)` [gone](c.md)\n[no](#b) [nor](b.md#part)\n")
        self.write("docs/b.md", "# B\n\n## Part `two`\n```\n[x](nothing.md)\n```\n")
        self.assertEqual([problem.split(": ")[1] for problem in self.problems("links lead somewhere")], ["link to c.md", "link to #b", "link to b.md#part"])

    def test_a_long_line_is_found(self):
        long = "word " * 30
        self.write("README.md", f"# R\n| {long} |\n")
        self.write("docs/a.md", f"# A\n| {long} |\n```\n{long}\n```\n    {long}\n{long}\n")
        self.assertEqual([problem.split(": ")[0] for problem in self.problems("pages are wrapped")], ["README.md:2", "docs/a.md:7"])

    def test_headings_out_of_order_are_found(self):
        self.expect_problems("headings are in order", 3, {"docs/a.md": "# A\n## One\n#### Deep\n## One\n", "docs/b.md": "text\n"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to look at")
    ROOT = parser.parse_args().root
    unittest.main(argv=sys.argv[:1], verbosity=1)
