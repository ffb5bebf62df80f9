"""Tests that each command has a manual page and that man(1) and mandoc(1) accept the pages."""

import re

from deploy_case import DeployTest, command_paths, main, need, program


class ManPages(DeployTest):
    def setUp(self):
        super().setUp()
        self.command(program(), "man", "--out", self.folder)
        self.pages = {path.name: path for path in self.folder.glob("*.1")}

    def test_each_command_has_a_page_with_all_options(self):
        paths = command_paths()
        self.assertEqual(sorted(self.pages), sorted("-".join(path) + ".1" for path in paths))
        for path in paths:
            page = self.pages["-".join(path) + ".1"].read_text().replace("\\-", "-")
            help_text = self.command(program(), *path[1:], "--help").stdout
            options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", help_text, re.MULTILINE))
            self.assertIn("--help", options)
            for option in options:
                self.assertRegex(page, rf"{option}\\fR", f"{path}")

    def test_one_page_on_stdout(self):
        self.assertEqual(self.command(program(), "man", "bench", "allreduce").stdout, self.pages["sluice-bench-allreduce.1"].read_text())
        self.assertIn('sluice bench has no command "nothing"', self.command(program(), "man", "bench", "nothing", expect=64).stdout)

    def test_mandoc_reports_no_problems(self):
        need("mandoc")
        # The pages have no date, so that the same program always writes the same page.
        output = self.command("mandoc", "-T", "lint", "-W", "warning", *self.pages.values(), expect=None).stdout
        self.assertEqual([line for line in output.splitlines() if "missing date" not in line], [])

    def test_man_shows_the_pages(self):
        need("man")
        for page in self.pages.values():
            output = self.command("man", "--warnings=w", "-l", page).stdout
            self.assertRegex(output, r"(?m)^NAME$")
            self.assertNotIn("warning:", output, page.name)


if __name__ == "__main__":
    main()
