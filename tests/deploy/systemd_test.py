"""Checks the systemd units with systemd-analyze, and starts their reducers like systemd does, with a notification socket and a
watchdog."""

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
from deploy_case import DEADLINE_S, DeployTest, accepts, capabilities, environment, main, need, program, until

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


def unit_path(name):
    """Returns the path of a unit or another file of deploy/systemd. The build generates the template of instances."""
    return (deploy_case.BUILD / "deploy/packaging" if "@" in name else deploy_case.ROOT / "deploy/systemd") / name


def packaged_settings():
    return deploy_case.BUILD / "deploy/packaging/reducer.toml"


def read_unit(path):
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(path)
    return parser


class Units(DeployTest):
    def setUp(self):
        need("systemd-analyze")
        super().setUp()
        # systemd-analyze checks that the program of a unit exists. The path of the build may contain spaces, the link does not.
        link = self.folder / "sluice"
        link.symlink_to(program())
        for name in ("sluice-reducer.service", "sluice-reducer@.service"):
            text = unit_path(name).read_text().replace("/usr/bin/sluice", str(link))
            (self.folder / name).write_text(re.sub(r"(?m)^Documentation=.*\n", "", text))

    def test_systemd_accepts_the_units(self):
        for name in ("sluice-reducer.service", "sluice-reducer@1.service"):
            self.assertEqual(self.command("systemd-analyze", "verify", "--man=no", self.folder / name).stdout, "")

    def test_systemd_accepts_the_drop_ins(self):
        drop_in = self.folder / "sluice-reducer.service.d"
        drop_in.mkdir()
        for name in ("rdma.conf", "models.conf"):
            (drop_in / name).write_text(unit_path(name).read_text())
            self.assertEqual(self.command("systemd-analyze", "verify", "--man=no", self.folder / "sluice-reducer.service").stdout, "", name)

    def test_models_are_in_the_folder_that_the_unit_may_write(self):
        service, drop_in = (read_unit(unit_path(name))["Service"] for name in ("sluice-reducer.service", "models.conf"))
        self.assertEqual((service["ProtectSystem"], service["StateDirectory"], service["LogsDirectory"]), ("strict", "%N", "%N"))
        self.assertEqual(drop_in["Environment"], "SLUICE_STATE=%S/" + service["StateDirectory"])

    def test_exposure_to_the_host_is_low(self):
        output = self.command("systemd-analyze", "security", "--offline=true", "--threshold=20", self.folder / "sluice-reducer.service").stdout
        self.assertIn("OK", output.splitlines()[-1])

    def test_template_differs_only_in_the_instance(self):
        one, many = (unit_path(name).read_text() for name in ("sluice-reducer.service", "sluice-reducer@.service"))
        # Only an instance chooses its configuration file, because a reducer exits with 78 if the file is missing.
        one = one.replace("Environment=SLUICE_CONFIG=/etc/sluice/reducer.toml\n", "")
        many = re.sub(r"(?m)^# To use a configuration file, set SLUICE_CONFIG=.*\n", "", many)
        self.assertEqual(many.replace("-%i", "").replace(" %i", ""), one)


