"""The plugin without SLUICE_REDUCERS: it uses the reducers of the platform, and an invalid platform variable does not end the job."""

import json
import re
import socket
import struct
import threading

from nccl_player import PlayerTest, abi, main

TRAFFIC = ("--ranks", 3, "--types", "float32")


def spec(*reducers):
    return json.dumps({"cluster": {"workerpool0": ["w0:2222"], "workerpool1": ["w1:2222", "w2:2222"], "workerpool2": list(reducers)}, "environment": "cloud"})


class SrvServer:
    """A name server that answers every query with a list of pods ("host", port): `lists` in order, then the last one. None: no answer."""

    def __init__(self, *lists):
        self.lists, self.queries = lists, 0
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
            pods = self.lists[min(self.queries, len(self.lists) - 1)]
            self.queries += 1
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


class Discovery(PlayerTest):
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

    def off_reason(self, lines):
        reasons = {re.sub(r"^rank \d+: ", "", line) for line in lines if "OFF" in line}
        self.assertEqual(len(reasons), 1, "\n".join(sorted(reasons)))
        return reasons.pop()

    def test_cluster_spec_names_the_reducers(self):
        pods = self.pods(2)
        self.run_player("kinds", *TRAFFIC, env={"CLUSTER_SPEC": spec(*(f"{host}:{port}" for host, port in pods))})

    def test_the_log_names_the_source_and_no_query_is_sent(self):
        server = self.serve([("127.0.0.1", 1)])
        for env, text in (({"CLUSTER_SPEC": spec("r0:2222")}, "1 reducers configured by cluster-spec"),
                         (self.service(server.address, 4), "4 reducers configured by kubernetes"),
                         ({"SLUICE_SLURM_NODELIST": "cpu[1-3]"}, "3 reducers configured by slurm")):
            player = self.start_player("capabilities", "--abi", abi(), "--ranks", 1, "--verbose", env=env)
            self.assertEqual(player.wait(), 0, player.text())
            self.assertRegex(player.text(), r"net 1 collnet 1")
            self.assertEqual(player.count(text), 1, player.text())
        self.assertEqual(server.queries, 0)

    def test_an_invalid_variable_causes_one_warning_and_no_offload(self):
        for env, text in (({"CLUSTER_SPEC": "{"}, "no offload: CLUSTER_SPEC:1:2: "),
                           ({"SLUICE_SLURM_NODELIST": "a[1-999999999]"}, "no offload: SLUICE_SLURM_NODELIST: column 3: "),
                           ({"SLUICE_REDUCER_SERVICE": "reducer"}, "SLUICE_REDUCER_SERVICE is set without SLUICE_REDUCER_COUNT"),
                           ({"SLUICE_DISCOVERY": "tea"}, "SLUICE_DISCOVERY=tea: expected one of")):
            with self.subTest(text):
                player = self.start_player("capabilities", "--abi", abi(), "--ranks", 1, "--verbose", env=env)
                self.assertEqual(player.wait(), 0, player.text())
                self.assertRegex(player.text(), r"net 1 collnet 0")
                warnings = [line for line in player.lines() if "WARN" in line]
                self.assertEqual(len([line for line in warnings if text in line]), 1, player.text())
                self.assertEqual(len(warnings), 1, player.text())

    def test_discovery_can_be_disabled(self):
        player = self.start_player("capabilities", "--abi", abi(), "--ranks", 1, "--verbose", env={"CLUSTER_SPEC": "{", "SLUICE_DISCOVERY": "none"})
        self.assertEqual(player.wait(), 0, player.text())
        self.assertEqual(player.count("WARN"), 0, player.text())

    def test_pods_of_a_service(self):
        pods = self.pods(2)
        server = self.serve(pods)
        self.run_player("kinds", *TRAFFIC, env=self.service(server.address, 2))
        self.assertEqual(server.queries, 3)  # one query per rank

    def test_a_silent_name_server_disables_offload_on_all_ranks_with_one_reason(self):
        server = self.serve(None)
        reason = self.off_reason(self.run_player("connect", "--ranks", 3, "--expect", "fail", env=self.service(server.address)))
        self.assertIn("reducers after 1s", reason)

    def test_one_rank_without_reducers_disables_offload_on_all(self):
        server, silent = self.serve(self.pods(1)), self.serve(None)
        reason = self.off_reason(self.run_player("connect", "--ranks", 3, "--expect", "fail", "--rank-env", f"1:SLUICE_DNS_SERVER={silent.address}",
                                    env=self.service(server.address)))
        self.assertIn("different reducer lists", reason)
        self.assertIn("reducers after 1s", reason)

    def test_different_reducer_lists_disable_offload(self):
        server, other = self.serve([("127.0.0.1", 1)]), self.serve([("127.0.0.1", 2)])
        reason = self.off_reason(self.run_player("connect", "--ranks", 2, "--expect", "fail", "--rank-env", f"1:SLUICE_DNS_SERVER={other.address}",
                                    env=self.service(server.address)))
        self.assertIn("127.0.0.1:1", reason)
        self.assertIn("127.0.0.1:2", reason)
        self.assertIn("set SLUICE_REDUCER_COUNT to the number of reducers of SLUICE_REDUCER_SERVICE", reason)


if __name__ == "__main__":
    main()
