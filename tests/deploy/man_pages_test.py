"""A manual page for every command there is, and pages that man(1) and mandoc(1) take."""

import re

from deploy_case import DeployTest, command_paths, main, need, program


class ManPages(DeployTest):
    def setUp(self):
        super().setUp()
        self.command(program(), "man", "--out", self.folder)
        self.pages = {path.name: path for path in self.folder.glob("*.1")}

    def test_every_command_has_one_and_it_names_every_option(self):
        paths = command_paths()
        self.assertEqual(sorted(self.pages), sorted("-".join(path) + ".1" for path in paths))
        for path in paths:
            page = self.pages["-".join(path) + ".1"].read_text().replace("\\-", "-")
            told = self.command(program(), *path[1:], "--help").stdout
            options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", told, re.MULTILINE))
            self.assertIn("--help", options)
            for option in options:
                self.assertRegex(page, rf"{option}\\fR", f"{path}")

    def test_one_page_on_stdout(self):
        self.assertEqual(self.command(program(), "man", "bench", "allreduce").stdout, self.pages["sluice-bench-allreduce.1"].read_text())
        self.assertIn("sluice bench has no command nothing", self.command(program(), "man", "bench", "nothing", expect=64).stdout)

    def test_mandoc_has_no_complaint(self):
        need("mandoc")
        # A page has no date: the same program must write the same page on every day. Long lines are no fault of a generated file.
        told = self.command("mandoc", "-T", "lint", "-W", "warning", *self.pages.values(), expect=None).stdout
        self.assertEqual([line for line in told.splitlines() if "missing date" not in line], [])

    def test_man_shows_them(self):
        need("man")
        for page in self.pages.values():
            told = self.command("man", "--warnings=w", "-l", page).stdout
            self.assertRegex(told, r"(?m)^NAME$")
            self.assertNotIn("warning:", told, page.name)


if __name__ == "__main__":
    main()
