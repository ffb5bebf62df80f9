"""The plugin where nobody set SLUICE_REDUCERS: what a platform says is taken, and what it says wrongly ends no job."""

import json
import re
import socket
import struct
import threading

from playing import Play, abi, main

TRAFFIC = ("--ranks", 3, "--types", "float32")


def spec(*reducers):
    return json.dumps({"cluster": {"workerpool0": ["w0:2222"], "workerpool1": ["w1:2222", "w2:2222"], "workerpool2": list(reducers)}, "environment": "cloud"})


class SrvServer:
    """A name server that says of every name that it is these pods' ("host", port); `lists` one after the other, the last for ever."""

    def __init__(self, *lists):
        self.lists, self.asked = lists, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                query, client = self.socket.recvfrom(4096)
            except OSError:
                return
            pods = self.lists[min(self.asked, len(self.lists) - 1)]
            self.asked += 1
            if pods is None:
                continue
            answers = b""
            for host, port in pods:
                data = struct.pack("!HHH", 0, 0, port) + b"".join(bytes([len(label)]) + label.encode() for label in host.split(".")) + b"\0"
                answers += b"\xc0\x0c" + struct.pack("!HHIH", 33, 1, 5, len(data)) + data
            question = query[12:query.index(b"\0", 12) + 5]
            self.socket.sendto(query[:2] + struct.pack("!HHHHH", 0x8180, 1, len(pods), 0, 0) + question + answers, client)

    def close(self):
        self.socket.close()


class Discovery(Play):
    def serve(self, *lists):
        server = SrvServer(*lists)
        self.addCleanup(server.close)
        return server

    def pods(self, count):
        self.start_pool(count)
        pods = [(host, int(port)) for host, port in (address.split(":") for address in self.addresses)]
        self.addresses.clear()
        return pods

    def service(self, server, count=1):
        return {"SLUICE_REDUCER_SERVICE": "reducer.", "SLUICE_REDUCER_COUNT": str(count), "SLUICE_DNS_SERVER": server, "SLUICE_DISCOVERY_TIMEOUT": "1s"}

    def off(self, lines):
        said = {re.sub(r"^rank \d+: ", "", line) for line in lines if "OFF" in line}
        self.assertEqual(len(said), 1, "\n".join(sorted(said)))
        return said.pop()

    def test_cluster_spec_names_the_reducers(self):
        pods = self.pods(2)
        self.play("kinds", *TRAFFIC, env={"CLUSTER_SPEC": spec(*(f"{host}:{port}" for host, port in pods))})

    def test_the_offer_says_who_named_them_and_asks_no_network(self):
        server = self.serve([("127.0.0.1", 1)])
        for env, who in (({"CLUSTER_SPEC": spec("r0:2222")}, "1 reducers configured by cluster-spec"),
                         (self.service(server.address, 4), "4 reducers configured by kubernetes"),
                         ({"SLUICE_SLURM_NODELIST": "cpu[1-3]"}, "3 reducers configured by slurm")):
            playing = self.begin_play("offer", "--abi", abi(), "--ranks", 1, "--verbose", env=env)
            self.assertEqual(playing.wait(), 0, playing.text())
            self.assertRegex(playing.text(), r"net 1 collnet 1")
            self.assertEqual(playing.count(who), 1, playing.text())
        self.assertEqual(server.asked, 0)

    def test_what_is_malformed_is_one_warning_and_no_offload(self):
        for env, words in (({"CLUSTER_SPEC": "{"}, "no offload: CLUSTER_SPEC:1:2: "),
                           ({"SLUICE_SLURM_NODELIST": "a[1-999999999]"}, "no offload: SLUICE_SLURM_NODELIST: column 3: "),
                           ({"SLUICE_REDUCER_SERVICE": "reducer"}, "SLUICE_REDUCER_SERVICE needs SLUICE_REDUCER_COUNT"),
                           ({"SLUICE_DISCOVERY": "tea"}, "SLUICE_DISCOVERY=tea is none of")):
            with self.subTest(words):
                playing = self.begin_play("offer", "--abi", abi(), "--ranks", 1, "--verbose", env=env)
                self.assertEqual(playing.wait(), 0, playing.text())
                self.assertRegex(playing.text(), r"net 1 collnet 0")
                warnings = [line for line in playing.lines() if "WARN" in line]
                self.assertEqual(len([line for line in warnings if words in line]), 1, playing.text())
                self.assertEqual(len(warnings), 1, playing.text())

    def test_it_can_be_switched_off(self):
        playing = self.begin_play("offer", "--abi", abi(), "--ranks", 1, "--verbose", env={"CLUSTER_SPEC": "{", "SLUICE_DISCOVERY": "none"})
        self.assertEqual(playing.wait(), 0, playing.text())
        self.assertEqual(playing.count("WARN"), 0, playing.text())

    def test_pods_of_a_service(self):
        pods = self.pods(2)
        server = self.serve(pods)
        self.play("kinds", *TRAFFIC, env=self.service(server.address, 2))
        self.assertEqual(server.asked, 3)  # once on each rank

    def test_a_dns_that_is_silent_ends_the_offload_on_all_ranks_with_one_reason(self):
        server = self.serve(None)
        reason = self.off(self.play("connect", "--ranks", 3, "--expect", "fail", env=self.service(server.address)))
        self.assertIn("not there within 1s", reason)

    def test_one_rank_that_finds_nobody_ends_it_for_all(self):
        server, silent = self.serve(self.pods(1)), self.serve(None)
        reason = self.off(self.play("connect", "--ranks", 3, "--expect", "fail", "--rank-env", f"1:SLUICE_DNS_SERVER={silent.address}",
                                    env=self.service(server.address)))
        self.assertIn("see different reducers", reason)
        self.assertIn("not there within 1s", reason)

    def test_ranks_that_find_different_reducers_go_without(self):
        server, other = self.serve([("127.0.0.1", 1)]), self.serve([("127.0.0.1", 2)])
        reason = self.off(self.play("connect", "--ranks", 2, "--expect", "fail", "--rank-env", f"1:SLUICE_DNS_SERVER={other.address}",
                                    env=self.service(server.address)))
        self.assertIn("127.0.0.1:1", reason)
        self.assertIn("127.0.0.1:2", reason)


if __name__ == "__main__":
    main()
