"""The units as systemd reads them, and what they start as systemd would start it: with a socket that is told of readiness, and a watchdog."""

import configparser
import ctypes
import os
import re
import shlex
import signal
import socket
import subprocess
import time
import unittest

import deploy_case
from deploy_case import DEADLINE_S, DeployTest, accepts, environment, main, need, program, until

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


def units():
    return deploy_case.ROOT / "deploy" / "systemd"


def read_unit(path):
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(path)
    return parser


class Units(DeployTest):
    def setUp(self):
        need("systemd-analyze")
        super().setUp()
        # verify wants the program that a unit starts and the page that it names.
        for name in ("sluice-reducer.service", "sluice-reducer@.service"):
            text = (units() / name).read_text().replace("/usr/bin/sluice", str(program()))
            (self.folder / name).write_text(re.sub(r"(?m)^Documentation=.*\n", "", text))

    def test_systemd_has_no_complaint(self):
        for name in ("sluice-reducer.service", "sluice-reducer@1.service"):
            self.assertEqual(self.command("systemd-analyze", "verify", "--man=no", self.folder / name).stdout, "")

    def test_the_drop_in_for_rdma_is_read_too(self):
        drop_in = self.folder / "sluice-reducer.service.d"
        drop_in.mkdir()
        (drop_in / "rdma.conf").write_text((units() / "rdma.conf").read_text())
        self.assertEqual(self.command("systemd-analyze", "verify", "--man=no", self.folder / "sluice-reducer.service").stdout, "")

    def test_little_of_the_host_is_open_to_it(self):
        told = self.command("systemd-analyze", "security", "--offline=true", "--threshold=20", self.folder / "sluice-reducer.service").stdout
        self.assertIn("OK", told.splitlines()[-1])

    def test_the_template_differs_in_its_instance_alone(self):
        one, many = ((units() / name).read_text() for name in ("sluice-reducer.service", "sluice-reducer@.service"))
        # Its file of settings is the instance's to name: one that is named and not there is exit 78.
        one = one.replace("Environment=SLUICE_CONFIG=/etc/sluice/reducer.toml\n", "")
        many = re.sub(r"(?m)^# No file of settings unless .*\n", "", many)
        self.assertEqual(many.replace("-%i", "").replace(" %i", ""), one)


