"""Tests the discovery of reducers by SRV records with dnsmasq and with faulty name servers, all on loopback."""

import json
import socket
import struct
import subprocess
import threading
import time
import unittest

from deploy_case import DEADLINE_S, accepts, environment, free_port, main, need, program, until

NAME = "_data._tcp.reducer.ml.svc.cluster.local"


def discover(server, service="reducer.ml.svc.cluster.local.", count=None, timeout="5s"):
    """Runs `sluice discover`. Returns (exit code, stdout, stderr, seconds)."""
    env = environment() | {"SLUICE_REDUCER_SERVICE": service, "SLUICE_DNS_SERVER": server, "SLUICE_DISCOVERY_TIMEOUT": timeout}
    if count:
        env["SLUICE_REDUCER_COUNT"] = str(count)
    begin = time.monotonic()
    done = subprocess.run([program(), "discover", "--source", "kubernetes"], env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.returncode, done.stdout, done.stderr, time.monotonic() - begin


class FakeNameServer(threading.Thread):
    """Answers on one port with UDP and TCP. `answer(query, over_tcp)` returns the reply, None or a list of packets."""

    def __init__(self, answer):
        super().__init__(daemon=True)
        self.answer, self.queries, self.connections = answer, [], []
        port = free_port()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", port))
        self.tcp = socket.socket()
        self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.tcp.bind(("127.0.0.1", port))
        self.tcp.listen()
        self.address = f"127.0.0.1:{port}"
        self.start()
        threading.Thread(target=self.run_tcp, daemon=True).start()

    def run(self):
        while True:
            try:
                query, client = self.udp.recvfrom(4096)
            except OSError:
                return
            self.queries.append("udp")
            reply = self.answer(query, False)
            for packet in reply if isinstance(reply, list) else [reply]:
                if packet is not None:
                    self.udp.sendto(packet, client)

    def run_tcp(self):
        while True:
            try:
                connection, _ = self.tcp.accept()
            except OSError:
                return
            self.queries.append("tcp")
            self.connections.append(connection)  # stays open if there is no reply
            length = struct.unpack("!H", connection.recv(2, socket.MSG_WAITALL))[0]
            reply = self.answer(connection.recv(length, socket.MSG_WAITALL), True)
            if reply is not None:
                connection.sendall(struct.pack("!H", len(reply)) + reply)

    def close(self):
        for opened in (self.udp, self.tcp, *self.connections):
            opened.close()


def question_of(query):
    end = query.index(b"\0", 12) + 5
    return query[12:end]


def reply_to(query, flags, answers=()):
    body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", 33, 1, 5, len(data)) + data for data in answers)
    return query[:2] + struct.pack("!HHHHH", flags, 1, len(answers), 0, 0) + question_of(query) + body


def srv(target, port=7470):
    return struct.pack("!HHH", 0, 33, port) + b"".join(bytes([len(label)]) + label.encode() for label in target.split(".")) + b"\0"


class NameServerCase(unittest.TestCase):
    def serve(self, answer):
        server = FakeNameServer(answer)
        self.addCleanup(server.close)
        return server

    def expect_reducers(self, expected, *arguments, **how):
        code, out, err, _ = discover(*arguments, **how)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["reducers"], expected)

    def expect_failure(self, texts, *arguments, code=69, **how):
        """Returns the seconds until the program failed."""
        actual, _, err, took = discover(*arguments, **how)
        self.assertEqual(actual, code, err)
        for text in texts:
            self.assertIn(text, err)
        return took


