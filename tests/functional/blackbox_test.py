"""The black box: files of real processes on failures and on SIGUSR2, `sluice blackbox`, and files that cannot be written or read."""

import json
import os
import re
import signal
import socket
import subprocess
import unittest
from pathlib import Path

import sluice_process
from capabilities import missing
from probes import private_mounts
from sluice_process import DEADLINE_S, SluiceTest, environment, main, row_count, until

ALLREDUCE = ("bench", "allreduce", "-b", "64K", "-e", "256K", "-f", "4", "-n", "5", "-N", "0", "--workers", "2")
SESSION = "000102030405060708090a0b0c0d0e0f"
SHORT = ("--heartbeat", "100ms", "--peer-timeout", "3s", "--absence-timeout", "500ms")


class BlackboxTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.box = self.folder / "box"
        self.box.mkdir()

    def start_pool(self, *arguments, count=2):
        pool = [self.start_reducer("--blackbox", self.box, *arguments) for _ in range(count)]
        return [reducer for reducer, _ in pool], [address for _, address in pool]

    def start_job(self, addresses, *arguments, env=None):
        """Two ranks as a process each, once the first has printed results."""
        ranks = [self.start(*ALLREDUCE, "--rank", rank, "--session", SESSION, "--connect", ",".join(addresses), "--blackbox", self.box, *arguments, env=env)
                 for rank in range(2)]
        self.wait_for_rows(ranks[0])
        self.assertFalse(any(rank.ended() for rank in ranks), "".join(rank.stderr() for rank in ranks))
        return ranks

    def file_of(self, process):
        return self.box / f"blackbox-{os.uname().nodename}-{process.pid}.jsonl"

    def lines_of(self, path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    def header_of(self, process):
        """None without a file."""
        return self.lines_of(self.file_of(process))[0] if self.file_of(process).exists() else None

    def wait_for_file(self, process):
        until(f"process {process.pid} writes its file", self.file_of(process).exists)

    def request_files(self, processes):
        before = [self.header_of(process) for process in processes]
        for process in processes:
            process.signal(signal.SIGUSR2)
        for process, old in zip(processes, before):
            until("the file of SIGUSR2", lambda p=process, o=old: p.ended() or self.header_of(p) != o)
            self.assertFalse(process.ended(), process.stderr())
            self.assertEqual(self.header_of(process)["why"], "SIGUSR2")

    def merge(self, processes, *arguments):
        """`sluice blackbox` with the files of these processes: the first line, and everything."""
        text = self.run_sluice("blackbox", *[self.file_of(process) for process in processes], *arguments).stdout
        self.assertTrue(text.isascii())
        return text.splitlines()[0], text


class OnRequest(BlackboxTest):
    def test_a_signal_writes_the_file_and_the_job_continues(self):
        pool, addresses = self.start_pool()
        ranks = self.start_job(addresses)
        self.request_files(pool + ranks)
        rows = row_count(ranks[0])
        until("the job continues", lambda: row_count(ranks[0]) > rows or ranks[0].ended())
        self.assertFalse(any(process.ended() for process in pool + ranks), ranks[0].stderr())
        first, text = self.merge(pool + ranks)
        self.assertRegex(first, r"^first: nothing went wrong in these \d+ events$")
        for address in addresses:
            self.assertRegex(text, rf"\n +-\d+\.\d+ s  reducer {address} +started the session: 2 ranks\n")
        self.assertRegex(text, r"s  rank 1 +joined reducer 127")
        self.assertIn("received signal 12 (SIGUSR2)", text)
        header = self.lines_of(self.file_of(pool[0]))[0]
        self.assertEqual((header["program"], header["pid"], header["sessions"]), ("sluice reducer", pool[0].pid, [SESSION[:16]]))
        # Replaced, not appended to.
        self.request_files(pool[:1])
        self.assertEqual([line.get("sluice_blackbox") for line in self.lines_of(self.file_of(pool[0]))].count(1), 1)
        self.assertEqual(sorted(self.box.iterdir()), sorted(self.file_of(process) for process in pool + ranks))

    def test_without_a_path_a_signal_writes_to_the_folder_for_temporary_files(self):
        reducer, _ = self.start_reducer(env={"TMPDIR": str(self.folder)})
        reducer.signal(signal.SIGUSR2)
        path = self.folder / f"sluice-blackbox-{os.uname().nodename}-{reducer.pid}.jsonl"
        until("the reducer writes the file", lambda: path.exists() or reducer.ended())
        until("the log names it", lambda: f"black box written to {path} (SIGUSR2)" in reducer.stderr())
        self.expect_drained(reducer)

    def test_a_launcher_passes_the_signal_on(self):
        job = self.start("bench", "soak", "--workers", "2", "--duration", "0", "--max-size", "64K", "--interval", "100ms", "--blackbox", self.box)
        self.wait_for_rows(job)
        job.signal(signal.SIGUSR2)
        until("two workers and two reducers write files", lambda: job.ended() or len(list(self.box.glob("*.jsonl"))) == 4)
        rows = row_count(job)
        self.wait_for_rows(job, rows)
        job.signal(signal.SIGINT)
        self.expect_ends([job])
        text = self.run_sluice("blackbox", *self.box.glob("*.jsonl")).stdout
        self.assertEqual(sorted(set(re.findall(r"jsonl: (rank \d|reducer) ?", text))), ["rank 0", "rank 1", "reducer"])


class Clocks(BlackboxTest):
    def test_heartbeats_show_how_the_clocks_of_hosts_differ(self):
        """The reducer's file, changed as if its host had another clock, which is 5 s ahead."""
        [reducer], addresses = self.start_pool("--heartbeat", "20ms", count=1)
        ranks = self.start_job(addresses)

        def has_heartbeats():
            self.request_files([reducer, *ranks])
            events = [line for rank in ranks for line in self.lines_of(self.file_of(rank)) if line.get("event") == "heartbeat_received"]
            return len(events) >= 2 * len(ranks)
        until("ranks have received recorded heartbeats", has_heartbeats)
        lines = self.lines_of(self.file_of(reducer))
        lines[0] |= {"host": "elsewhere", "boot": "another", "wall": lines[0]["wall"] + 5_000_000_000}
        changed = self.write("changed.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        text = self.run_sluice("blackbox", *[self.file_of(rank) for rank in ranks], changed).stdout
        clock = re.search(r"^clock: host elsewhere is (\S+) ms ahead of host \S+, within (\S+) ms; corrected$", text, re.MULTILINE)
        self.assertIsNotNone(clock, text)
        self.assertAlmostEqual(float(clock[1]), 5000, delta=float(clock[2]) + 0.001)
        self.assertLess(float(clock[2]), 1000)


class OnFailure(BlackboxTest):
    def expect_failure(self, processes):
        for process in processes:
            self.assertEqual(process.wait(), 1, process.stderr())

    def test_a_killed_reducer(self):
        pool, addresses = self.start_pool()
        ranks = self.start_job(addresses, "--no-keep")
        pool[1].signal(signal.SIGKILL)
        self.expect_failure(ranks)
        self.wait_for_file(pool[0])
        first, _ = self.merge([pool[0], *ranks])
        self.assertRegex(first, rf"^first: rank \d lost its connection to reducer {addresses[1]} \(.*\) \d+\.\d\d\d s before the session ended; "
                                rf"there is no file of reducer {addresses[1]}$")

    def test_a_killed_reducer_that_the_job_continues_without(self):
        pool, addresses = self.start_pool()
        ranks = self.start_job(addresses)
        pool[0].signal(signal.SIGKILL)
        rows = row_count(ranks[0])
        until("the job continues", lambda: row_count(ranks[0]) > rows + 2 or ranks[0].ended())
        self.request_files([pool[1], *ranks])
        first, text = self.merge([pool[1], *ranks])
        self.assertRegex(first, rf"^first: rank \d lost its connection to reducer {addresses[0]} \(.*\) \d+\.\d\d\d s before the last file was written; "
                                rf"the session continued; there is no file of reducer {addresses[0]}$")
        self.assertIn("continues in view 1 with 1 reducer", text)

    def test_a_killed_rank(self):
        pool, addresses = self.start_pool(*SHORT)
        ranks = self.start_job(addresses)
        ranks[1].signal(signal.SIGKILL)
        self.expect_failure(ranks[:1])
        for reducer in pool:
            self.wait_for_file(reducer)
        first, text = self.merge([*pool, ranks[0]])
        self.assertRegex(first, r"^first: reducer 127\.0\.0\.1:\d+ lost its connection to rank 1 \(.*\) \d+\.\d\d\d s before the session ended; "
                                r"there is no file of rank 1$")
        self.assertIn("peer_lost", text)
        result = self.folder / "result.json"
        self.merge([*pool, ranks[0]], "--json", result)
        result = json.loads(result.read_text())
        self.assertEqual((result["first"], result["session"], result["failed"]), (first, SESSION[:16], True))
        [event] = [event for event in result["events"] if event.get("first")]
        self.assertEqual(event["event"], "connection_lost")

    def test_a_killed_rank_of_a_host_with_several(self):
        _, addresses = self.start_pool()  # which get nothing
        ranks = self.start_job(addresses, "--ranks-per-host", "2")
        ranks[1].signal(signal.SIGKILL)
        self.expect_failure(ranks[:1])
        self.wait_for_file(ranks[0])
        events = [line["event"] for line in self.lines_of(self.file_of(ranks[0]))[1:] if line.get("session") == SESSION[:16]]
        for event in ("session_started", "operation_began", "operation_ended", "session_ended"):
            self.assertIn(event, events)
        first, _ = self.merge([ranks[0]])
        self.assertRegex(first, rf"^first: .*rank 1 lost: its process {ranks[1].pid} has ended")

    def test_a_stopped_rank_at_the_operation_timeout(self):
        pool, addresses = self.start_pool()
        ranks = self.start_job(addresses, env={"SLUICE_OP_TIMEOUT": "4s"})
        ranks[1].freeze()
        self.expect_failure(ranks[:1])
        self.assertIn("timeout", ranks[0].stderr())
        for reducer in pool:
            self.wait_for_file(reducer)
        first, _ = self.merge([*pool, ranks[0]])
        self.assertRegex(first, r"^first: (reducer 127\.0\.0\.1:\d+|rank 0) waited \d+ ms for rank 1, \d\.\d\d\d s before the session ended")

    def test_ranks_that_disagree(self):
        pool, addresses = self.start_pool()
        ranks = [self.start(*ALLREDUCE, "--rank", rank, "--session", SESSION, "--connect", ",".join(addresses), "--window", f"{rank + 1}M", "--blackbox", self.box)
                 for rank in range(2)]
        for rank in ranks:
            self.assertNotEqual(rank.wait(), 0)
        self.wait_for_file(pool[0])
        first, _ = self.merge([pool[0], *ranks])
        self.assertRegex(first, rf"^first: reducer {addresses[0]} refused rank \d: mismatch: ranks disagree on the window bytes: ")

    def test_a_drained_reducer_at_its_timeout(self):
        pool, addresses = self.start_pool("--drain-timeout", "1s")
        ranks = self.start_job(addresses, "--no-keep")
        pool[1].signal(signal.SIGTERM)
        self.expect_failure(ranks)
        self.assertEqual(pool[1].wait(), 0)
        first, _ = self.merge([pool[1], *ranks])
        self.assertRegex(first, rf"^first: reducer {addresses[1]} received signal 15 \(SIGTERM\) [1-9]\d*\.\d\d\d s before the session ended$")

    def test_a_stranger_that_sends_garbage(self):
        reducer, address = self.start_reducer("--blackbox", self.box)
        for _ in range(50):
            with socket.create_connection(address.split(":"), timeout=DEADLINE_S) as stranger:
                stranger.sendall(b"G" * 64)
                stranger.recv(1)
        self.request_files([reducer])
        refused = [line for line in self.lines_of(self.file_of(reducer)) if line.get("event") == "connection_refused"]
        self.assertEqual({line["code"] for line in refused}, {"bad_magic"})
        self.assertLess(len(refused), 50)  # not all are recorded: they would displace other events
        self.assertIn("refused a connection: bad_magic: malformed frame from 127.0.0.1", self.merge([reducer])[1])
        self.expect_drained(reducer)

    def test_the_plugin_has_a_file_of_its_own(self):
        pool, addresses = self.start_pool()
        job = self.start("demo", "digits", "--epochs", "1000", "--workers", "2", "--through-plugin", "--connect", ",".join(addresses), "--blackbox", self.box,
                         env={"SLUICE_SURVIVE": "0"})
        until("the job trains", lambda: job.ended() or self.status(addresses[0])["data"]["bytes_in"] > 1 << 20)
        for reducer in pool:
            reducer.signal(signal.SIGKILL)
        self.assertNotEqual(job.wait(), 0)
        files = list(self.box.glob("*-nccl.jsonl"))
        self.assertEqual(len(files), 2, list(self.box.iterdir()))
        self.assertEqual({self.lines_of(path)[0]["program"] for path in files}, {"libnccl-net-sluice"})
        self.assertRegex(self.run_sluice("blackbox", *files).stdout, r"^first: rank \d lost its connection to reducer 127")


class Unwritable(BlackboxTest):
    def fail_a_job(self, place):
        """A job whose reducer is killed: the log of its ranks."""
        (reducer, address) = self.start_reducer()
        ranks = self.start_ranks(address, *ALLREDUCE, "--no-keep", "--blackbox", place)
        self.wait_for_rows(ranks[0])
        reducer.signal(signal.SIGKILL)
        self.assertEqual([rank.wait() for rank in ranks], [1, 1])
        return [rank.stderr() for rank in ranks]

    def test_a_missing_folder_is_one_warning(self):
        for stderr in self.fail_a_job(self.folder / "none/box"):
            self.assertEqual(stderr.count("black box not written"), 1, stderr)
            self.assertEqual(stderr.count("No such file or directory"), 1, stderr)
            self.assertIn("allreduce failed: lost", stderr)

    def test_a_device_is_no_folder(self):
        for stderr in self.fail_a_job("/dev/null/%p"):
            self.assertEqual(stderr.count("black box not written"), 1, stderr)
            self.assertEqual(stderr.count("Not a directory"), 1, stderr)

    def test_a_limit_of_the_file_size_keeps_the_old_file(self):
        reducer = subprocess.Popen(["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sluice_process.PROGRAM, "reducer", "--listen", "127.0.0.1:0", "--blackbox", self.box],
                                   stderr=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(reducer.wait)
        self.addCleanup(reducer.kill)
        while "listens on" not in reducer.stderr.readline():
            self.assertIsNone(reducer.poll())
        reducer.send_signal(signal.SIGUSR2)
        self.assertRegex(reducer.stderr.readline(), r"black box not written \(SIGUSR2\): cannot write .*: File too large")
        reducer.send_signal(signal.SIGTERM)
        reducer.communicate(timeout=DEADLINE_S)
        self.assertEqual((reducer.returncode, list(self.box.iterdir())), (0, []))

    def test_a_full_disk_is_one_warning(self):
        if reason := missing("bind-mounts"):
            self.skipTest(reason)
        script = f'mount -t tmpfs -o size=4k none {self.box} || exit 99; dd if=/dev/zero of={self.box}/full bs=4k count=1 2>/dev/null; "$@"; ls {self.box}'
        job = ("demo", "digits", "--epochs", "1", "--workers", "1", "--connect", "127.0.0.1:1", "--connect-timeout", "100ms", "--blackbox", str(self.box),
               "--rank", "0", "--session", SESSION)
        done = subprocess.run([*private_mounts(), "sh", "-c", script, "sh", sluice_process.PROGRAM, *job],
                              capture_output=True, text=True, timeout=DEADLINE_S, env=environment(), check=False)
        self.assertEqual(done.stderr.count("black box not written"), 1, done.stderr)
        self.assertIn("No space left on device", done.stderr)
        self.assertIn("cannot join the session", done.stderr)
        self.assertEqual(done.stdout, "full\n")


class Files(BlackboxTest):
    def test_a_file_that_is_no_black_box_is_exit_78_and_one_line(self):
        reducer, _ = self.start_reducer("--blackbox", self.box)
        self.request_files([reducer])
        lines = self.file_of(reducer).read_text().splitlines(keepends=True)
        for name, text, error in (("empty", "", "the file is empty"), ("text", "hello\n", "1: not a black box of Sluice"),
                                  ("trace", '[{"name":"sluice_trace"}]\n', "1: not a black box of Sluice"),
                                  ("damaged", lines[0] + "x" + "".join(lines[1:]), "2: not an event of a black box"),
                                  ("newer", lines[0].replace('"sluice_blackbox":1', '"sluice_blackbox":9'), "format 9; this program reads format 1")):
            with self.subTest(name):
                path = self.write(name, text)
                done = self.expect_error(78, f"{path}:", "blackbox", path)
                self.assertIn(error, done.stderr)
                self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
        self.expect_error(78, "No such file", "blackbox", self.folder / "missing")
        self.expect_error(78, "not a black box", "blackbox", "/bin/sh")
        self.expect_error(64, "files is required", "blackbox")
        self.expect_error(64, "the files have no such session", "blackbox", "--session", "1234", self.file_of(reducer))
        truncated = self.write("truncated", "".join(lines)[:-40])
        self.assertIn("note: the file is truncated", self.run_sluice("blackbox", truncated).stdout)


if __name__ == "__main__":
    main()
