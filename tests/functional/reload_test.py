"""SIGHUP to a running reducer: reloadable options change, others are reported, and an invalid file changes nothing."""

import shutil
import signal

from sluice_process import SluiceTest, has_sanitizer, limit_memory, main, until
from capabilities import needs  # noqa: E402: sluice_process says where it is
from tls_test import RUN, Authority

JOB = ("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "5", "--workers", "2")


class ReloadTest(SluiceTest):
    def hang_up(self, reducer):
        """Sends SIGHUP and returns the log lines about the file."""
        def all_lines():
            return [line for line in reducer.stderr().splitlines() if "reloaded" in line]
        before = len(all_lines())

        def new_lines():
            return all_lines()[before:] or None
        reducer.signal(signal.SIGHUP)
        return until("the reducer has reread its file", lambda: new_lines() or reducer.ended())

    def weights(self, address):
        return {t["tenant"]: t["weight"] for t in self.status(address)["tenants"]}

    def test_applies_reloadable_options_and_reports_the_others(self):
        path = self.write("reducer.toml", 'lanes = 2\nmemory_limit = "64M"\nweight = { acme = 2, gone = 9 }\n')
        reducer, address = self.start_reducer("--config", path)
        self.write("reducer.toml", 'lanes = 3\nheartbeat = "2s"\nmemory_limit = "32M"\nweight = { acme = 5, new = 7 }\ndefault_weight = 4\nlog_level = "debug"\n')
        lines = self.hang_up(reducer)
        until("the control loop has applied them", lambda: self.status(address)["memory"]["limit_bytes"] == 32 << 20)
        self.assertIn("configuration reloaded: log_level info -> debug, memory_limit 64M -> 32M, weight acme=2,gone=9 -> acme=5,new=7, default_weight 1 -> 4",
                      lines[0])
        later = until("the options that need a restart are logged", lambda: [line for line in reducer.stderr().splitlines() if "require a restart" in line] or None)
        self.assertIn('level=warning msg="changed options that require a restart: lanes, heartbeat"', later[0])
        self.assertEqual(self.weights(address), {"acme": 5, "new": 7, "gone": 4})
        self.assertEqual(self.status(address)["lanes"], 2)

        # An unchanged file changes nothing. An option removed from the file gets its default.
        self.assertIn("no option changed", self.hang_up(reducer)[0])
        self.write("reducer.toml", "")
        self.assertIn("log_level debug -> info, memory_limit 32M -> 0, weight acme=5,new=7 -> (empty), default_weight 4 -> 1", self.hang_up(reducer)[0])
        until("the limit is the default", lambda: self.status(address)["memory"]["limit_bytes"] > 64 << 20)

    def test_an_invalid_file_changes_nothing_and_logs_one_error(self):
        path = self.write("reducer.toml", 'memory_limit = "64M"\nlog_level = "info"\n')
        reducer, address = self.start_reducer("--config", path)
        for text, why in (('memory_limit = "32M"\nlanes = = 2\n', r"reducer\.toml:2:9: "), ('memory_limit = "32M"\ndefault_weight = 0\n', r"reducer\.toml:2:18: default_weight = 0: must be 1 to 100"),
                          ('memory_limit = "999T"\n', "--memory-limit is 1098412116 MB, but this process may use only "),
                          ('memory_limit = "32M"\nmemory = 2\n', r'reducer\.toml:2:1: unknown key "memory"')):
            with self.subTest(text):
                self.write("reducer.toml", text)
                lines = self.hang_up(reducer)
                self.assertEqual(len(lines), 1, lines)
                self.assertRegex(lines[0].replace('\\"', '"'), "level=error msg=.configuration not reloaded: .*" + why)
                self.assertEqual(self.status(address)["memory"]["limit_bytes"], 64 << 20)
        path.unlink()
        self.assertIn(f"configuration not reloaded: cannot read {path}: ", self.hang_up(reducer)[0])
        self.write("reducer.toml", 'memory_limit = "16M"\n')
        self.assertIn("memory_limit 64M -> 16M", self.hang_up(reducer)[0])

    def test_running_out_of_memory_while_reading_changes_nothing(self):
        path = self.write("reducer.toml", 'memory_limit = "64M"\n')
        reducer, address = self.start_reducer("--config", path, "--lanes", "1")
        if has_sanitizer(reducer):
            self.skipTest("left out: a sanitizer reserves memory of its own first")
        self.hang_up(reducer)  # it has started all its threads
        self.write("reducer.toml", 'memory_limit = "32M"\n# ' + 900 * 1024 * "x" + "\n")
        limit_memory(reducer, 0)
        lines = self.hang_up(reducer)
        self.assertFalse(reducer.ended(), reducer.stderr())
        limit_memory(reducer, None)
        self.assertIn("configuration not reloaded: std::bad_alloc", lines[0])
        self.assertEqual(self.status(address)["memory"]["limit_bytes"], 64 << 20)
        self.assertIn("memory_limit 64M -> 32M", self.hang_up(reducer)[0])

    def test_command_line_and_variables_override_the_file(self):
        path = self.write("reducer.toml", "default_weight = 2\n")
        reducer, address = self.start_reducer("--config", path, "--memory-limit", "64M", env={"SLUICE_WEIGHT": "acme=3"})
        self.write("reducer.toml", 'memory_limit = "32M"\nweight = { acme = 4 }\ndefault_weight = 6\n')
        self.assertIn("configuration reloaded: default_weight 2 -> 6\"", self.hang_up(reducer)[0])
        self.assertEqual(self.weights(address), {"acme": 3})
        self.assertEqual(self.status(address)["memory"]["limit_bytes"], 64 << 20)

    def test_sighup_without_a_file_changes_nothing(self):
        reducer, address = self.start_reducer()
        self.assertIn("no option changed", self.hang_up(reducer)[0])
        self.status(address)
        self.expect_drained(reducer)

    def test_new_limits_apply_to_new_sessions_only(self):
        path = self.write("reducer.toml", 'session_memory_limit = "1G"\n')
        reducer, address = self.start_reducer("--config", path)
        job = self.start(*JOB, "-N", "0", "--connect", address)
        until("the job has started", lambda: self.status(address)["data"]["chunks"] > 0 or job.ended())
        self.write("reducer.toml", 'session_memory_limit = "1M"\nweight = { default = 9 }\n')
        self.hang_up(reducer)
        self.expect_error(69, "the memory limit of a session is 1048576 bytes", *JOB, "--connect", address)
        self.assertEqual(self.weights(address)["default"], 9)
        chunks = self.status(address)["data"]["chunks"]
        until("the job continues", lambda: self.status(address)["data"]["chunks"] > chunks or job.ended())
        self.assertFalse(job.ended(), job.stderr())
        job.signal(signal.SIGINT)
        job.wait()

    @needs("program:openssl")
    def test_certificates_are_reread(self):
        old, new = Authority(self.folder, "old"), Authority(self.folder, "new")
        file = self.folder / "reducer.pem"

        def install(authority):
            shutil.copy(authority.certificate("r", "IP:127.0.0.1"), file)
        install(old)
        reducer, address = self.start_reducer("--tls", "require", "--tls-cert", file)
        if "RDMA over" in reducer.stderr():
            self.skipTest("left out: lanes over RDMA have no TLS")

        def job(authority, expect):
            self.run_sluice(*RUN, "--connect", address, env={"SLUICE_TLS": "require", "SLUICE_TLS_CA": str(authority.ca)}, expect=expect)
        job(old, 0)
        install(new)
        self.assertIn("certificates reloaded", self.hang_up(reducer)[0])
        job(new, 0)
        job(old, 69)
        file.write_text("no certificate\n")
        self.assertRegex(self.hang_up(reducer)[0], "configuration not reloaded: .*reducer.pem")
        job(new, 0)


if __name__ == "__main__":
    main()