class Started(DeployTest):
    """ExecStart of the unit, with what systemd gives it."""

    def setUp(self):
        super().setUp()
        self.errors = self.folder / "stderr"
        self.port_file = self.folder / "port"

    def listener(self, address):
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(heard.close)
        heard.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        heard.settimeout(DEADLINE_S)
        return heard

    def start(self, extra, unit="sluice-reducer.service"):
        service = read_unit(units() / unit)["Service"]
        self.command(program(), "keygen", "--out", self.folder / "pool.key")
        words = shlex.split(service["ExecStart"].replace("${CREDENTIALS_DIRECTORY}", str(self.folder)))
        self.assertEqual(words[0], "/usr/bin/sluice")
        variables = dict(line.split("=", 1) for line in (units() / "sluice-reducer.default").read_text().splitlines()
                         if line and not line.startswith("#"))
        self.assertEqual((variables["SLUICE_LISTEN"], variables["SLUICE_HTTP_LISTEN"]), ("*:7470", "127.0.0.1:9470"))
        # The file that the unit names is one that the package has.
        name, _, configuration = service.get("Environment", "").partition("=")
        self.assertIn((name, configuration), [("SLUICE_CONFIG", "/etc/sluice/reducer.toml"), ("", "")])
        variables.update({"SLUICE_LISTEN": "127.0.0.1:0", "SLUICE_HTTP_LISTEN": "127.0.0.1:0", "SLUICE_PORT_FILE": str(self.port_file)}, **extra)
        if name:
            variables[name] = str(deploy_case.ROOT / "config" / "reducer.toml")
        with open(self.errors, "wb") as errors:
            process = subprocess.Popen([program(), *words[1:]], stderr=errors, stdin=subprocess.DEVNULL, env=environment(variables))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def hear(self, heard, what):
        """The message that has `what` as a line; others before it are dropped."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            lines = heard.recv(4096).decode().splitlines()
            if what in lines:
                return lines
        raise AssertionError(f"{what} was not said: {self.errors.read_text()}")

    def test_it_says_when_it_accepts_and_when_it_drains(self):
        for address in (str(self.folder / "notify"), f"@sluice-test-{os.getpid()}"):
            with self.subTest(address):
                (self.folder / "pool.key").unlink(missing_ok=True)
                self.port_file.unlink(missing_ok=True)
                heard = self.listener(address)
                process = self.start({"NOTIFY_SOCKET": address})
                self.assertEqual(heard.recv(4096).decode().splitlines()[0], "READY=1", "the first that is said")
                self.assertTrue(accepts(int(self.port_file.read_text())), "it accepts when it says so")
                process.send_signal(signal.SIGHUP)  # what ExecReload sends
                until("it has read its settings again", lambda: "SIGHUP" in self.errors.read_text())
                process.send_signal(signal.SIGTERM)
                stopping = self.hear(heard, "STOPPING=1")
                self.assertIn("EXTEND_TIMEOUT_USEC=35000000", stopping)
                self.assertEqual(process.wait(DEADLINE_S), 0)
                self.assertIn("workers must prove a token", self.errors.read_text())

    def test_an_instance_of_the_template_starts_with_what_a_package_leaves(self):
        heard = self.listener(str(self.folder / "notify"))
        process = self.start({"NOTIFY_SOCKET": str(self.folder / "notify")}, "sluice-reducer@.service")
        self.hear(heard, "READY=1")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(DEADLINE_S), 0, self.errors.read_text())

    def test_a_start_that_fails_is_not_ready(self):
        heard = self.listener(str(self.folder / "notify"))
        holder = socket.socket()
        self.addCleanup(holder.close)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        process = self.start({"NOTIFY_SOCKET": str(self.folder / "notify"), "SLUICE_LISTEN": f"127.0.0.1:{holder.getsockname()[1]}"})
        self.assertEqual(process.wait(DEADLINE_S), 75)
        heard.setblocking(False)
        self.assertRaises(BlockingIOError, heard.recv, 4096)

    def test_the_watchdog_hears_of_a_lane_that_hangs(self):
        heard = self.listener(str(self.folder / "notify"))
        process = self.start({"NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "1000000", "SLUICE_LANES": "1"})
        self.hear(heard, "READY=1")
        for _ in range(4):
            self.hear(heard, "WATCHDOG=1")
        # Threads in the order of their start: main, the lane, the conductor.
        lane, conductor = sorted(int(task) for task in os.listdir(f"/proc/{process.pid}/task"))[1:3]
        with Held(lane):
            until("the lane is missed", lambda: "a lane stands still" in self.errors.read_text())
            self.drop_what_was_said(heard)
            self.assertIsNone(self.said_within(heard, 2.5), "no beat while a lane hangs")
        self.hear(heard, "WATCHDOG=1")
        with Held(conductor):
            # A beat may have been on its way; then there are none, for five of their periods.
            until("no beat while the conductor hangs", lambda: self.said_within(heard, 2.5) is None)
        self.hear(heard, "WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(DEADLINE_S), 0)

    def test_another_process_has_no_watchdog(self):
        heard = self.listener(str(self.folder / "notify"))
        process = self.start({"NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"})
        self.hear(heard, "READY=1")
        self.assertIsNone(self.said_within(heard, 1))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(DEADLINE_S), 0)

    def test_a_wrong_address_stops_nobody(self):
        process = self.start({"NOTIFY_SOCKET": "nonsense", "WATCHDOG_USEC": "many"})
        until("it listens", self.port_file.exists)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(DEADLINE_S), 0)
        self.assertIn("NOTIFY_SOCKET=nonsense is no address of a socket", self.errors.read_text())

    def drop_what_was_said(self, heard):
        while self.said_within(heard, 0) is not None:
            pass

    def said_within(self, heard, seconds):
        heard.settimeout(seconds)
        try:
            return heard.recv(4096)
        except (TimeoutError, BlockingIOError):
            return None
        finally:
            heard.settimeout(DEADLINE_S)


class Held:
    """One thread of another process that stands still."""

    def __init__(self, thread):
        self.thread = thread
        self.libc = ctypes.CDLL(None, use_errno=True)

    def ask(self, request):
        if self.libc.ptrace(ctypes.c_long(request), ctypes.c_int(self.thread), None, None) != 0:
            raise unittest.SkipTest(f"needs ptrace: {os.strerror(ctypes.get_errno())}")

    def __enter__(self):
        self.ask(PTRACE_SEIZE)
        self.ask(PTRACE_INTERRUPT)
        os.waitpid(self.thread, 0x40000000)  # __WALL: threads too
        return self

    def __exit__(self, *_):
        self.ask(PTRACE_DETACH)


if __name__ == "__main__":
    main()
