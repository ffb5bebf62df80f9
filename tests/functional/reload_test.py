"""SIGHUP to a running reducer: what may change does, what may not is named, and a file that is wrong changes nothing."""

import os
import shutil
import signal

from sluice_process import SluiceTest, has_sanitizer, limit_memory, main, until
from capabilities import needs  # noqa: E402: sluice_process says where it is
from tls_test import RUN, Authority


class Reload(SluiceTest):
    def write(self, text):
        """By a rename, as an operator's tools do."""
        path = self.folder / "reducer.toml"
        path.with_suffix(".new").write_text(text)
        os.replace(path.with_suffix(".new"), path)
        return path

    def hang_up(self, reducer):
        """The log's lines about one SIGHUP."""
        before = len(reducer.stderr().splitlines())

        def about():
            lines = reducer.stderr().splitlines()[before:]
            return lines if any("SIGHUP" in line for line in lines) else None
        reducer.signal(signal.SIGHUP)
        return until("the reducer has read its file again", lambda: about() or reducer.ended())

    def weights(self, address):
        return {t["tenant"]: t["weight"] for t in self.status(address)["tenants"]}

    def test_takes_what_may_change_and_names_what_may_not(self):
        path = self.write('lanes = 2\nmemory_limit = "64M"\nweight = { acme = 2, gone = 9 }\n')
        reducer, address = self.start_reducer("--config", path)
        self.write('lanes = 3\nheartbeat = "2s"\nmemory_limit = "32M"\nweight = { acme = 5, new = 7 }\ndefault_weight = 4\nlog_level = "debug"\n')
        lines = self.hang_up(reducer)
        until("the conductor has them", lambda: self.status(address)["memory"]["limit_bytes"] == 32 << 20)
        self.assertIn("read again by SIGHUP: log_level info -> debug, memory_limit 64M -> 32M, weight acme=2,gone=9 -> acme=5,new=7, default_weight 1 -> 4",
                      lines[0])
        later = until("what needs a restart is said", lambda: [line for line in reducer.stderr().splitlines() if "needs a restart" in line] or None)
        self.assertIn('level=warning msg="changed in the file, but needs a restart: lanes, heartbeat"', later[0])
        self.assertEqual(self.weights(address), {"acme": 5, "new": 7, "gone": 4})
        self.assertEqual(self.status(address)["lanes"], 2)

        # Twice the same: nothing new, but the restart is still to come. What is no longer in the file is as without it.
        self.assertIn("no option has changed", self.hang_up(reducer)[0])
        self.write("")
        self.assertIn("log_level debug -> info, memory_limit 32M -> 0, weight acme=5,new=7 -> nothing, default_weight 4 -> 1", self.hang_up(reducer)[0])
        until("the limit is the default", lambda: self.status(address)["memory"]["limit_bytes"] > 64 << 20)

    def test_a_file_that_is_wrong_changes_nothing_and_says_why_once(self):
        path = self.write('memory_limit = "64M"\nlog_level = "info"\n')
        reducer, address = self.start_reducer("--config", path)
        for text, why in (('memory_limit = "32M"\nlanes = = 2\n', r"reducer\.toml:2:9: "), ('memory_limit = "32M"\ndefault_weight = 0\n', r"reducer\.toml:2:18: default_weight = 0: must be 1 to 100"),
                          ('memory_limit = "32M"\nmemory = 2\n', r"reducer\.toml:2:1: memory is no key here")):
            with self.subTest(text):
                self.write(text)
                lines = self.hang_up(reducer)
                self.assertEqual(len(lines), 1, lines)
                self.assertRegex(lines[0], "level=error msg=.nothing is changed by SIGHUP: .*" + why)
                self.assertEqual(self.status(address)["memory"]["limit_bytes"], 64 << 20)
        path.unlink()
        self.assertIn("cannot be read", self.hang_up(reducer)[0])
        self.write('memory_limit = "16M"\n')
        self.assertIn("memory_limit 64M -> 16M", self.hang_up(reducer)[0])

    def test_a_file_that_no_memory_is_left_for_changes_nothing(self):
        path = self.write('memory_limit = "64M"\n')
        reducer, address = self.start_reducer("--config", path, "--lanes", "1")
        if has_sanitizer(reducer):
            self.skipTest("left out: a sanitizer reserves memory of its own first")
        self.write('memory_limit = "32M"\n# ' + 900 * 1024 * "x" + "\n")
        limit_memory(reducer, 0)
        lines = self.hang_up(reducer)
        self.assertFalse(reducer.ended(), reducer.stderr())
        limit_memory(reducer, None)
        self.assertIn("nothing is changed by SIGHUP: std::bad_alloc", lines[0])
        self.assertEqual(self.status(address)["memory"]["limit_bytes"], 64 << 20)
        self.assertIn("memory_limit 64M -> 32M", self.hang_up(reducer)[0])

    def test_command_line_and_variables_still_go_before_the_file(self):
        path = self.write("default_weight = 2\n")
        reducer, address = self.start_reducer("--config", path, "--memory-limit", "64M", env={"SLUICE_WEIGHT": "acme=3"})
        self.write('memory_limit = "32M"\nweight = { acme = 4 }\ndefault_weight = 6\n')
        self.assertIn("read again by SIGHUP: default_weight 2 -> 6\"", self.hang_up(reducer)[0])
        self.assertEqual(self.weights(address), {"acme": 3})
        self.assertEqual(self.status(address)["memory"]["limit_bytes"], 64 << 20)

    def test_without_a_file_it_goes_on(self):
        reducer, address = self.start_reducer()
        self.assertIn("no option has changed", self.hang_up(reducer)[0])
        self.status(address)
        reducer.signal(signal.SIGTERM)
        self.assertEqual(reducer.wait(), 0)

    def test_a_running_session_outlives_it_and_a_new_one_has_the_new_limit(self):
        path = self.write('session_memory_limit = "1G"\n')
        reducer, address = self.start_reducer("--config", path)
        job = self.start("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "5", "-N", "0", "--workers", "2", "--connect", address)
        until("the job has begun", lambda: self.status(address)["data"]["chunks"] > 0 or job.ended())
        self.write('session_memory_limit = "1M"\nweight = { default = 9 }\n')
        self.hang_up(reducer)
        refused = self.run_sluice("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "5", "--workers", "2", "--connect", address, expect=69)
        self.assertIn("a session may have 1048576", refused.stderr)
        self.assertEqual(self.weights(address)["default"], 9)
        chunks = self.status(address)["data"]["chunks"]
        until("the job goes on", lambda: self.status(address)["data"]["chunks"] > chunks or job.ended())
        self.assertFalse(job.ended(), job.stderr())
        job.signal(signal.SIGINT)
        job.wait()

    @needs("program:openssl")
    def test_certificates_are_read_again(self):
        old, new = Authority(self.folder, "old"), Authority(self.folder, "new")
        file = self.folder / "reducer.pem"

        def put(authority):
            shutil.copy(authority.certificate("r", "IP:127.0.0.1"), file)
        put(old)
        reducer, address = self.start_reducer("--tls", "require", "--tls-cert", file)
        if "no RDMA" not in reducer.stderr() and "RDMA by" in reducer.stderr():
            self.skipTest("left out: lanes over RDMA have no TLS")

        def job(authority, expect):
            self.run_sluice(*RUN, "--connect", address, env={"SLUICE_TLS": "require", "SLUICE_TLS_CA": str(authority.ca)}, expect=expect)
        job(old, 0)
        put(new)
        self.assertIn("certificates as they are now", self.hang_up(reducer)[0])
        job(new, 0)
        job(old, 69)
        file.write_text("no certificate\n")
        self.assertRegex(self.hang_up(reducer)[0], "nothing is changed by SIGHUP: .*reducer.pem")
        job(new, 0)


if __name__ == "__main__":
    main()
