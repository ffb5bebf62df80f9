"""`sluice check pool`, `sluice wait` and `sluice drain`: a rolling restart under a job, an idle pool, sessions that are not everywhere, and who may drain."""

import contextlib
import fcntl
import io
import os
import re
import signal
import socket
import struct
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

from sluice_process import SluiceTest, main, row_count, until

sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance" / "vectors"))
with contextlib.redirect_stdout(io.StringIO()):  # it prints its exchange
    import write_v1_exchange as v1

ALLREDUCE = ("bench", "allreduce", "-b", "64K", "-e", "256K", "-f", "4", "-n", "5", "-N", "0", "--workers", "2")
ONE_REDUCER_JOB = ("bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "5", "-N", "0", "--workers", "2")


class PoolTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.key = self.make_key()
        self.secure = ("--key-file", self.key)

    def start_pool(self, *arguments, count=2):
        return [self.start_reducer(*self.secure, *arguments) for _ in range(count)]

    def start_job(self, addresses, command=ALLREDUCE):
        ranks = self.start_ranks(",".join(addresses), *command, *self.secure)
        self.wait_for_rows(ranks[0])
        return ranks

    def expect_progress(self, ranks):
        rows = row_count(ranks[0])
        until("the job goes on", lambda: row_count(ranks[0]) > rows + 1 or ranks[0].ended())
        self.assertFalse(any(rank.ended() for rank in ranks), "".join(rank.stderr() for rank in ranks))


class RollingRestart(PoolTest):
    def test_a_job_outlives_the_restart_of_every_reducer(self):
        pool = self.start_pool()
        addresses = [address for _, address in pool]
        ready = ("wait", "--ready", ",".join(addresses), *self.secure, "--timeout", "60s")
        ranks = self.start_job(addresses)
        self.run_sluice(*ready)
        for number, (reducer, address) in enumerate(pool):
            self.assertIn(f"reducer {address}: ready, 1 sessions", self.run_sluice("check", "pool", "--reducers", ",".join(addresses), *self.secure).stdout)
            done = self.run_sluice("drain", address, *self.secure)
            self.assertRegex(done.stdout, rf"^(reducer {address}: draining, \d sessions left\n)+reducer {address}: ended after \d+\.\d s\n$")
            self.expect_ends([reducer])
            self.assertRegex(reducer.stderr(), r"drain requested by 127\.0\.0\.1:\d+")
            self.assertIn(", 0 failed, 1 moved", reducer.stderr())
            self.expect_error(69, f"reducer {address}: ", "check", "pool", "--reducers", ",".join(addresses), *self.secure)
            host, port = address.split(":")
            pool[number] = self.start_server(["reducer"], *self.secure, host=host, port=port)
            # The new reducer accepts sessions before the running one is back. That must not count as ready.
            self.run_sluice(*ready)
            lists = [self.status(each, *self.secure)["session_list"] for each in addresses]
            self.assertEqual([[session["joined"] for session in sessions] for sessions in lists], [[2], [2]])
            self.expect_progress(ranks)

    def test_an_idle_pool_is_ready(self):
        addresses = [address for _, address in self.start_pool()]
        done = self.run_sluice("wait", "--ready", ",".join(addresses), *self.secure)
        self.assertEqual(done.stdout, self.run_sluice("check", "pool", "--reducers", ",".join(addresses), *self.secure).stdout)
        self.assertRegex(done.stdout, "^" + "".join(rf"reducer {address}: ready, 0 sessions, version \S+\n" for address in addresses) + "$")

    def test_a_session_that_is_not_everywhere_is_named(self):
        (_, first), (_, second) = self.start_pool()
        self.start_job([first])
        pool = ("--reducers", f"{first},{second}", *self.secure)
        done = self.expect_error(69, "the pool is not ready: 1 problems, the first: session 0001020304050607 is not on reducer " + second,
                                 "check", "pool", *pool)
        self.assertEqual(len(done.stdout.splitlines()), 3)
        self.run_sluice("check", "pool", "--reducers", first, *self.secure)

    def test_sessions_without_fault_tolerance_are_not_judged(self):
        (_, first), (_, second) = self.start_pool()
        self.start_job([first], (*ONE_REDUCER_JOB, "--no-keep"))
        self.run_sluice("check", "pool", "--reducers", f"{first},{second}", *self.secure)

    def test_wait_ends_at_its_timeout_with_the_reason(self):
        missing = f"127.0.0.1:{self.reserve_port()}"
        self.expect_error(69, re.compile(rf"^sluice: not ready within 1s: reducer {missing}: .*refused"), "wait", "--ready", missing, "--timeout", "1s")


class Drain(PoolTest):
    def test_a_job_on_a_drained_reducer_computes_the_same_bits(self):
        reader, writer = os.pipe()
        for end in (reader, writer):
            self.addCleanup(os.close, end)

        def records(name, disturb, **how):
            pool = self.start_pool()
            folder = self.folder / name
            folder.mkdir()
            job = self.start("demo", "digits", "--epochs", "100", "--workers", "2", "--connect", ",".join(address for _, address in pool), *self.secure,
                             env={"SLUICE_BITS": str(folder / "job.bits")}, **how)
            disturb(job, *pool[0])
            self.expect_ends([job])
            return folder

        def drain(job, reducer, address):
            until("the job runs", lambda: self.status(address, *self.secure)["data"]["chunks"] > 20 or job.ended())
            self.run_sluice("drain", address, *self.secure)
            self.assertFalse(job.ended(), job.stderr())
            self.expect_ends([reducer])
            self.assertIn(", 0 failed, 1 moved", reducer.stderr())
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 18)

        # The job prints a line for each epoch, 11 kB in all, and waits while the pipe is full. So it cannot end before the drain on any machine.
        # A pipe has at least one page; of a larger one, only 4 kB stay free.
        os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096) - 4096))
        drained, plain = records("drained", drain, stdout=writer), records("plain", lambda *_: None)
        self.assertIn("run B equals run A", self.run_sluice("bits", drained, plain).stdout)

    def test_a_draining_reducer_is_seen_and_waited_for(self):
        reducer, address, http = self.start_http_reducer(*self.secure, "--drain-timeout", "10m")
        job = self.start("bench", "soak", "--duration", "10m", "--workers", "2", "--connect", address, *self.secure)
        until("the job runs", lambda: self.status(address, *self.secure)["data"]["chunks"] > 0 or job.ended())
        for _ in range(2):  # to repeat it is no second signal
            done = self.expect_error(69, f"not drained within 1s: reducer {address}: draining, 1 sessions left", "drain", address, *self.secure, "--timeout", "1s")
            self.assertEqual(done.stdout, f"reducer {address}: draining, 1 sessions left\n")
        self.assertTrue(self.status(address, *self.secure)["draining"])
        self.expect_error(69, "draining, 1 sessions", "check", "pool", "--reducers", address, *self.secure)
        self.expect_error(69, "draining, 1 sessions", "wait", "--ready", address, *self.secure, "--timeout", "1s")
        self.assertRegex(self.run_sluice("top", "--once", "--reducers", address, *self.secure).stdout, "(?i)drain")
        self.assertIn(b"\nsluice_draining 1\n", urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics").read())
        with self.assertRaises(urllib.error.HTTPError) as not_ready:
            urllib.request.urlopen(f"http://127.0.0.1:{http}/readyz")
        self.assertEqual(not_ready.exception.code, 503)
        not_ready.exception.close()
        waiting = self.start("drain", address, *self.secure)
        until("the command waits", lambda: "1 sessions left" in waiting.stdout())
        reducer.signal(signal.SIGTERM)  # the first signal, so nothing stops
        job.signal(signal.SIGINT)
        self.expect_ends([job, waiting, reducer])
        self.assertIn("ended after", waiting.stdout())

    def test_only_the_pool_key_drains(self):
        reducer, address = self.start_reducer(*self.secure)
        other, token = self.folder / "other.key", self.folder / "job.token"
        self.run_sluice("keygen", "--out", other)
        self.run_sluice("keygen", "--job", "default", *self.secure, "--out", token)
        self.expect_error(64, 'job "sluice reducers" stands for the pool key itself', "keygen", "--job", "sluice reducers", *self.secure)
        for file in (other, token):
            self.refused(69, f'reducer {address} refused: wrong token for job "sluice reducers": it belongs to another job or another pool key', address, "--key-file", file)
        self.refused(69, f"reducer {address}: requires the key of the pool", address)
        is_not_enough = "a drain needs the pool key (--key-file, SLUICE_KEY_FILE), a job token (--token-file, SLUICE_TOKEN_FILE) is not enough"
        self.refused(64, is_not_enough, address, "--token-file", token)
        self.assertNotRegex(self.run_sluice("drain", "--help").stdout, "--token-file|--job|--tenant")
        self.refused(64, is_not_enough, address, env={"SLUICE_TOKEN_FILE": str(token)})
        self.refused(64, "expected one reducer", f"{address},127.0.0.1:1", *self.secure)
        self.refused(78, "No such file", address, "--key-file", self.folder / "none")
        self.assertFalse(self.status(address, *self.secure)["draining"])
        self.run_sluice("drain", address, env={"SLUICE_KEY_FILE": str(self.key), "SLUICE_JOB": "train-7"})
        self.expect_ends([reducer])
        self.refused(69, f"cannot connect to {address}: connection refused", address, *self.secure)

    def test_a_reducer_without_a_key_is_drained_on_its_host(self):
        reducer, address = self.start_reducer()
        self.refused(69, f"reducer {address}: has no key to prove the job token", address, *self.secure)
        self.run_sluice("drain", address)
        self.expect_ends([reducer])
        # As Debian names the host itself: the client's address is another one, 127.0.0.1.
        reducer, address = self.start_reducer(host="127.0.1.1")
        self.run_sluice("drain", address)
        self.expect_ends([reducer])

    def test_a_reducer_of_version_0_1_0_is_named(self):
        listener = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def serve():
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                def answer(number, fields):
                    length, = struct.unpack("<I", stream.read(64)[48:52])
                    stream.read(length)
                    connection.sendall(v1.header(number, fields.bytes()).bytes() + fields.bytes())
                welcome = v1.Fields().u8(1, "version").u8(0, "proof").u16(2, "lanes").u32(1 << 20, "max_slot_bytes").u64(7, "reducer").u64(0x783, "features")
                answer(v1.WELCOME, welcome.put(bytes(32), "nonce").put(bytes(32), "mac").text("sluice 0.1.0", "software"))
                answer(v1.STATUS_REPLY, v1.Fields().text("{}", "json"))

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        self.refused(69, f"reducer {address}: its version (sluice 0.1.0) cannot be drained by a command; send SIGTERM on its host", address)
        server.join()

    def refused(self, code, text, address, *arguments, **how):
        done = self.expect_error(code, text, "drain", address, *arguments, **how)
        self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)


if __name__ == "__main__":
    main()
