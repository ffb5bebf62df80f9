"""A reducer list in a file, @FILE: the file changes while a job runs, and the job moves to the listed reducers."""

import json
import os
import signal

from sluice_process import SluiceTest, main, until


class PoolFile(SluiceTest):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "pool"
        self.reducers, self.addresses = [], []

    def add_reducers(self, count, *options):
        for _ in range(count):
            reducer, address = self.start_reducer("--peer-timeout", "5s", "--heartbeat", "200ms", *options)
            self.reducers.append(reducer)
            self.addresses.append(address)

    def line(self, number):
        return self.addresses[number].ljust(24)  # the same length for every port

    def list(self, numbers, comment="the pool"):
        self.write(self.file.name, f"# {comment}\n" + "".join(f"{self.line(n)}\n" for n in numbers))

    def soak(self, *options):
        return self.start("bench", "soak", "--duration", "0", "--interval", "1s", "--seed", "5", "--max-size", "256K", "--workers", "2", "--json",
                          self.folder / "soak.json", "--connect", f"@{self.file}", *options)

    def runs_on(self, running, numbers):
        """Waits until the job's chunks go to exactly these of the started reducers."""
        def uses_exactly():
            self.assertFalse(running.ended(), running.stderr())
            for n, address in enumerate(self.addresses):
                status = self.status(address)
                if (status["sessions"]["open"] == 1 and status["data"]["chunks"] > 0) != (n in numbers):
                    return False
            return True
        until(f"the job runs on {numbers}", uses_exactly)

    def finish(self, running):
        running.signal(signal.SIGTERM)
        self.assertEqual(running.wait(), 0, running.stderr())
        self.assertEqual(json.loads((self.folder / "soak.json").read_text())["nwrong"], 0)
        for address in self.addresses:
            until(f"{address} has freed its memory", lambda a=address: self.status(a)["memory"]["reserved_bytes"] == 0)

    def test_a_job_follows_the_list(self):
        self.add_reducers(4)
        self.list([0, 1])
        running = self.soak()
        self.runs_on(running, {0, 1})
        self.list([0, 1, 2])
        self.runs_on(running, {0, 1, 2})
        self.list([1, 2])  # removes the arbiter
        self.runs_on(running, {1, 2})
        self.list([3, 0])  # removes all, and adds one that the session had removed before
        self.runs_on(running, {0, 3})
        self.finish(running)

    def test_a_job_follows_the_list_of_a_config_map(self):
        """As the kubelet writes it: a link to a link to a folder, which a rename replaces."""
        self.add_reducers(2)
        self.file = self.folder / "mounted"

        def write_version(version, number):
            (self.folder / version).mkdir()
            self.write(f"{version}/mounted", self.line(number))
            (self.folder / "..data_tmp").symlink_to(version)
            os.replace(self.folder / "..data_tmp", self.folder / "..data")

        write_version("v1", 0)
        self.file.symlink_to("..data/mounted")
        running = self.soak()
        self.runs_on(running, {0})
        write_version("v2", 1)
        self.runs_on(running, {1})
        self.finish(running)

    def test_an_error_in_the_list_is_logged_and_changes_nothing(self):
        self.add_reducers(2)
        self.list([0])
        running = self.soak()
        self.runs_on(running, {0})
        self.file.write_text(f"{self.addresses[0]}\n  nobody:99999\n")
        until("the error is logged", lambda: f"{self.file}:2:3: " in running.stderr() and "is not in 1..65535" in running.stderr())
        self.runs_on(running, {0})
        self.list([0, 1])
        self.runs_on(running, {0, 1})
        self.finish(running)
        self.expect_error(64, "cannot read reducer list", "bench", "soak", "--connect", f"@{self.folder}/none")

    def test_a_reducer_that_refuses_is_left_out_and_retried(self):
        self.add_reducers(1)
        self.add_reducers(1, "--memory-limit", "1M")
        self.list([0])
        running = self.soak()
        self.runs_on(running, {0})
        self.list([0, 1])
        until("the refusal is logged", lambda: "reducer of the list cannot be used" in running.stderr() and "bytes; the memory limit is" in running.stderr())
        self.runs_on(running, {0})
        # A reducer with enough memory replaces it.
        self.expect_drained(self.reducers[1])
        replacement = self.start("reducer", "--listen", self.addresses[1])
        until("the reducer listens", lambda: "listens on" in replacement.stderr() or replacement.ended())
        self.runs_on(running, {0, 1})
        self.finish(running)
        self.assertEqual(running.stderr().count("bytes; the memory limit is"), 1, running.stderr())

    def test_sighup_reads_the_list_at_once(self):
        self.add_reducers(2)
        self.list([0])
        running = self.soak()
        self.runs_on(running, {0})
        # In place, with the same modification time and length, so that only SIGHUP causes a read.
        at = os.stat(self.file)
        with open(self.file, "r+", encoding="ascii") as file:
            text = file.read()
            file.seek(0)
            file.write(text.replace(self.line(0), self.line(1)))
        os.utime(self.file, ns=(at.st_atime_ns, at.st_mtime_ns))
        running.signal(signal.SIGHUP)
        self.runs_on(running, {1})
        self.finish(running)


if __name__ == "__main__":
    main()