class Dnsmasq(NameServerCase):
    def setUp(self):
        need("dnsmasq")
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        arguments = [f"--srv-host={NAME},reducer-{n}.reducer.ml.svc.cluster.local,{7470 + n}" for n in range(12)]
        arguments += [f"--srv-host=_data._tcp.large,{'x' * 50}-{n}.{'y' * 60}.{'z' * 60}.large,7470" for n in range(40)]
        self.process = subprocess.Popen(["dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--bind-interfaces", "--no-daemon",
                                         "--listen-address=127.0.0.1", f"--port={port}", "--local=/local/", *arguments],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        self.addCleanup(self.stop_dnsmasq)
        until("dnsmasq listens", lambda: accepts(port), self.process)

    def stop_dnsmasq(self):
        self.process.kill()
        self.process.wait()

    def test_pods_are_sorted_and_have_their_ports(self):
        self.expect_reducers([f"reducer-{n}.reducer.ml.svc.cluster.local:{7470 + n}" for n in range(12)], self.address, count=12)

    def test_reply_larger_than_a_packet_uses_tcp(self):
        code, out, err, _ = discover(self.address, "large.", count=40)
        self.assertEqual(code, 0, err)
        self.assertEqual([host.split(".")[0].rsplit("-")[-1] for host in json.loads(out)["reducers"]], [str(n) for n in range(40)])

    def test_unknown_name_is_retried_until_the_deadline(self):
        took = self.expect_failure(["no SRV records of _data._tcp.nobody.local", "SLUICE_DISCOVERY_TIMEOUT"], self.address, "nobody.local.", timeout="1500ms")
        self.assertTrue(1.4 < took < 10, took)

    def test_fewer_reducers_than_expected(self):
        self.expect_failure(["fewer than 13 reducers", "12 found"], self.address, count=13, timeout="1s")


class FaultyServers(NameServerCase):
    def test_silent_server(self):
        server = self.serve(lambda query, over_tcp: None)
        took = self.expect_failure(["does not answer"], server.address, timeout="3s")
        self.assertTrue(2.5 < took < 15, took)
        self.assertGreaterEqual(len(server.queries), 2)

    def test_unused_port(self):
        self.assertLess(self.expect_failure(["refused"], f"127.0.0.1:{free_port()}", timeout="1s"), 10)

    def test_truncated_reply_and_no_reply_over_tcp(self):
        """The resolver of the C library would wait without limit here."""
        server = self.serve(lambda query, over_tcp: None if over_tcp else reply_to(query, 0x8380))
        took = self.expect_failure([], server.address, timeout="3s")
        self.assertIn("tcp", server.queries)
        self.assertLess(took, 15)

    def test_truncated_reply_and_complete_reply_over_tcp(self):
        server = self.serve(lambda query, over_tcp: reply_to(query, 0x8180, [srv("r-1.r"), srv("r-0.r")]) if over_tcp else reply_to(query, 0x8380))
        self.expect_reducers(["r-0.r:7470", "r-1.r:7470"], server.address)

    def test_invalid_packets_and_replies_to_other_queries_are_ignored(self):
        def answer(query, over_tcp):
            other = bytes([query[0] ^ 1]) + query[1:]
            return [b"invalid", reply_to(other, 0x8180, [srv("evil")]), reply_to(query, 0x8180, [srv("good")])]

        server = self.serve(answer)
        self.expect_reducers(["good:7470"], server.address)
        self.assertEqual(server.queries, ["udp"])

    def test_server_refuses_the_query(self):
        server = self.serve(lambda query, over_tcp: reply_to(query, 0x8185))
        self.expect_failure(["refused"], server.address, timeout="1s")

    def test_discovery_waits_for_late_pods(self):
        def answer(query, over_tcp):
            pods = [srv(f"r-{n}.r") for n in range(len(server.queries))]
            return reply_to(query, 0x8180, pods) if len(pods) > 1 else reply_to(query, 0x8183)

        server = self.serve(answer)
        self.expect_reducers(["r-0.r:7470", "r-1.r:7470", "r-2.r:7470"], server.address, count=3, timeout="20s")

    def test_target_is_not_a_host_name(self):
        server = self.serve(lambda query, over_tcp: reply_to(query, 0x8180, [srv("a b")]))
        self.assertLess(self.expect_failure(["not allowed in a host name"], server.address, code=78), 5)


if __name__ == "__main__":
    main()
