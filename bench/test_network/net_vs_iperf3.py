"""Compares the plugin's point-to-point transport with iperf3 and with plain sockets over a rate-limited link.

All three use the same number of connections and take turns.

usage: net_vs_iperf3.py --net-bench FILE [--rate 1gbit] [--streams 4] [--rounds 3]

Exit code 2: the plugin reaches less than --least of the bandwidth of iperf3."""

import argparse
import json
import statistics
import subprocess
import sys
import time

from test_network import TestNetwork

SECONDS = 3


def iperf3(network, streams):
    """Returns the bandwidth of one run in GB/s."""
    with network.start("b", ["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL) as server:
        for _ in range(100):  # until the server listens
            if "5201" in network.run("b", ["ss", "-Hltn"]).stdout:
                break
            time.sleep(0.05)
        done = network.run("a", ["iperf3", "-J", "-c", network.address("b"), "-t", SECONDS, "-P", streams, "-O", 1])
        server.wait(30)
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8e9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--net-bench", required=True)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=256, help="data that one run of net_bench transfers")
    parser.add_argument("--least", type=float, default=0.95, help="minimum ratio to iperf3")
    arguments = parser.parse_args()
    rates = {"iperf3": [], "plain": [], "net": []}
    with TestNetwork(["a", "b"], arguments.rate) as network:
        for _ in range(arguments.rounds):
            rates["iperf3"].append(iperf3(network, arguments.streams))
            command = [arguments.net_bench, arguments.megabytes, 1, "--message", 1024, "--streams", arguments.streams, "--sender",
                       network.namespace("a"), network.address("a"), "--receiver", network.namespace("b"), network.address("b")]
            done = subprocess.run([str(w) for w in command], check=True, capture_output=True, text=True)
            fields = done.stdout.strip().splitlines()[-1].split()
            rates["plain"].append(float(fields[3]))
            rates["net"].append(float(fields[4]))
    for name, values in rates.items():
        print(f"{name:7} {statistics.median(values):.4f} GB/s  {' '.join(f'{v:.4f}' for v in values)}")
    ratio = statistics.median(rates["net"]) / statistics.median(rates["iperf3"])
    print(f"net / iperf3 {ratio:.3f} at {arguments.rate}, {arguments.streams} connections")
    sys.exit(0 if ratio >= arguments.least else 2)


if __name__ == "__main__":
    main()
