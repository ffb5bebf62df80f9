"""Reducers by a headless service's SRV records: against dnsmasq, and servers that misbehave. All on loopback."""

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
    """(exit code, stdout, stderr, seconds)"""
    env = environment() | {"SLUICE_REDUCER_SERVICE": service, "SLUICE_DNS_SERVER": server, "SLUICE_DISCOVERY_TIMEOUT": timeout}
    if count:
        env["SLUICE_REDUCER_COUNT"] = str(count)
    begin = time.monotonic()
    done = subprocess.run([program(), "discover", "--source", "kubernetes"], env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.returncode, done.stdout, done.stderr, time.monotonic() - begin


class Server(threading.Thread):
    """One port, UDP and TCP; `say(query, over_tcp)` gives the reply, nothing, or a list of packets."""

    def __init__(self, say):
        super().__init__(daemon=True)
        self.say, self.asked, self.open = say, [], []
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
            self.asked.append("udp")
            reply = self.say(query, False)
            for packet in reply if isinstance(reply, list) else [reply]:
                if packet is not None:
                    self.udp.sendto(packet, client)

    def run_tcp(self):
        while True:
            try:
                connection, _ = self.tcp.accept()
            except OSError:
                return
            self.asked.append("tcp")
            self.open.append(connection)  # not closed: one that says nothing stays open
            length = struct.unpack("!H", connection.recv(2, socket.MSG_WAITALL))[0]
            reply = self.say(connection.recv(length, socket.MSG_WAITALL), True)
            if reply is not None:
                connection.sendall(struct.pack("!H", len(reply)) + reply)

    def close(self):
        for end in (self.udp, self.tcp, *self.open):
            end.close()


def question_of(query):
    end = query.index(b"\0", 12) + 5
    return query[12:end]


def reply_to(query, flags, answers=()):
    body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", 33, 1, 5, len(data)) + data for data in answers)
    return query[:2] + struct.pack("!HHHHH", flags, 1, len(answers), 0, 0) + question_of(query) + body


def srv(target, port=7470):
    return struct.pack("!HHH", 0, 33, port) + b"".join(bytes([len(label)]) + label.encode() for label in target.split(".")) + b"\0"


class Case(unittest.TestCase):
    def serve(self, say):
        server = Server(say)
        self.addCleanup(server.close)
        return server


class Dnsmasq(Case):
    def setUp(self):
        need("dnsmasq")
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        arguments = [f"--srv-host={NAME},reducer-{n}.reducer.ml.svc.cluster.local,{7470 + n}" for n in range(12)]
        arguments += [f"--srv-host=_data._tcp.large,{'x' * 50}-{n}.{'y' * 60}.{'z' * 60}.large,7470" for n in range(40)]
        self.process = subprocess.Popen(["dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--bind-interfaces", "--no-daemon",
                                         "--listen-address=127.0.0.1", f"--port={port}", "--local=/local/", *arguments],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        self.addCleanup(self.end)
        until("dnsmasq listens", lambda: accepts(port), self.process)

    def end(self):
        self.process.kill()
        self.process.wait()

    def test_pods_come_in_their_order_with_their_ports(self):
        code, out, err, _ = discover(self.address, count=12)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["reducers"], [f"reducer-{n}.reducer.ml.svc.cluster.local:{7470 + n}" for n in range(12)])

    def test_more_than_a_packet_holds_comes_over_tcp(self):
        code, out, err, _ = discover(self.address, "large.", count=40)
        self.assertEqual(code, 0, err)
        self.assertEqual([host.split(".")[0].rsplit("-")[-1] for host in json.loads(out)["reducers"]], [str(n) for n in range(40)])

    def test_no_such_name_is_asked_again_until_the_deadline(self):
        code, _, err, took = discover(self.address, "nobody.local.", timeout="1500ms")
        self.assertEqual(code, 69, err)
        self.assertIn("no SRV records of _data._tcp.nobody.local", err)
        self.assertIn("SLUICE_DISCOVERY_TIMEOUT", err)
        self.assertTrue(1.4 < took < 10, took)

    def test_too_few(self):
        code, _, err, _ = discover(self.address, count=13, timeout="1s")
        self.assertEqual(code, 69, err)
        self.assertIn("13 reducers wanted", err)
        self.assertIn("12 found", err)


class Misbehaving(Case):
    def test_a_server_that_never_answers(self):
        server = self.serve(lambda query, over_tcp: None)
        code, _, err, took = discover(server.address, timeout="3s")
        self.assertEqual(code, 69, err)
        self.assertIn("does not answer", err)
        self.assertTrue(2.5 < took < 15, took)
        self.assertGreaterEqual(len(server.asked), 2)

    def test_nobody_at_the_port(self):
        code, _, err, took = discover(f"127.0.0.1:{free_port()}", timeout="1s")
        self.assertEqual(code, 69, err)
        self.assertIn("refused", err)
        self.assertLess(took, 10)

    def test_a_cut_answer_and_silence_over_tcp(self):
        """Where the C library's resolver waits for ever."""
        server = self.serve(lambda query, over_tcp: None if over_tcp else reply_to(query, 0x8380))
        code, _, err, took = discover(server.address, timeout="3s")
        self.assertEqual(code, 69, err)
        self.assertIn("tcp", server.asked)
        self.assertLess(took, 15)

    def test_a_cut_answer_and_the_whole_over_tcp(self):
        server = self.serve(lambda query, over_tcp: reply_to(query, 0x8180, [srv("r-1.r"), srv("r-0.r")]) if over_tcp else reply_to(query, 0x8380))
        code, out, err, _ = discover(server.address)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["reducers"], ["r-0.r:7470", "r-1.r:7470"])

    def test_rubbish_and_answers_to_other_queries_are_passed_over(self):
        def say(query, over_tcp):
            other = bytes([query[0] ^ 1]) + query[1:]
            return [b"rubbish", reply_to(other, 0x8180, [srv("evil")]), query, reply_to(query, 0x8180, [srv("good")])]

        server = self.serve(say)
        code, out, err, _ = discover(server.address)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["reducers"], ["good:7470"])
        self.assertEqual(server.asked, ["udp"])

    def test_a_server_that_refuses(self):
        server = self.serve(lambda query, over_tcp: reply_to(query, 0x8185))
        code, _, err, _ = discover(server.address, timeout="1s")
        self.assertEqual(code, 69, err)
        self.assertIn("refuses, code 5", err)

    def test_pods_that_come_late_are_waited_for(self):
        def say(query, over_tcp):
            pods = [srv(f"r-{n}.r") for n in range(len(server.asked))]
            return reply_to(query, 0x8180, pods) if len(pods) > 1 else reply_to(query, 0x8183)

        server = self.serve(say)
        code, out, err, _ = discover(server.address, count=3, timeout="20s")
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["reducers"], ["r-0.r:7470", "r-1.r:7470", "r-2.r:7470"])

    def test_a_target_that_is_no_host(self):
        server = self.serve(lambda query, over_tcp: reply_to(query, 0x8180, [srv("a b")]))
        code, _, err, took = discover(server.address)
        self.assertEqual(code, 78, err)
        self.assertIn("no host has", err)
        self.assertLess(took, 5)


if __name__ == "__main__":
    main()
