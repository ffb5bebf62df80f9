"""SLUICE_BITS and `sluice bits`: the records of real jobs, jobs that differ, files that cannot be written, and files that are no record."""

import hashlib
import os
import re
import signal
import subprocess
import unittest

import sluice_process
from capabilities import missing
from probes import private_mounts
from sluice_process import DEADLINE_S, SluiceTest, environment, main, until

DIGITS = ("demo", "digits", "--epochs", "2")
SESSION = "000102030405060708090a0b0c0d0e0f"


class BitsTest(SluiceTest):
    def record(self, name, *command, **how):
        """Runs the command with a bit record of each rank in a folder of this name, which it returns."""
        folder = self.folder / name
        folder.mkdir()
        self.run_sluice(*command, env={"SLUICE_BITS": str(folder / "job.bits")}, **how)
        return folder

    def compare(self, *files, expect=0):
        return self.run_sluice("bits", *files, expect=expect).stdout


def operations(path):
    """The columns of each operation of a record."""
    return [line.split("\t") for line in path.read_text().splitlines() if line[0].isdigit()]


def rewrite(path, change):
    """Changes the columns of each operation, and computes the running hash again as the page describes it."""
    lines = []
    digest = bytes(32)
    for line in path.read_text().splitlines():
        if line[0].isdigit():
            columns = line.split("\t")[:-1]
            change(columns)
            digest = hashlib.sha256(digest + "\t".join(columns).encode()).digest()
            line = "\t".join([*columns, digest[:8].hex()])
        lines.append(line)
    path.write_text("\n".join(lines) + "\n")


class Record(BitsTest):
    def test_the_ranks_of_a_job_are_equal_and_its_pools_too(self):
        folders = [self.record(f"run{reducers}", *DIGITS, "--workers", "3", "--reducers", reducers) for reducers in (0, 1, 3)]
        paths = sorted(folders[0].iterdir())
        self.assertEqual([path.name[-6:] for path in paths], ["0.bits", "1.bits", "2.bits"])
        count = len(operations(paths[0]))
        self.assertGreater(count, 20)
        running = operations(paths[0])[-1][-1]
        text = self.compare(*folders)
        self.assertEqual(text.count(f"  {count} operations equal on 3 ranks (running hash {running})\n"), 3, text)
        self.assertIn(f"\nrun B equals run A: {count} operations\nrun C equals run A: {count} operations\n", text)
        self.assertEqual(self.compare(*(path for folder in folders for path in sorted(folder.iterdir()))), text)

    def test_the_running_hash_is_the_one_of_the_page(self):
        path = sorted(self.record("run", *DIGITS, "--workers", "2").iterdir())[0]
        before = path.read_text()
        rewrite(path, lambda columns: None)
        self.assertEqual(path.read_text(), before)

    def test_the_plugin_records_each_session(self):
        folder = self.record("plugin", *DIGITS, "--workers", "3", "--through-plugin")
        text = self.compare(folder)
        self.assertEqual(len(re.findall(r"^run A session [12]: session \w{8}, job default, 3 of 3 ranks, sluice \d+\.\d+\.\d+, ", text, re.MULTILINE)), 2, text)
        self.assertEqual(text.count(" operations equal on 3 ranks "), 2, text)

    def test_an_option_names_the_file_with_a_pattern_of_its_own(self):
        self.run_sluice(*DIGITS, "--workers", "2", "--bits-file", self.folder / "%r.%p.bits")
        self.assertEqual([re.sub(r"\d+\.bits$", "", path.name) for path in sorted(self.folder.glob("*.bits"))], ["0.", "1."])

    def test_a_killed_worker_leaves_a_record_that_can_be_compared(self):
        _, address = self.start_reducer("--heartbeat", "100ms", "--peer-timeout", "5s", "--absence-timeout", "500ms")
        ranks = [self.start("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "100000000", "--workers", "2", "--rank", rank, "--session", SESSION, "--connect", address,
                            env={"SLUICE_BITS": str(self.folder / "job.bits")}) for rank in (0, 1)]
        paths = [self.folder / f"job-00010203-rank{rank}.bits" for rank in (0, 1)]
        until("the records grow", lambda: any(rank.ended() for rank in ranks) or all(path.exists() and path.stat().st_size > 10_000 for path in paths))
        ranks[1].signal(signal.SIGKILL)
        ranks[1].wait()
        self.assertNotEqual(ranks[0].wait(), 0)
        text = self.compare(*paths)
        self.assertRegex(text, r"  [\d,]+ operations equal on 2 ranks \(running hash \w{16}\)\n")
        self.assertRegex(text, r"  rank 0: ends after operation \d+: operation \d+ failed: ")
        self.assertRegex(text, r"  rank 1: ends after operation \d+( in an incomplete line)?: the process was killed or still runs\n")
        paths[1].write_text(paths[1].read_text().rstrip(" ")[:-4])
        self.assertRegex(self.compare(*paths), r"  rank 1: ends after operation \d+ in an incomplete line: ")


