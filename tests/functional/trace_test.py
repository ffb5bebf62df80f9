"""SLUICE_TRACE and `sluice trace summary`: the file of a real job, files that cannot be written, and files that are no trace."""

import json
import os
import re
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import sluice_process
from capabilities import missing
from probes import private_mounts
from sluice_process import DEADLINE_S, SluiceTest, environment, main, until

try:
    from jsonschema import Draft202012Validator
except ImportError:
    Draft202012Validator = None

SCHEMA = Path(__file__).with_name("trace_schema.json")
DIGITS = ("demo", "digits", "--epochs", "2", "--workers", "3")
PARTS = ("in_window_us", "on_wire_us", "waiting_us", "adding_us")


class TraceTest(SluiceTest):
    def traces(self):
        return sorted(self.folder.glob("trace-*-rank*.json"))

    def trace_digits(self, *arguments):
        """Runs the digits job with a trace: the result of the job, and the events of each rank."""
        result = self.run_json(*DIGITS, *arguments, env={"SLUICE_TRACE": str(self.folder / "trace.json")})
        return result, [json.loads(path.read_text()) for path in self.traces()]

    def run_in_shell(self, script, *arguments, env):
        """Runs a shell script that ends with exec "$@" for the program with these arguments: its stderr. It must succeed."""
        done = subprocess.run(["sh", "-c", script, "sh", sluice_process.PROGRAM, *arguments], capture_output=True, text=True, timeout=DEADLINE_S,
                              env=environment(env), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def check_schema(self, events):
        if Draft202012Validator is None:
            raise unittest.SkipTest("needs python3-jsonschema: not installed")
        Draft202012Validator.check_schema(json.loads(SCHEMA.read_text()))
        error = next(Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(events), None)
        self.assertIsNone(error, error and f"{error.json_path}: {error.message[:2000]}")


class Trace(TraceTest):
    def test_the_digits_job_has_a_trace_of_each_rank_that_matches_the_schema(self):
        result, traces = self.trace_digits("--reducers", "2")
        self.assertEqual([trace[0]["args"]["rank"] for trace in traces], [0, 1, 2])
        for events in traces:
            self.check_schema(events)
            self.check_times(events)
            operations = [event for event in events if event["name"] == "allreduce"]
            self.assertGreaterEqual(len(operations), result["allreduces"])
            self.assertEqual({event["args"]["status"] for event in operations}, {"ok"})
            names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
            self.assertEqual(len([name for name in names if name.startswith("reducer 127.0.0.1:")]), 2, names)
            self.assertEqual({event["tid"] for event in events if event["name"] == "chunk"}, {1000, 1001})
            self.assertEqual(events[-1]["args"]["reason"], "session closed")
            totals = {event["tid"]: event["args"] for event in events if event["name"] == "total"}
            self.assertEqual(sum(each["bytes"] for each in totals.values()), sum(event["args"]["bytes"] for event in operations))
            self.assertEqual(sum(each["chunks"] for each in totals.values()), sum(event["args"]["chunks"] for event in operations))

    def check_times(self, events):
        """The parts of an operation add up to it, and the events of a track do not overlap."""
        ends = {}
        for event in sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"]):
            self.assertGreaterEqual(event["ts"] + 0.002, ends.get(event["tid"], 0), event)
            ends[event["tid"]] = event["ts"] + event["dur"]
            parts = [event["args"][part] for part in PARTS]
            whole = event["dur"] if event["name"] == "allreduce" else event["dur"] + event["args"]["in_window_us"]
            self.assertAlmostEqual(sum(parts), whole, delta=0.01, msg=str(event))

    def test_the_plugin_writes_a_trace(self):
        _, traces = self.trace_digits("--reducers", "2", "--through-plugin")
        # The job compares the weights in a session of its own.
        sessions = [events[0]["args"]["session"] for events in traces]
        self.assertEqual(sorted(map(sessions.count, set(sessions))), [3, 3], sessions)
        for events in traces:
            self.check_schema(events)

    def test_an_option_names_the_file_with_a_pattern_of_its_own(self):
        self.run_sluice(*DIGITS, "--trace-file", self.folder / "%h.%r.%p.json")
        names = sorted(path.name for path in self.folder.glob("*.json"))
        self.assertEqual([re.sub(r"\d+\.json$", "", name) for name in names], [f"{os.uname().nodename}.{rank}." for rank in range(3)])

    def test_ranks_never_write_to_the_same_file(self):
        done = self.run_sluice(*DIGITS, env={"SLUICE_TRACE": str(self.folder / "%h.json")})
        self.assertEqual(done.stderr.count("another session writes to this file; add %r, %s or %p to the name"), 2, done.stderr)
        self.assertEqual(json.loads((self.folder / f"{os.uname().nodename}.json").read_text())[-1]["name"], "end of trace")

    def test_the_loss_of_a_reducer_is_a_stall_and_a_view_change(self):
        (_, first), (lost, second) = self.start_reducer(), self.start_reducer()
        ranks = self.start_ranks(f"{first},{second}", "bench", "soak", "--max-size", "64K", "--interval", "100ms", "--workers", "2", "--duration", "0",
                                 "--trace-file", self.folder / "trace.json")
        self.wait_for_rows(ranks[0])
        lost.signal(signal.SIGKILL)
        rows = sluice_process.row_count(ranks[0])
        self.wait_for_view_change(ranks)
        self.wait_for_rows(ranks[0], rows)
        ranks[0].signal(signal.SIGINT)
        self.expect_ends(ranks)
        for path in self.traces():
            events = json.loads(path.read_text())
            self.check_schema(events)
            self.assertEqual([event["args"]["reducers"] for event in events if event["name"] == "view change"], [1])
            [stall] = [event for event in events if event["name"] == "stall"]
            self.assertIn(f"reducer {second}", stall["args"]["reason"])
            self.assertGreater(stall["dur"], 0)
        self.assertIn("Stalls: 2, ", self.run_sluice("trace", "summary", *self.traces()).stdout)

    def wait_for_view_change(self, ranks):
        until("the traces have the view change", lambda: any(rank.ended() for rank in ranks) or
              sum('"name":"view change"' in path.read_text() for path in self.traces()) == len(ranks))

    def test_a_killed_worker_leaves_a_trace_that_can_be_read(self):
        _, address = self.start_reducer()
        worker = self.start("bench", "allreduce", "-n", "100000000", "--workers", "1", "--rank", "0", "--session", "000102030405060708090a0b0c0d0e0f",
                            "--connect", address, env={"SLUICE_TRACE": str(self.folder / "trace.json")})
        until("the trace grows", lambda: worker.ended() or any(path.stat().st_size > 100_000 for path in self.traces()))
        self.assertFalse(worker.ended(), worker.stderr())
        worker.signal(signal.SIGKILL)
        worker.wait()
        lines = self.traces()[0].read_text().splitlines()
        self.assertGreater(len(lines), 100)
        self.check_schema(json.loads("".join(lines[:-1]).removesuffix(",") + "]"))
        self.assertIn("no end: the process was killed", self.run_sluice("trace", "summary", self.traces()[0]).stdout)


class Picture(TraceTest):
    def test_the_picture_of_the_page_is_drawn_from_the_trace_beside_it(self):
        results = SCHEMA.parents[2] / "docs/results"
        self.check_schema(json.loads((results / "trace.json").read_text()))
        drawn = self.folder / "trace.svg"
        subprocess.run([sys.executable, "-B", SCHEMA.parents[2] / "bench/report/trace_timeline.py", results / "trace.json", drawn], timeout=DEADLINE_S, check=True)
        self.assertEqual(drawn.read_text(), (results / "trace.svg").read_text(), "run bench/report/trace_timeline.py")


class Unwritable(TraceTest):
    def test_a_missing_folder_is_one_warning(self):
        done = self.run_sluice(*DIGITS, env={"SLUICE_TRACE": str(self.folder / "none/trace.json")})
        self.assertEqual(done.stderr.count("no trace: cannot write to SLUICE_TRACE"), 3, done.stderr)
        self.assertEqual(done.stderr.count("No such file or directory"), 3, done.stderr)

    def test_a_link_or_a_folder_is_no_file(self):
        precious = self.write("precious", "kept")
        name = self.folder / os.uname().nodename
        for make, error in ((lambda: name.symlink_to("/dev/full"), "not a regular file"), (lambda: name.symlink_to(precious), "not a regular file"),
                            (lambda: name.symlink_to(self.folder / "none"), "not a regular file"), (name.mkdir, "Is a directory")):
            make()
            for variable in ("SLUICE_TRACE", "SLUICE_BITS"):
                done = self.run_sluice(*DIGITS, env={variable: str(self.folder / "%h")})
                self.assertEqual(done.stderr.count(error), 3, done.stderr)
            name.rmdir() if name.is_dir() and not name.is_symlink() else name.unlink()
        self.assertEqual(precious.read_text(), "kept")
        self.assertFalse((self.folder / "none").exists())

    def test_dev_null_means_no_file(self):
        before = set(os.listdir("/dev"))
        done = self.run_sluice(*DIGITS, env={name: "/dev/null" for name in ("SLUICE_TRACE", "SLUICE_BITS", "SLUICE_BLACKBOX")})
        self.assertNotIn("level=warn", done.stderr)
        self.assertEqual([name for name in set(os.listdir("/dev")) - before if "null" in name], [])

    def test_a_limit_of_the_file_size_in_the_midst_is_one_warning(self):
        stderr = self.run_in_shell('ulimit -f 16; exec "$@"', *DIGITS, env={"SLUICE_TRACE": str(self.folder / "trace.json")})
        self.expect_early_end(stderr, "File too large", 3)

    # One rank, because the space that one gives back could be enough for another.
    def test_a_full_disk_in_the_midst_is_one_warning(self):
        if reason := missing("bind-mounts"):
            self.skipTest(reason)
        disk = self.folder / "disk"
        disk.mkdir()
        script = f'mount -t tmpfs -o size=16k none {disk} || exit 99; "$@" && cp {disk}/* {self.folder}'
        done = subprocess.run([*private_mounts(), "sh", "-c", script, "sh", sluice_process.PROGRAM, *DIGITS[:-1], "1"],
                              capture_output=True, text=True, timeout=DEADLINE_S, env=environment({"SLUICE_TRACE": str(disk / "trace.json")}), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_early_end(done.stderr, "No space left on device", 1)

    def expect_early_end(self, stderr, reason, ranks):
        """The job has ended well with one warning of each rank, and the files are still JSON and give the reason."""
        self.assertEqual(stderr.count("the trace ends early: cannot write to SLUICE_TRACE"), ranks, stderr)
        self.assertEqual(stderr.count(reason), ranks, stderr)
        self.assertEqual(len(self.traces()), ranks)
        for path in self.traces():
            events = json.loads(path.read_text())
            self.check_schema(events)
            self.assertEqual((events[-1]["name"], events[-1]["args"]["reason"]), ("end of trace", reason))
        self.assertIn(f"ended before the session: {reason}", self.run_sluice("trace", "summary", *self.traces()).stdout)


class Summary(TraceTest):
    def test_it_says_where_the_time_of_a_job_went(self):
        result, traces = self.trace_digits("--reducers", "2")
        text = self.run_sluice("trace", "summary", "--rows", "4", *self.traces()).stdout
        operations = sum(event["name"] == "allreduce" for events in traces for event in events)
        self.assertGreaterEqual(operations, 3 * result["allreduces"])
        self.assertIn(f"\n{operations} operations, ", text)
        shares = [float(share) for share in re.findall(r"^  (?:in the window|on the wire|waiting for a rank|adding \(estimate\)) +\S+ \S+ +(\S+) %", text, re.MULTILINE)]
        self.assertEqual(len(shares), 4, text)
        self.assertAlmostEqual(sum(shares), 100, delta=0.3)
        self.assertEqual(len(re.findall(r"^  reducer 127\.0\.0\.1:\d+ +", text, re.MULTILINE)), 2, text)
        slowest = max((event for events in traces for event in events if event["name"] == "allreduce"), key=lambda event: event["dur"])
        rows = text[text.index("\nSlowest operations"):].strip().splitlines()[1:]
        self.assertEqual(len(rows), 4, text)
        self.assertIn(f" rank {slowest['pid']} ", rows[0])
        self.assertTrue(text.isascii())

    def test_a_file_that_is_no_trace_is_exit_78_and_one_line(self):
        header = '[{"name":"sluice_trace","ph":"M","pid":0,"args":{"version":1}}'
        for name, text, error in (("empty", "", "the file is empty"), ("text", "hello\n", "not a trace of SLUICE_TRACE"),
                                  ("object", '{"traceEvents":[]}', "not a trace of SLUICE_TRACE"),
                                  ("other", '[{"name":"x","ph":"X"}\n]\n', "not a trace of SLUICE_TRACE"),
                                  ("truncated", header[:40], "truncated in the first event"),
                                  ("damaged", header + ",\n{\"name\":\n]\n", "2: not an event"),
                                  ("newer", header.replace('"version":1', '"version":9') + "\n]\n", "format 9; this program reads format 1")):
            with self.subTest(name):
                done = self.expect_error(78, error, "trace", "summary", self.write(name, text))
                self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
        self.expect_error(78, "No such file", "trace", "summary", self.folder / "missing")
        self.expect_error(78, "not a trace", "trace", "summary", sluice_process.PROGRAM)
        self.expect_error(64, "files is required", "trace", "summary")
        # An event that a killed process has not finished is no error, and values may be of any type.
        strange = header + ',\n{"name":"allreduce","ts":"x","dur":-1,"args":{"bytes":1e300,"dtype":7,"last_rank":[]}},\n{"name":"all'
        self.assertIn("1 operations", self.run_sluice("trace", "summary", self.write("strange", strange)).stdout)
        # A deep value takes neither the stack nor the memory, and sums stay finite.
        deep = f'{header},\n{{"name":"allreduce","dur":1,"args":{"[" * 300_000}{"]" * 300_000}}}\n]\n'
        self.expect_error(78, "2: not an event", "trace", "summary", self.write("deep", deep))
        large = '{"name":"allreduce","dur":1e308,"args":{"in_window_us":1e308}}'
        self.assertIn("2 operations", self.run_sluice("trace", "summary", self.write("large", f"{header},\n{large},\n{large}\n]\n")).stdout)


if __name__ == "__main__":
    main()
