"""Tests the status page of a reducer under load in a headless Chromium, also with HTML in the names of clients.

SLUICE_TEST_KEEP=FOLDER copies the screenshot to this folder.
"""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import unittest

from deploy_case import main, until

from sluice_process import SluiceTest  # noqa: E402: deploy_case says where it is

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCRIPT = "<script>document.title='owned'</script>"
IMAGE = "<img src=x onerror=document.title='owned'>"


def browse(folder, url, *arguments):
    """Opens the URL and returns the output of the browser. The virtual time budget is long enough for several updates of the
    page."""
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", f"--user-data-dir={folder}", "--window-size=1300,760", "--virtual-time-budget=20000", *arguments, url],
        capture_output=True, text=True, timeout=90, check=False)
    if done.returncode != 0:
        raise AssertionError(f"chromium: {done.returncode}\n{done.stderr}")
    return done.stdout


def text_of(dom, element):
    return re.search(rf'id="{element}"[^>]*>([^<]*)<', dom)[1]


@unittest.skipIf(CHROMIUM is None, "needs program:chromium: chromium is not installed")
class Page(SluiceTest):
    def setUp(self):
        super().setUp()
        self.jobs = []
        self.reducer, self.address, port = self.start_http_reducer("--weight", f"{IMAGE}=2", "--drain-timeout", "5m", "--state", self.folder / "state",
                                                                     "--pool-name", "blue")
        self.url = f"http://127.0.0.1:{port}/"

    def load(self):
        for rank in range(3):
            self.jobs.append(self.start("bench", "soak", "--connect", self.address, "--workers", "3", "--rank", rank, "--session", "0badcafe" * 4,
                                        "--duration", "5m", "--max-size", "1M", env={"SLUICE_TENANT": SCRIPT}))
        until("the load runs", lambda: self.status(self.address)["data"]["chunks"] > 1000 or any(job.ended() for job in self.jobs))
        self.assertFalse(any(job.ended() for job in self.jobs), self.jobs[0].stderr())

    def test_page_shows_sessions_and_escapes_names_of_clients(self):
        self.load()
        model = {"name": "run-7", "versions": 2, "mode": {"kind": "async"}, "rule": {"kind": "add"}, "tensors": [{"name": "x", "dtype": "f32", "shape": [4]}]}
        self.run_sluice("store", "create", "--reducers", self.address, self.write("model.json", json.dumps(model)))
        dom = browse(self.folder / "profile", self.url, "--dump-dom")
        self.assertRegex(dom, '<section id="models-section">')  # not hidden
        self.assertRegex(dom, r'<tr><td class="tenant">run-7</td><td>async</td><td>add</td><td class="n">0</td><td class="n">1, 0 of 1</td>')
        self.assertIn(f"<title>Sluice reducer {socket.gethostname()}</title>", dom)
        self.assertEqual(text_of(dom, "host"), f"{socket.gethostname()}, {self.address}, pool blue")
        self.assertRegex(text_of(dom, "lost"), r"^[\d.]+%$")
        self.assertIn("&lt;script&gt;document.title='owned'&lt;/script&gt;", dom)
        self.assertIn("&lt;img src=x onerror=document.title='owned'&gt;", dom)
        self.assertEqual((dom.count("<script"), dom.count("<img")), (1, 0))
        self.assertTrue(text_of(dom, "state").startswith("ready"), text_of(dom, "state"))
        self.assertRegex(text_of(dom, "in"), r"^[1-9][\d.]* (k|M|G)b/s$")
        self.assertRegex(text_of(dom, "out"), r"^[1-9][\d.]* (k|M|G)b/s$")
        self.assertRegex(text_of(dom, "chunks"), r"^[1-9][\d,]* /s$")
        self.assertIn("0badcafe", dom)
        self.assertRegex(dom, r'class="slow( now)?">rank [012] <b>\d+%</b>')
        self.assertRegex(dom, r'<svg id="in-line".*?<path d="M[\d. ]+L')

    def test_screenshot(self):
        self.load()
        picture = self.folder / "page.png"
        browse(self.folder / "profile", self.url, f"--screenshot={picture}")
        head = picture.read_bytes()[:24]
        self.assertEqual((head[:8], struct.unpack(">II", head[16:24])), (b"\x89PNG\r\n\x1a\n", (1300, 760)))
        self.assertGreater(picture.stat().st_size, 20_000)  # a page without its script or style is smaller
        if "SLUICE_TEST_KEEP" in os.environ:
            shutil.copy(picture, os.environ["SLUICE_TEST_KEEP"])

    def test_page_shows_draining(self):
        self.load()
        self.reducer.signal(signal.SIGTERM)
        until("the reducer drains", lambda: self.status(self.address)["draining"])
        dom = browse(self.folder / "profile", self.url, "--dump-dom")
        self.assertEqual(text_of(dom, "state"), "draining")


if __name__ == "__main__":
    main()
