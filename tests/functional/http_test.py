"""A reducer's HTTP port: probes during start, drain and hang; status, metrics and page; misbehaving clients."""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import time
from pathlib import Path

from sluice_process import DEADLINE_S, SluiceTest, main, row_count, rows_of, until

JOB = ("bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "5")
LOOP = (*JOB, "-N", "0", "--workers", "2")


class HttpTest(SluiceTest):
    def request(self, port, path, method="GET", body=None):
        """(status, headers, text)"""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)) as connection:
            connection.request(method, path, body=body)
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read().decode()

    def get(self, port, path):
        status, _, text = self.request(port, path)
        self.assertEqual(status, 200, text)
        return text

    def http_status(self, port):
        return json.loads(self.get(port, "/status"))

    def raw(self, port, request, shut=False):
        """All bytes that the server sends until it closes."""
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client:
            client.settimeout(DEADLINE_S)
            client.sendall(request)
            if shut:
                client.shutdown(socket.SHUT_WR)
            reply = b""
            while piece := client.recv(65536):
                reply += piece
            return reply

    def samples(self, port):
        """The samples of /metrics: {name and labels: value}."""
        lines = [line for line in self.get(port, "/metrics").splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


class ProbeTest(HttpTest):
    def test_a_port_on_loopback_serves_no_other_host_name(self):
        # As a page of the Internet makes a browser ask, under a name that then resolves to this host.
        _, _, port = self.start_http_reducer()
        for host, status in ((f"rebound.example:{port}", 421), ("rebound.example", 421), (f"localhost:{port}", 200), (f"LocalHost:{port}", 200),
                             (f"127.0.0.1:{port}", 200), (f"[::1]:{port}", 200), ("127.0.0.1", 200)):
            reply = self.raw(port, f"GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            self.assertIn(f"HTTP/1.1 {status} ".encode(), reply, host)
        self.assertIn(b"HTTP/1.1 200 ", self.raw(port, b"GET /livez HTTP/1.0\r\n\r\n"))
        reply = self.raw(port, b"HEAD / HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n")
        self.assertTrue(reply.startswith(b"HTTP/1.1 421 "), reply)
        self.assertTrue(reply.endswith(b"\r\n\r\n"), reply)

    def test_probes_of_a_serving_reducer(self):
        reducer, _, port = self.start_http_reducer()
        self.assertIn(f"at http://127.0.0.1:{port}/", reducer.stderr())
        for path in ("/livez", "/readyz", "/startupz", "/healthz"):
            self.assertEqual(self.get(port, path), "ok\n")
        self.assertEqual(self.run_sluice("check", "health", "--http", f"127.0.0.1:{port}").stdout, "ok\n")
        # Like a container's probe, which has no options.
        self.run_sluice("check", "health", env={"SLUICE_HTTP_LISTEN": f"*:{port}"})

    def test_a_draining_reducer_is_live_but_not_ready(self):
        reducer, address, port = self.start_http_reducer()
        job = self.start(*LOOP, "--connect", address)
        self.wait_for_rows(job)
        self.assertFalse(job.ended(), job.stderr())
        self.assertEqual(self.samples(port)["sluice_ready"], 1)
        reducer.signal(signal.SIGTERM)
        until("the reducer is not ready", lambda: self.request(port, "/readyz")[0] == 503)
        status, _, text = self.request(port, "/readyz")
        self.assertEqual((status, text), (503, "draining: 1 sessions left, no new sessions accepted\n"))
        self.assertEqual(self.get(port, "/livez"), "ok\n")
        self.expect_error(69, "/readyz: HTTP status 503: draining", "check", "health", "--http", f"127.0.0.1:{port}")
        metrics = self.samples(port)
        self.assertEqual((metrics["sluice_ready"], metrics["sluice_draining"]), (0, 1))
        job.signal(signal.SIGINT)
        job.wait()
        self.assertEqual(reducer.wait(), 0)
        self.expect_error(69, f"127.0.0.1:{port}", "check", "health", "--http", f"127.0.0.1:{port}")

    def test_the_probe_of_a_stopped_reducer_times_out(self):
        reducer, _, port = self.start_http_reducer()
        reducer.signal(signal.SIGSTOP)
        begun = time.monotonic()
        self.expect_error(69, "did not answer /readyz in time", "check", "health", "--http", f"127.0.0.1:{port}", "--timeout", "500ms")
        self.assertLess(time.monotonic() - begun, 10)
        reducer.signal(signal.SIGCONT)
        self.assertEqual(self.get(port, "/readyz"), "ok\n")

    def test_a_port_in_use_exits_with_75(self):
        _, _, port = self.start_http_reducer()
        self.expect_error(75, re.compile(rf"127\.0\.0\.1:{port}.*in use"), "reducer", "--listen", "127.0.0.1:0", "--http-listen", f"127.0.0.1:{port}")
        self.expect_error(64, "--http-listen", "reducer", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:99999")

    def test_the_http_port_is_off_by_default(self):
        reducer, _ = self.start_reducer()
        inodes = {os.readlink(link) for link in Path(f"/proc/{reducer.pid}/fd").iterdir() if link.is_symlink()}
        self.assertEqual(sum(1 for line in Path(f"/proc/{reducer.pid}/net/tcp").read_text().splitlines()[1:]
                             if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in inodes), 1)


def tcp_retransmits():
    names, numbers = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:"))
    return int(numbers[names.index("RetransSegs")])


class ContentTest(HttpTest):
    def test_status_equals_sluice_status(self):
        _, address, port = self.start_http_reducer("--pool-name", "blue")
        status, headers, text = self.request(port, "/status")
        self.assertEqual((status, headers["Content-Type"], headers["Cache-Control"]), (200, "application/json", "no-store"))
        shown = json.loads(text)
        self.assertEqual(set(shown), set(self.status(address)))
        self.assertEqual((shown["pool"], shown["host"]), ("blue", socket.gethostname()))
        self.assertIn(address, str(shown))

    def test_metrics_count_the_work(self):
        _, address, port = self.start_http_reducer("--lanes", "2")
        retransmits = tcp_retransmits()
        before = self.samples(port)
        self.assertTrue(retransmits <= before["sluice_tcp_retransmits_total"] <= tcp_retransmits())
        self.assertEqual(before['sluice_protocol_errors_total{reason="bad_magic"}'], 0)
        operations, size, workers = 20, 64 * 1024, 2
        self.run_sluice("bench", "allreduce", "-b", size, "-e", size, "-n", operations, "-w", "0", "-c", "0", "-d", "bfloat16", "--workers", workers,
                        "--connect", address, env={"SLUICE_ZERO_BLOCKS": "send"})

        def released():
            now = self.samples(port)
            counted = now['sluice_sessions_total{result="completed"}'] == 1
            return now if counted and now['sluice_connections{transport="tcp"}'] == now["sluice_chunk_pool_used_bytes"] == 0 else None

        metrics = until("the session is counted, and its connections and memory are released", released)
        done = sum(value for name, value in metrics.items() if name.startswith("sluice_operations_total"))
        self.assertGreaterEqual(metrics['sluice_operations_total{dtype="bf16",op="sum"}'], operations)
        self.assertGreaterEqual(done, operations)
        self.assertAlmostEqual(done, round(done), places=6)  # the fractions of each operation add up to one
        summed = metrics['sluice_reduced_bytes_total{dtype="bf16",op="sum"}']
        self.assertGreaterEqual(summed, operations * size * workers)
        # The difference is the ranks' COMMITs. The benchmark's own small reductions count on both sides; SLUICE_ZERO_BLOCKS=send, because
        # the zeros in them would count as reduced only.
        received = metrics['sluice_receive_bytes_total{transport="tcp"}'] + metrics['sluice_receive_bytes_total{transport="rdma"}']
        reduced = sum(value for name, value in metrics.items() if name.startswith("sluice_reduced_bytes_total"))
        self.assertTrue(reduced <= received < reduced + 4096, (reduced, received))
        self.assertEqual(metrics["sluice_straggler_wait_seconds_count"], metrics["sluice_chunks_total"])
        self.assertEqual(metrics['sluice_straggler_wait_seconds_bucket{le="+Inf"}'], metrics["sluice_chunks_total"])
        # One or two lanes had chunks of each operation; the last operation ended with its session.
        timed = sum(value for name, value in metrics.items() if name.startswith("sluice_operation_duration_seconds_count"))
        self.assertTrue(done <= timed <= 2 * done, (timed, done))
        bounds = [float(found[1]) for found in (re.match(r'sluice_straggler_wait_seconds_bucket\{le="([\d.e-]+)"\}', name) for name in metrics) if found]
        self.assertEqual((min(bounds), max(bounds), len(bounds)), (1.6e-05, 67.108864, 23))
        self.assertEqual(metrics["sluice_lanes"], 2)
        self.assertGreater(metrics['sluice_lane_busy_seconds_total{lane="0"}'] + metrics['sluice_lane_busy_seconds_total{lane="1"}'], 0)
        stages = [metrics[f'sluice_reduce_cpu_seconds_total{{stage="{stage}"}}'] for stage in ("reduce", "transfer")]
        self.assertAlmostEqual(sum(stages), sum(metrics[f'sluice_lane_busy_seconds_total{{lane="{lane}"}}'] for lane in (0, 1)))
        self.assertGreater(metrics["process_resident_memory_bytes"], 1e6)
        self.assertLess(abs(metrics["process_start_time_seconds"] - time.time()), 600)
        info = next(name for name in metrics if name.startswith("sluice_build_info"))
        self.assertRegex(info, r'^sluice_build_info\{version="[\d.]+",compiler="(gcc|clang) [\d.]+",revision="[^"]+",simd="[^"]+"\}$')

    def test_garbage_and_refused_joins_are_counted(self):
        _, address, port = self.start_http_reducer("--memory-limit", "1M")
        host, data_port = address.split(":")
        with socket.create_connection((host, int(data_port))) as scanner:
            scanner.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(100))
            scanner.settimeout(DEADLINE_S)
            with contextlib.suppress(ConnectionResetError):
                while scanner.recv(4096):
                    pass
        self.run_sluice(*JOB, "--workers", "2", "--connect", address, expect=69)
        metrics = self.samples(port)
        self.assertEqual(metrics['sluice_protocol_errors_total{reason="bad_magic"}'], 1)
        self.assertGreaterEqual(metrics['sluice_refused_joins_total{reason="memory_limit"}'], 1)

    def test_no_label_value_is_chosen_by_a_client(self):
        _, address, port = self.start_http_reducer()
        names = []
        for tenant in ("aardvark", "zebra"):
            job = self.start(*LOOP, "--connect", address, env={"SLUICE_TENANT": tenant})
            self.wait_for_rows(job)
            self.assertFalse(job.ended(), job.stderr())
            until("the session has lane connections", lambda: self.samples(port).get('sluice_connections{transport="tcp"}', 0) > 0)
            names.append({re.sub(r'le="[^"]*"', "", name) for name in self.samples(port)})
            job.signal(signal.SIGINT)
            job.wait()
            until("the session has ended", lambda: self.http_status(port)["sessions"]["open"] == 0)
        new = {name for name in names[1] - names[0] if not name.startswith(("sluice_reduced_bytes_total", "sluice_closed_connections_total"))}
        self.assertEqual(new, set())
        self.assertNotIn("zebra", self.get(port, "/metrics"))

    def test_a_late_rank_is_reported_during_the_wait_and_afterwards(self):
        _, address, port = self.start_http_reducer("--peer-timeout", "10m")
        ranks = self.start_ranks(address, *LOOP)
        self.wait_for_rows(ranks[0])
        self.assertFalse(ranks[0].ended(), ranks[0].stderr())
        ranks[1].signal(signal.SIGSTOP)
        until("the wait is reported", lambda: self.samples(port)["sluice_longest_wait_seconds"] > 1)
        metrics = self.samples(port)
        self.assertEqual(metrics["sluice_waiting_sessions"], 1)
        self.assertEqual(self.http_status(port)["session_list"][0]["missing"], [1])
        screen = self.run_sluice("top", "--once", "--interval", "200ms", "--reducers", address).stdout
        self.assertRegex(screen, r"\n00010203.* \d\.\d s for 1 ")
        ranks[1].signal(signal.SIGCONT)

        def slow():
            return {slow["rank"]: slow["waited_ms"] for slow in self.http_status(port)["session_list"][0]["slow_ranks"]}

        until("rank 1 is charged", lambda: slow().get(1, 0) > 1000)
        # At most the elapsed time, although many chunks waited concurrently.
        self.assertLess(slow()[1] + slow().get(0, 0), 1e3 * self.http_status(port)["uptime_seconds"])
        self.assertLess(slow().get(0, 0), slow()[1])
        self.assertEqual(next(iter(slow())), 1)  # sorted, worst first

    def test_the_page_loads_nothing_and_allows_only_its_own_script(self):
        _, _, port = self.start_http_reducer()
        status, headers, text = self.request(port, "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIsNone(re.search(r'(src|href)="(?!data:|/status|/metrics)', text))
        self.assertNotIn("innerHTML", text)
        policy = headers["Content-Security-Policy"]
        self.assertTrue(policy.startswith("default-src 'none';"), policy)
        self.assertNotIn("unsafe", policy)
        for part, tag in (("script-src", "script"), ("style-src", "style")):
            body = re.search(rf"<{tag}>(.*)</{tag}>", text, re.DOTALL)[1]
            self.assertIn(f"{part} 'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'", policy)


class ClientTest(HttpTest):
    """Whatever these clients do, the reducer serves its job and other clients."""

    def descriptors(self, running):
        return len(os.listdir(f"/proc/{running.pid}/fd"))

    def test_unknown_paths_and_methods(self):
        _, _, port = self.start_http_reducer()
        status, _, text = self.request(port, "/etc/passwd")
        self.assertEqual(status, 404)
        self.assertIn("/metrics", text)
        status, headers, _ = self.request(port, "/status", method="POST", body="x")
        self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))
        self.assertEqual(self.request(port, "/status", method="BREW")[0], 405)
        self.assertEqual(self.request(port, "/status", body="something")[0], 400)
        status, headers, text = self.request(port, "/metrics", method="HEAD")
        self.assertEqual((status, text), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 1000)
        self.assertEqual(self.request(port, "/livez?probe=1")[0], 200)

    def test_malformed_requests_get_an_error_response(self):
        _, _, port = self.start_http_reducer()
        for request in (b"\x00\x01\x02\x03\r\n\r\n", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
                        b"GET nowhere HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"SLUC" + os.urandom(2000) + b"\r\n\r\n"):
            self.assertTrue(self.raw(port, request).startswith(b"HTTP/1.1 400 "), request)
        long_header = b"GET / HTTP/1.1\r\nX: " + 100_000 * b"a" + b"\r\n\r\n"
        self.assertTrue(self.raw(port, long_header).startswith(b"HTTP/1.1 431 "))
        self.assertTrue(self.raw(port, b"GET /" + 100_000 * b"a" + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 431 "))
        self.assertEqual(self.raw(port, b"GET / HT", shut=True), b"")
        self.assertEqual(self.get(port, "/livez"), "ok\n")

    def test_pipelined_requests_get_two_responses(self):
        _, _, port = self.start_http_reducer()
        reply = self.raw(port, b"GET /livez HTTP/1.1\r\n\r\nGET /status HTTP/1.1\r\nConnection: close\r\n\r\n")
        self.assertEqual(reply.count(b"HTTP/1.1 200 OK"), 2)
        self.assertTrue(reply.rstrip().endswith(b"}"))

    def test_silent_connections_do_not_block_other_clients(self):
        reducer, address, port = self.start_http_reducer()
        before = self.descriptors(reducer)
        job = self.start(*LOOP, "--connect", address)
        self.wait_for_rows(job)
        self.assertFalse(job.ended(), job.stderr())
        silent = []
        self.addCleanup(lambda: [client.close() for client in silent])
        for i in range(1000):
            client = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
            client.sendall(b"GET / HTTP/1.1\r\nX-Slow: " if i % 2 else b"G")
            silent.append(client)
            if i % 100 == 99:
                self.assertEqual(self.get(port, "/readyz"), "ok\n")
                self.assertLess(self.descriptors(reducer), before + 100)
        self.wait_for_rows(job, row_count(job))
        self.assertFalse(job.ended(), job.stderr())
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 130, job.stderr())
        self.assertEqual({wrong for row in rows_of(job.stdout().rpartition("\n")[0]) for wrong in (row[8], row[12])}, {"0"})
        for client in silent:
            client.close()
        until("all connections are closed", lambda: self.descriptors(reducer) <= before + 2)

    def test_a_slow_request_is_closed_in_time(self):
        _, _, port = self.start_http_reducer()
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as slow:
            slow.settimeout(0.2)
            request = iter(b"GET / HTTP/1.1\r\nX: " + 1000 * b"a")

            def closed():
                try:
                    slow.sendall(bytes([next(request)]))
                    return slow.recv(1) == b""
                except TimeoutError:
                    return False
                except (ConnectionResetError, BrokenPipeError):
                    return True

            until("the connection is closed", closed)
        self.assertLess(time.monotonic() - begun, 20)

    def test_clients_that_do_not_read_do_not_block_other_clients(self):
        _, _, port = self.start_http_reducer()
        greedy = []
        self.addCleanup(lambda: [client.close() for client in greedy])
        for _ in range(64):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            client.settimeout(DEADLINE_S)
            client.sendall(2000 * b"GET /status HTTP/1.1\r\n\r\n")  # several MB of responses
            greedy.append(client)
        self.assertEqual(self.get(port, "/readyz"), "ok\n")

    def test_a_client_that_does_not_read_is_closed(self):
        reducer, _, port = self.start_http_reducer()
        before = until("the reducer serves", lambda: self.get(port, "/readyz") and self.descriptors(reducer))
        with socket.socket() as greedy:
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy.connect(("127.0.0.1", port))
            greedy.settimeout(0.2)
            with contextlib.suppress(OSError):  # TimeoutError is one
                while True:
                    greedy.sendall(200 * b"GET /metrics HTTP/1.1\r\n\r\n")
            self.assertEqual(self.get(port, "/livez"), "ok\n")
            until("the connection is closed", lambda: self.descriptors(reducer) <= before + 2)  # the connections of two requests may be open


if __name__ == "__main__":
    main()
