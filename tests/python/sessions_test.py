"""Groups, waits, threads, fork, loss and close of sessions."""

import gc
import os
import re
import signal
import threading
import time
import unittest
import warnings
from contextlib import suppress
from pathlib import Path
from unittest import mock

import numpy
import sluice
from package_test_bed import DEADLINE_S, ReducerTest, main, open_session
from sluice import unclosed
from sluice_process import until


# A rank that exits without close.
EXIT_WITHOUT_CLOSE = """
import ctypes, sys
import numpy, sluice
session = sluice.Session(sys.argv[1], session_id=bytes.fromhex(sys.argv[2]), rank=1, ranks=2)
session.allreduce(numpy.ones(1000, dtype="float32"))
"""
KEPT = "ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))"  # as a leaked C++ object would
COLLECTED = "del session"


INTERRUPTED_WAIT = """
import signal, sys
import numpy, sluice
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may have ignored the signal
session = sluice.Session(sys.argv[1], session_id=bytes.fromhex(sys.argv[2]), rank=1, ranks=2, linger_ms=200)
try:
    request = session.allreduce_async(numpy.ones(1000, dtype="float32"))
    print("waiting", flush=True)
    request.wait()
except KeyboardInterrupt:
    print("interrupted")
"""


def close_ignoring_errors(session):
    with suppress(sluice.Error):
        session.close()


def ones(count=1000):
    return numpy.ones(count, dtype="float32")


def open_pair(reducers, **options):
    identity, sessions = os.urandom(16), [None, None]

    def join(rank):
        sessions[rank] = open_session(reducers, session_id=identity, rank=rank, ranks=2, **options)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    return sessions