class StartedReducer(DeployTest):
    """Runs ExecStart of a unit with the variables and files that systemd provides."""

    def setUp(self):
        super().setUp()
        self.errors = self.folder / "stderr"
        self.port_file = self.folder / "port"
        self.settings = None

    def listen(self, address):
        notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notifications.close)
        notifications.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        notifications.settimeout(DEADLINE_S)
        return notifications

    def start_notifying(self, unit="sluice-reducer.service", **extra):
        """Starts the reducer of the unit with a notification socket: (process, socket)."""
        address = str(self.folder / "notify")
        notifications = self.listen(address)
        return self.start_unit({"NOTIFY_SOCKET": address, **extra}, unit), notifications

    def start_unit(self, extra, unit="sluice-reducer.service"):
        service = read_unit(unit_path(unit))["Service"]
        self.command(program(), "keygen", "--out", self.folder / "pool.key")
        command = shlex.split(service["ExecStart"].replace("${CREDENTIALS_DIRECTORY}", str(self.folder)).replace("/run/%N", str(self.folder / "run")))
        self.assertEqual(command[0], "/usr/bin/sluice")
        # A variable would have precedence over what an operator writes into the configuration file.
        self.assertEqual([line for line in unit_path("sluice-reducer.default").read_text().splitlines() if line and not line.startswith("#")], [])
        variables = {}
        # The package contains the configuration file of the unit.
        name, _, configuration = service.get("Environment", "").partition("=")
        self.assertIn((name, configuration), [("SLUICE_CONFIG", "/etc/sluice/reducer.toml"), ("", "")])
        variables.update({"SLUICE_LISTEN": "127.0.0.1:0", "SLUICE_HTTP_LISTEN": "127.0.0.1:0", "SLUICE_PORT_FILE": str(self.port_file)}, **extra)
        if name:
            variables[name] = str(self.settings or packaged_settings())
        return self.start_process([program(), *command[1:]], self.errors, environment(variables))

    def wait_for(self, notifications, line):
        """Returns the lines of the first message that contains `line`. Earlier messages are dropped."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            lines = notifications.recv(4096).decode().splitlines()
            if line in lines:
                return lines
        raise AssertionError(f"no notification {line}: {self.errors.read_text()}")

    def test_readiness_and_drain_are_notified(self):
        for address in (str(self.folder / "notify"), f"@sluice-test-{os.getpid()}"):
            with self.subTest(address):
                (self.folder / "pool.key").unlink(missing_ok=True)
                self.port_file.unlink(missing_ok=True)
                notifications = self.listen(address)
                process = self.start_unit({"NOTIFY_SOCKET": address})
                self.assertEqual(notifications.recv(4096).decode().splitlines()[0], "READY=1", "the first notification")
                self.assertTrue(accepts(int(self.port_file.read_text())), "the reducer accepts connections when it notifies readiness")
                process.send_signal(signal.SIGHUP)  # the signal of ExecReload
                until("the configuration is reloaded", lambda: "configuration reloaded" in self.errors.read_text())
                process.send_signal(signal.SIGTERM)
                stopping = self.wait_for(notifications, "STOPPING=1")
                self.assertIn("EXTEND_TIMEOUT_USEC=35000000", stopping)
                self.assertEqual(process.wait(DEADLINE_S), 0)
                self.assertIn("workers must prove a token", self.errors.read_text())

    def reload(self, process):
        """Runs what ExecReload does to the main process of the unit. Returns the present key, and the copy of it."""
        present = self.folder / "etc.key"  # in place of /etc/sluice/pool.key; the credential stays a copy of the old one
        self.command(program(), "keygen", "--out", present)
        commands = re.findall(r"(?m)^ExecReload=(.*)$", unit_path("sluice-reducer.service").read_text())
        self.assertTrue(commands[0].startswith("+"), "as root, who alone reads the key")
        for line in commands:
            for old, new in (("/etc/sluice/pool.key", str(present)), ("/run/%N", str(self.folder / "run")), ("$$", "$"), ("%%", "%")):
                line = line.replace(old, new)
            self.command(*shlex.split(line.lstrip("+").replace("-HUP $MAINPID", f"-HUP {process.pid}")), env={**os.environ, "MAINPID": str(process.pid)})
        copy = self.folder / "run/pool.key"
        self.assertEqual((copy.read_text(), copy.stat().st_mode & 0o777), (present.read_text(), 0o400))
        return present, copy

    def test_the_copy_of_the_key_belongs_to_the_reducers_user(self):
        capabilities.need("root")
        nobody = 65534
        process = subprocess.Popen(["sleep", "1000"], user=nobody)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        _, copy = self.reload(process)
        self.assertEqual(copy.stat().st_uid, nobody)

    def test_a_reload_reaches_a_key_that_the_credential_lacks(self):
        process, notifications = self.start_notifying()
        self.wait_for(notifications, "READY=1")
        present, _ = self.reload(process)
        until("the key is reread", lambda: "1 pool key" in self.errors.read_text())
        address = f"127.0.0.1:{self.port_file.read_text().strip()}"
        self.command(program(), "status", "--reducers", address, "--key-file", present)
        self.command(program(), "status", "--reducers", address, "--key-file", self.folder / "pool.key", expect=69)
        self.terminate(process, self.errors)

    def test_instance_of_the_template_starts_with_the_files_of_the_package(self):
        process, notifications = self.start_notifying("sluice-reducer@.service")
        self.wait_for(notifications, "READY=1")
        self.terminate(process, self.errors)

    def test_settings_of_the_package(self):
        sample = (deploy_case.ROOT / "config/reducer.toml").read_text()
        added = [line for line in packaged_settings().read_text().splitlines() if line not in sample.splitlines() and not line.startswith("#")]
        self.assertEqual(added, ['listen = "*:7470"', 'http_listen = "127.0.0.1:9470"'])
        # An address in the file has effect, because nothing in the package overrides it.
        blocker = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        address = f"127.0.0.1:{blocker.getsockname()[1]}"
        self.settings = self.folder / "reducer.toml"
        self.settings.write_text(packaged_settings().read_text().replace("*:7470", address))
        process = self.start_unit({"SLUICE_LISTEN": ""})
        self.assertEqual(process.wait(DEADLINE_S), 75)
        self.assertIn(f"{address}: address already in use", self.errors.read_text())

    def test_state_that_cannot_be_written_ends_the_start_for_good(self):
        """The exit code must be one that the unit does not restart, and the start must fail before readiness."""
        capabilities.need("root")
        for variable in ("SLUICE_STATE", "SLUICE_BLACKBOX"):
            with self.subTest(variable):
                (self.folder / "pool.key").unlink(missing_ok=True)
                process = self.start_unit({variable: "/proc/sys/none", "STATE_DIRECTORY": "/var/lib/sluice-reducer"})
                self.assertEqual(process.wait(DEADLINE_S), 78)
                self.assertIn("78", read_unit(unit_path("sluice-reducer.service"))["Service"]["RestartPreventExitStatus"].split())
                self.assertNotIn("listens", self.errors.read_text())
                self.assertRegex(self.errors.read_text(), rf"--{variable[7:].lower()} /proc/sys/none: cannot write to /proc/sys")

    def test_black_box_on_request_goes_to_the_folder_of_logs(self):
        logs = self.folder / "logs"
        logs.mkdir()
        process, notifications = self.start_notifying(LOGS_DIRECTORY=f"{logs}:/nonexistent")
        self.wait_for(notifications, "READY=1")
        process.send_signal(signal.SIGUSR2)
        until("the black box is written", lambda: list(logs.glob("sluice-blackbox-*.jsonl")), process)
        self.terminate(process, self.errors)

    def test_failed_start_notifies_no_readiness(self):
        blocker = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        process, notifications = self.start_notifying(SLUICE_LISTEN=f"127.0.0.1:{blocker.getsockname()[1]}")
        self.assertEqual(process.wait(DEADLINE_S), 75)
        notifications.setblocking(False)
        self.assertRaises(BlockingIOError, notifications.recv, 4096)

    def test_watchdog_detects_a_hanging_lane_and_control_loop(self):
        process, notifications = self.start_notifying(WATCHDOG_USEC="1000000", SLUICE_LANES="1")
        self.wait_for(notifications, "READY=1")
        for _ in range(4):
            self.wait_for(notifications, "WATCHDOG=1")
        # Threads in the order of their start: main, the lane, the control loop.
        lane, control_loop = sorted(int(task) for task in os.listdir(f"/proc/{process.pid}/task"))[1:3]
        with StoppedThread(lane):
            until("the reducer reports the hanging lane", lambda: "a lane or the control loop makes no progress" in self.errors.read_text())
            self.drop_notifications(notifications)
            self.assertIsNone(self.receive_within(notifications, 2.5), "notification while a lane hangs")
        self.wait_for(notifications, "WATCHDOG=1")
        with StoppedThread(control_loop):
            # One notification may already be in the socket. Then there must be none for 2.5 s, ten intervals.
            until("no notification while the control loop hangs", lambda: self.receive_within(notifications, 2.5) is None)
        self.wait_for(notifications, "WATCHDOG=1")
        self.terminate(process, self.errors)

    def test_watchdog_of_another_process_is_ignored(self):
        process, notifications = self.start_notifying(WATCHDOG_USEC="200000", WATCHDOG_PID="1")
        self.wait_for(notifications, "READY=1")
        self.assertIsNone(self.receive_within(notifications, 1))
        self.terminate(process, self.errors)

    def test_invalid_socket_address_is_only_a_warning(self):
        process = self.start_unit({"NOTIFY_SOCKET": "nonsense", "WATCHDOG_USEC": "many"})
        until("the reducer listens", self.port_file.exists)
        self.terminate(process, self.errors)
        self.assertIn("NOTIFY_SOCKET=nonsense is not a socket address", self.errors.read_text())

    def drop_notifications(self, notifications):
        while self.receive_within(notifications, 0) is not None:
            pass

    def receive_within(self, notifications, seconds):
        notifications.settimeout(seconds)
        try:
            return notifications.recv(4096)
        except (TimeoutError, BlockingIOError):
            return None
        finally:
            notifications.settimeout(DEADLINE_S)


class StoppedThread:
    """Stops one thread of another process with ptrace."""

    def __init__(self, thread):
        self.thread = thread
        self.libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(self, request):
        if self.libc.ptrace(ctypes.c_long(request), ctypes.c_int(self.thread), None, None) != 0:
            raise unittest.SkipTest(f"needs ptrace: {os.strerror(ctypes.get_errno())}")

    def __enter__(self):
        self.ptrace(PTRACE_SEIZE)
        self.ptrace(PTRACE_INTERRUPT)
        os.waitpid(self.thread, 0x40000000)  # __WALL: threads too
        return self

    def __exit__(self, *_):
        self.ptrace(PTRACE_DETACH)


if __name__ == "__main__":
    main()