class Difference(BitsTest):
    def test_a_flipped_bit_names_operation_rank_and_host(self):
        folder = self.record("run", *DIGITS, "--workers", "3")
        [path] = folder.glob("*-rank1.bits")

        def flip(columns):
            if columns[0] == "17":
                columns[5] = f"{int(columns[5], 16) ^ 1:08x}"

        count = operations(path)[17][4]
        rewrite(path, flip)
        text = self.compare(folder, expect=2)
        self.assertIn(f"  operation 17 (allreduce of {count} f32, sum): rank 1 differs from ranks 0, 2\n", text)
        self.assertIn(f"  rank 1 on host {os.uname().nodename} differs from most ranks in 1 operation\n", text)

    def test_jobs_with_other_data_differ_from_their_first_operation_on(self):
        folders = [self.record(f"seed{seed}", *DIGITS, "--workers", "2", "--seed", seed) for seed in (1, 2)]
        text = self.compare(*folders, expect=2)
        self.assertEqual(text.count(" operations equal on 2 ranks "), 2, text)
        self.assertRegex(text, r"\nrun B differs from run A first at operation 0 \(allreduce of \d+ f32, sum\); \d+ of \d+ operations differ\n")


class Unwritable(BitsTest):
    def test_a_missing_folder_is_one_warning_of_each_rank(self):
        done = self.run_sluice(*DIGITS, "--workers", "3", env={"SLUICE_BITS": str(self.folder / "none/job.bits")})
        self.assertEqual(done.stderr.count("no bit record: cannot write to SLUICE_BITS"), 3, done.stderr)
        self.assertEqual(done.stderr.count("No such file or directory"), 3, done.stderr)

    def test_a_limit_of_the_file_size_in_the_midst_is_one_warning(self):
        stderr = self.run_in_shell('ulimit -f 2; exec "$@"', env={"SLUICE_BITS": str(self.folder / "job.bits")})
        self.expect_early_end(stderr, "File too large")

    def test_a_full_disk_in_the_midst_is_one_warning(self):
        if reason := missing("bind-mounts"):
            self.skipTest(reason)
        disk = self.folder / "disk"
        disk.mkdir()
        script = f'mount -t tmpfs -o size=8k none {disk} || exit 99; "$@" && cp {disk}/* {self.folder}'
        stderr = self.run_in_shell(script, *private_mounts(), env={"SLUICE_BITS": str(disk / "job.bits")})
        self.expect_early_end(stderr, "No space left on device")

    def run_in_shell(self, script, *prefix, env):
        """Runs a job of one rank with a long record, which must succeed, in a shell script that gets it as its arguments: its stderr."""
        done = subprocess.run([*prefix, "sh", "-c", script, "sh", sluice_process.PROGRAM, "bench", "allreduce", "-b", "4", "-e", "4", "-n", "5000",
                               "--workers", "1", "--reducers", "1"], capture_output=True, text=True, timeout=DEADLINE_S, env=environment(env), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def expect_early_end(self, stderr, reason):
        """The job has ended well with one warning, and the record of its first operations can be read."""
        self.assertEqual(stderr.count("the bit record ends early: cannot write to SLUICE_BITS"), 1, stderr)
        self.assertEqual(stderr.count(reason), 1, stderr)
        [path] = self.folder.glob("*.bits")
        text = self.compare(path, expect=1)
        self.assertRegex(text, rf"  rank 0: ends [\w ]+: {reason}\n")


class Refusal(BitsTest):
    def test_a_file_that_is_no_record_is_exit_78_and_names_the_line(self):
        folder = self.record("run", *DIGITS, "--workers", "2")
        path, other = sorted(folder.iterdir())
        self.expect_error(64, "files is required", "bits")
        self.expect_error(78, "No such file", "bits", self.folder / "missing")
        self.expect_error(78, ":1: not a bit record of SLUICE_BITS", "bits", sluice_process.PROGRAM)
        self.expect_error(78, "empty: the file is empty", "bits", self.write("empty", ""))
        lines = path.read_text().splitlines(keepends=True)
        self.expect_error(78, "bad:15: not an operation of a bit record", "bits", self.write("bad", "".join([*lines[:14], "hello\n", *lines[14:]])))
        changed = re.sub(r"^3\t.*$", lambda line: line[0].replace("\tsum\t", "\tmax\t"), path.read_text(), flags=re.MULTILINE)
        self.expect_error(78, "changed:15: the running hash does not match the lines up to here", "bits", self.write("changed", changed))
        empty = self.folder / "folder"
        empty.mkdir()
        self.expect_error(78, "the folder has no bit record", "bits", empty)
        other.write_text(path.read_text())
        self.expect_error(78, "a second record of rank 0", "bits", folder)

    def test_one_rank_alone_is_no_comparison(self):
        path = sorted(self.record("run", *DIGITS, "--workers", "2").iterdir())[0]
        done = self.expect_error(1, "nothing to compare", "bits", path)
        self.assertRegex(done.stdout, r"  \d+ operations of rank 0 alone \(running hash \w{16}\)\n")


if __name__ == "__main__":
    main()
