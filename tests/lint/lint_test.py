"""Runs every rule over the tree, and over small trees that break it, so that a rule cannot go blind. Python 3.11 alone."""

import argparse
import sys
import tempfile
import unittest
from pathlib import Path

import page_rules
import tree_rules
import word_rules

RULES = tree_rules.load_rules(Path(__file__).with_name("rules.toml"))
ROOT = Path(__file__).resolve().parents[2]


class ThisTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = tree_rules.Tree(ROOT)

    def expect_none(self, problems):
        if problems:
            self.fail("\n" + "\n".join(problems))

    def test_includes_follow_the_arrows(self):
        self.expect_none(tree_rules.check_includes(self.tree, RULES))

    def test_headers_are_included_once(self):
        self.expect_none(tree_rules.check_pragma_once(self.tree))

    def test_files_are_short(self):
        print(tree_rules.describe_sizes(self.tree), file=sys.stderr)
        self.expect_none(tree_rules.check_sizes(self.tree, RULES))

    def test_folders_are_short(self):
        self.expect_none(tree_rules.check_folders(self.tree, RULES))

    def test_names_say_what_is_inside(self):
        self.expect_none(tree_rules.check_names(self.tree, RULES))

    def test_no_path_of_one_machine(self):
        self.expect_none(tree_rules.check_machine_paths(self.tree))

    def test_nothing_is_left_open(self):
        self.expect_none(tree_rules.check_open_ends(self.tree))

    def test_shell_scripts_parse(self):
        self.expect_none(tree_rules.check_shell(self.tree))

    def test_links_lead_somewhere(self):
        self.expect_none(page_rules.check_links(self.tree))

    def test_pages_are_wrapped(self):
        self.expect_none(page_rules.check_widths(self.tree))

    def test_headings_are_in_order(self):
        self.expect_none(page_rules.check_headings(self.tree))

    def test_pages_are_brief(self):
        self.expect_none(page_rules.check_word_count(self.tree, RULES))

    def test_retired_words_are_gone(self):
        self.expect_none(word_rules.check_words(self.tree, word_rules.load_table()))