class Sessions(ReducerTest):
    def pair(self, **options):
        """Creates a session of two ranks in this process; returns both."""
        sessions = open_pair(self.address, **options)
        for session in sessions:
            self.addCleanup(close_ignoring_errors, session)
        return sessions

    def test_the_longest_stall_includes_the_time_in_which_the_reducer_was_frozen(self):
        begin = time.monotonic()
        first, second = self.pair()

        def longest_stall():
            return first.stats().longest_stall_us / 1e6

        self.reducer.freeze()
        requests = [session.allreduce_async(ones(100_000)) for session in (first, second) for _ in range(3)]
        until("the operations wait", lambda: longest_stall() > 0)
        stalled = time.monotonic()
        time.sleep(0.3)
        now = time.monotonic()
        self.assertGreaterEqual(longest_stall(), now - stalled)  # while it lasts
        now = time.monotonic()
        self.reducer.signal(signal.SIGCONT)
        for request in requests:
            request.wait(DEADLINE_S)
        self.assertGreaterEqual(longest_stall(), now - stalled)
        self.assertLessEqual(longest_stall(), time.monotonic() - begin)

    def test_a_group_is_one_request(self):
        first, second = self.pair()
        arrays = [[numpy.full(50, rank + i, dtype="float32") for i in range(4)] for rank in range(2)]
        requests = []
        for session, mine in zip((first, second), arrays):
            with session.group() as request:
                for array in mine:
                    self.assertIs(session.allreduce_async(array), request)
                self.assertFalse(request.done())
                for wait, text in ((request.wait, "has not ended"), (lambda s=session: s.allreduce(ones()), "use allreduce_async")):
                    with self.assertRaisesRegex(RuntimeError, text):
                        wait()
            requests.append(request)
        for request in requests:
            self.assertIsNone(request.wait(DEADLINE_S))
        for mine in arrays:
            self.assertEqual([array[0] for array in mine], [1, 3, 5, 7])

    def test_a_group_that_raises_runs_nothing(self):
        session = self.session()
        array = ones()
        with self.assertRaisesRegex(KeyError, "mine"):
            with session.group() as request:
                session.allreduce_async(array)
                raise KeyError("mine")
        with self.assertRaises(sluice.InvalidArgument):
            request.wait()
        self.assertEqual((session.error(), session.stream_stats().operations), (None, 0))
        session.allreduce(array)
        self.assertEqual(session.stream_stats().operations, 1)
        with self.assertRaises(sluice.InvalidArgument):
            with session.group(), session.group():
                pass

    def test_a_wait_that_times_out_names_the_late_rank(self):
        with mock.patch.dict(os.environ, SLUICE_HOSTS="auto"):
            first, second = self.pair()
        request = first.allreduce_async(ones())
        with self.assertRaisesRegex(sluice.Timeout, "did not end within 0.05 s; waiting for rank 1$"):
            request.wait(0.05)
        second.allreduce(ones())
        request.wait(DEADLINE_S)

    def test_a_wait_that_times_out_leaves_the_request_open(self):
        first, second = self.pair()
        array = ones()
        request = first.allreduce_async(array)
        with self.assertRaisesRegex(sluice.Timeout, "did not end within 0.05 s"):
            request.wait(0.05)
        self.assertFalse(request.done())
        second.allreduce_async(ones()).wait(DEADLINE_S)
        self.assertIs(request.wait(DEADLINE_S), array)
        self.assertTrue(request.done())
        self.assertEqual(request.wait()[0], 2)

    def test_op_timeout_ends_the_session(self):
        first, _ = self.pair(op_timeout_ms=200)
        request = first.allreduce_async(ones())
        with self.assertRaises(sluice.Timeout) as caught:
            request.wait(DEADLINE_S)
        self.assertTrue(request.done())
        self.assertEqual(str(caught.exception), str(first.error()))

    def test_operations_in_host_memory_wake_no_thread_of_streams(self):
        session, x = self.session(), numpy.ones(100, dtype="float32")

        def sleeps():
            """How often the threads that wait for streams of a device have gone to sleep."""
            found = 0
            for thread in Path("/proc/self/task").iterdir():
                if (thread / "comm").read_text().strip() in ("sluice-out", "sluice-stream"):
                    found += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (thread / "status").read_text(), re.M)[1])
            return found

        session.allreduce(x)
        before = sleeps()
        self.assertGreater(before, 0)
        for _ in range(200):
            session.allreduce(x)
        self.assertLess(sleeps() - before, 20)

    def test_several_threads_wait_for_one_request(self):
        first, second = self.pair()
        request, seen = first.allreduce_async(ones()), []
        threads = [threading.Thread(target=lambda: seen.append(request.wait(DEADLINE_S)[0])) for _ in range(4)]
        for thread in threads:
            thread.start()
        second.allreduce(ones())
        for thread in threads:
            thread.join(DEADLINE_S)
        self.assertEqual(seen, [2] * 4)

    def test_close_ends_other_threads_waits(self):
        first, _ = self.pair(linger_ms=300)
        request, seen, begun = first.allreduce_async(ones()), [], threading.Event()

        def wait():
            begun.set()
            try:
                request.wait(DEADLINE_S)
            except sluice.Closed as error:
                seen.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        begun.wait(DEADLINE_S)
        begin = time.monotonic()
        with self.assertRaisesRegex(sluice.Timeout, "^linger_ms ended before all open operations"):  # the other rank never issued it
            first.close()
        thread.join(DEADLINE_S)
        self.assertEqual(len(seen), 1)
        self.assertLess(time.monotonic() - begin, DEADLINE_S / 4)

    def test_close_waits_for_calls_in_progress(self):
        session = open_session(self.address)
        closing = threading.Thread(target=session.close)
        with session._use() as (library, handle):
            closing.start()
            until("close has started", lambda: session._is_closing)
            closing.join(0.3)
            self.assertTrue(closing.is_alive())
            self.assertEqual(library.sluice_session_error(handle, None, 0), 0)
        closing.join(DEADLINE_S)
        self.assertFalse(closing.is_alive())

    def test_ctrl_c_ends_a_wait(self):
        identity = os.urandom(16)
        waiting = self.python("-c", INTERRUPTED_WAIT, self.address, identity.hex())
        other = open_session(self.address, session_id=identity, rank=0, ranks=2)
        self.addCleanup(close_ignoring_errors, other)
        self.assertEqual(waiting.stdout.readline(), "waiting\n")
        waiting.send_signal(signal.SIGINT)
        self.assertEqual(self.outputs([waiting]), ["interrupted\n"])

    def test_a_closed_session_raises_closed(self):
        with open_session(self.address) as session:
            request = session.allreduce_async(ones())
            request.wait()
        session.close()
        for call in (lambda: session.allreduce(ones()), session.stats, session.error, session.group().__enter__):
            with self.assertRaises(sluice.Closed):
                call()
        self.assertEqual(request.wait()[0], 1)

    def test_an_unclosed_session_warns(self):
        session = open_session(self.address)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del session
            gc.collect()
        self.assertEqual([str(w.message) for w in caught if w.category is ResourceWarning], ["<sluice.Session rank 0 of 1> was not closed"])

    def test_a_collection_waits_for_no_rank(self):
        # Without reducers, close() waits for the other rank, which has not left when the collection returns.
        sessions = open_pair("none", rendezvous=f"127.0.0.1:{self.reserve_port()}", linger_ms=60_000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sessions[0] = None
            gc.collect()
        self.assertEqual(len(unclosed._closing), 1)
        sessions[1].close()
        until("the collected session is closed", lambda: not unclosed._closing)

    def test_the_interpreter_closes_open_sessions_at_exit(self):
        for last in (KEPT, COLLECTED):
            with self.subTest(last):
                identity = os.urandom(16)
                other = self.python("-W", "ignore", "-c", EXIT_WITHOUT_CLOSE + last, self.address, identity.hex())
                session = open_session(self.address, session_id=identity, rank=0, ranks=2)
                self.addCleanup(close_ignoring_errors, session)
                session.allreduce(ones())
                with self.assertRaises(sluice.Closed):  # not Lost, as without a close
                    session.allreduce_async(ones()).wait(DEADLINE_S)
                self.outputs([other])

    def test_the_rank_that_ended_the_session_is_a_number(self):
        first, second = self.pair()
        self.assertIsNone(first.ended_by())
        second.abort("rank 0 is tired")
        with self.assertRaisesRegex(sluice.Lost, "rank 0 is tired"):
            first.allreduce(ones())
        self.assertEqual((first.ended_by(), second.ended_by()), (1, 1))
        close_ignoring_errors(first)
        with self.assertRaises(sluice.Closed):
            first.ended_by()

    def test_a_child_of_fork_cannot_use_the_session(self):
        session = self.session()
        child = os.fork()
        if child == 0:
            try:
                session.allreduce(ones())
            except sluice.Closed:
                session.close()
                os._exit(7)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.assertEqual(session.allreduce(ones())[0], 1)

    def test_a_killed_reducer_is_lost_on_every_rank(self):
        ranks = self.start_ranks("until_lost_rank.py", 2, self.address)
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "begun\n")
        self.reducer.signal(signal.SIGKILL)
        for out in self.outputs(ranks):
            self.assertRegex(out, rf"^Lost 7 Lost True None .*{self.address}")

    def test_the_list_of_reducers_can_be_replaced(self):
        second = self.start_reducer()[1]
        with open_session(self.address) as session:
            session.set_reducers(second)
            # The change happens between two chunks, so operations must continue.
            until("the session uses the new list", lambda: session.allreduce(ones())[0] == 1 and self.status(second)["data"]["chunks"] > 0)
            self.assertGreater(session.stats().view_changes, 0)
            with self.assertRaisesRegex(sluice.InvalidArgument, "99999"):
                session.set_reducers("nobody:99999")
            self.assertIsNone(session.error())


if __name__ == "__main__":
    main()