class Rules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def tree(self):
        return tree_rules.Tree(self.root)

    def includes(self):
        return tree_rules.check_includes(self.tree(), RULES)

    def expect_include_refused(self, path, line, words):
        self.write(path, line + "\n")
        problems = self.includes()
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
        self.assertEqual(self.includes(), [])
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
        self.expect_include_refused("transport/inproc/b.cc", "#include <boost/asio.hpp>", "Asio")
        self.expect_include_refused("reducer/lane/b.cc", "#  include <spdlog/spdlog.h>", "spdlog")
        self.expect_include_refused("core/b.cc", "#include <openssl/evp.h>", "OpenSSL")
        self.expect_include_refused("core/b.cc", "#include <absl/status.h>", "no library")
        self.write("tests/b.cc", "#include <gtest/gtest.h>\n")
        self.write("transport/tcp/b.cc", "#include <boost/asio.hpp>\n")
        self.assertEqual(self.includes(), [])

    def test_includes_start_at_the_root(self):
        self.write("core/a.h", "")
        self.expect_include_refused("core/b.cc", '#include "a.h"', "no file below the root")
        self.expect_include_refused("core/b.cc", '#include "../core/a.h"', "no file below the root")

    def test_a_header_without_pragma_once_is_found(self):
        self.write("core/a.h", "// #pragma once\n")
        self.write("core/b-inl.h", "")
        self.assertEqual(len(tree_rules.check_pragma_once(self.tree())), 1)

    def test_a_long_file_is_found(self):
        self.write("core/a.cc", "\n" * 401)
        self.write("core/b.cc", "\n" * 400)
        self.write("tests/a.cc", "\n" * 501)
        self.write("tests/b.cc", "\n" * 500)
        self.assertEqual(len(tree_rules.check_sizes(self.tree(), RULES)), 2)

    def test_a_full_folder_is_found(self):
        for number in range(19):
            for folder in ("core", "tests/unit", "nccl_plugin/abi"):
                self.write(f"{folder}/unit{number}.cc", "")
        self.assertEqual(tree_rules.check_folders(self.tree(), RULES), ["core: 19 units, the limit is 18"])
        (self.root / "core/unit18.cc").rename(self.root / "core/unit17.h")
        self.assertEqual(tree_rules.check_folders(self.tree(), RULES), [])

    def test_an_empty_name_is_found(self):
        for path in ("core/string_utils.h", "wire/common/a.h", "cli/session_manager.cc", "cli/community.cc"):
            self.write(path, "")
        self.assertEqual(len(tree_rules.check_names(self.tree(), RULES)), 3)

    def test_a_path_of_one_machine_is_found(self):
        self.write("docs/a.md", "see /home/ann/sluice\n")
        self.write("docs/b.md", "see /etc/sluice/reducer.toml and docs/home/plan\n")
        self.write("run", "#!/bin/bash\ncat /root/key\n")
        self.assertEqual(len(tree_rules.check_machine_paths(self.tree())), 2)

    def test_an_open_end_is_found(self):
        self.write("core/a.cc", "// TODO later\n")
        self.write("core/b.cc", 'mkdtemp("sluice.XXXXXX");\n')
        self.assertEqual(len(tree_rules.check_open_ends(self.tree())), 1)

    def test_a_broken_script_is_found(self):
        self.write("scripts/a.sh", "#!/bin/bash\nif true; then\n")
        self.write("run", "#!/usr/bin/env bash\nfor\n")
        self.write("b.sh", "#!/bin/bash\ntrue\n")
        found = {problem.split(":")[0] for problem in tree_rules.check_shell(self.tree())}
        self.assertEqual(found, {"scripts/a.sh", "run"})

    def test_a_dead_link_is_found(self):
        self.write("docs/a.md", "# A\n[here](b.md#part-two) [web](https://example.org) [top](#a) `[x](code.md)` [gone](c.md)\n[no](#b) [nor](b.md#part)\n")
        self.write("docs/b.md", "# B\n\n## Part `two`\n```\n[x](nothing.md)\n```\n")
        problems = page_rules.check_links(self.tree())
        self.assertEqual([problem.split(": ")[1] for problem in problems], ["link to c.md", "link to #b", "link to b.md#part"])

    def test_a_long_line_is_found(self):
        long = "word " * 30
        self.write("README.md", f"# R\n| {long} |\n")
        self.write("docs/a.md", f"# A\n| {long} |\n```\n{long}\n```\n    {long}\n{long}\n")
        self.assertEqual([problem.split(": ")[0] for problem in page_rules.check_widths(self.tree())], ["README.md:2", "docs/a.md:7"])

    def test_headings_out_of_order_are_found(self):
        self.write("docs/a.md", "# A\n## One\n#### Deep\n## One\n")
        self.write("docs/b.md", "text\n")
        self.assertEqual(len(page_rules.check_headings(self.tree())), 3)

    def test_too_many_words_are_found(self):
        self.write("docs/a.md", "word " * (RULES["pages"]["most_words"] + 1))
        self.assertEqual(len(page_rules.check_word_count(self.tree(), RULES)), 1)

    def test_a_retired_word_is_found(self):
        table = {"word": [{"words": ["keeper"], "use": "heartbeat monitor"}], "identifier": [{"names": ["Seat"], "use": "ReducerReservation"}],
                 "phrase": [{"pattern": r"is not to be had", "use": "is not available"}],
                 "exception": [{"path": "a.md", "word": "keeper", "reason": "tells of it"}]}
        self.write("a.md", "the keeper\n")
        self.write("core/a.cc", "KeeperThread k; Seat s; Seated t; // TLS Is Not To Be Had\nint bookkeeper = 1;\n")
        self.write("core/keeper.h", "")
        places = [problem.split(": ")[0] for problem in word_rules.check_words(self.tree(), table)]
        self.assertEqual(places, ["core/a.cc:1"] * 3 + ["core/keeper.h"])
        (self.root / "a.md").unlink()
        self.assertIn("is not needed", word_rules.check_words(self.tree(), table)[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to look at")
    ROOT = parser.parse_args().root
    unittest.main(argv=sys.argv[:1], verbosity=1)
