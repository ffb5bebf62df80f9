#!/usr/bin/env python3
"""Creates a test network (test_network.py) that exists until `down` removes it.

The hosts are workers w0, w1, ..., reducers r0, r1, ... and ctl, whose link has no limit. All are on one switch.

    manage.py up --workers 4 --reducers 2 --rate 200mbit
    manage.py exec r0 sluice reducer --insecure --listen 10.99.0.5:7470
    manage.py exec w0 iperf3 -c 10.99.0.2
    manage.py stat
    manage.py rate --rate 100mbit --host-rate w3=50mbit
    manage.py down

Exit codes: 1 when the command failed, 2 for a bad option."""

import argparse
import json
import os
import re
import sys
from pathlib import Path

from test_network import TestNetwork, bits_per_second, rate_text, run_command

STATE_FOLDER = Path("/run/sluice-test-network")


class StateFile:
    """Stores a TestNetwork in a file, so that the next command finds it."""

    def __init__(self, name):
        self.name = name
        self.file = STATE_FOLDER / f"{name}.json"

    def up(self, network):
        STATE_FOLDER.mkdir(exist_ok=True)
        try:
            # The file precedes the first namespace, so that `down` can clean up after an interrupted `up`.
            with open(self.file, "x", encoding="ascii") as file:
                file.write(self._text(network))
        except FileExistsError:
            raise SystemExit(f"test network {self.name} is already up") from None
        try:
            network.up()
        except BaseException:
            self.file.unlink()
            raise

    def _text(self, network):
        return json.dumps({"hosts": network.hosts, "rates": network.rates, "congestion_control": network.congestion_control, "mtu": network.mtu,
                           "mark": network.mark})

    def load(self):
        try:
            state = json.loads(self.file.read_text(encoding="ascii"))
        except FileNotFoundError:
            raise SystemExit(f"test network {self.name} is not up") from None
        return TestNetwork(state["hosts"], state["rates"].get, state["congestion_control"], state["mtu"], prefix_of(self.name), state["mark"])

    def load_intact(self):
        """Loads the network and checks that each namespace is still the one that `up` created."""
        network = self.load()
        for name in network.namespaces():
            if not network.owns_namespace(name):
                reason = "was created by another process" if network.namespace_exists(name) else "no longer exists"
                raise SystemExit(f"test network {self.name}: namespace {name} {reason}; run `manage.py down`")
        return network

    def save(self, network):
        self.file.write_text(self._text(network), encoding="ascii")


def prefix_of(name):
    return f"sluice-{name}"


def check_host(network, host):
    if host not in network.hosts:
        raise SystemExit(f"no host {host}; the hosts are: {' '.join(network.hosts)}")


def up(arguments):
    workers = [f"w{i}" for i in range(arguments.workers)]
    reducers = [f"r{i}" for i in range(arguments.reducers)]
    rates = {host: arguments.rate for host in workers}
    matching_rate = rate_text(bits_per_second(arguments.rate) * len(workers) / max(1, len(reducers)))
    rates.update({host: arguments.reducer_rate or matching_rate for host in reducers})
    rates["ctl"] = "0"
    for host, rate in arguments.host_rate:
        if host not in rates:
            raise SystemExit(f"--host-rate {host}={rate}: no host {host}; the hosts are: {' '.join(rates)}")
        rates[host] = rate
    network = TestNetwork(rates, rates.get, arguments.congestion, arguments.mtu, prefix_of(arguments.name))
    StateFile(arguments.name).up(network)
    print(f"test network {arguments.name}: {arguments.congestion}, MTU {arguments.mtu}")
    for host in network.hosts:
        print(f"{host:6} {network.address(host):12} {network.rates[host] if network.rates[host] != '0' else 'no limit'}")


def exec_at(arguments):
    network = StateFile(arguments.name).load_intact()
    check_host(network, arguments.host)
    command = network.command_at(arguments.host, arguments.command)
    os.execvp(command[0], command)


def stat(arguments):
    network = StateFile(arguments.name).load_intact()
    print("host   end             rate          sent bytes      drops  overlimits")
    for row in network.stat():
        print(f"{row['host']:6} {row['end']:6} {row['rate']:>13} {row['sent_bytes']:19} {row['drops']:10} {row['overlimits']:11}")


def rate(arguments):
    state = StateFile(arguments.name)
    network = state.load_intact()
    rates = {host: arguments.rate for host in network.hosts if host[0] == "w"} if arguments.rate else {}
    rates.update({host: arguments.reducer_rate for host in network.hosts if host[0] == "r"} if arguments.reducer_rate else {})
    rates.update(arguments.host_rate)
    for host, new_rate in rates.items():
        check_host(network, host)
        network.set_rate(host, new_rate)
    state.save(network)


def down(arguments):
    state = StateFile(arguments.name)
    network = state.load()
    for name in network.namespaces():
        running = run_command("ip", "netns", "pids", name, check=False).stdout.split()
        if running and network.owns_namespace(name):
            print(f"{name}: processes {' '.join(running)} are still running; the link exists until they exit", file=sys.stderr)
    foreign = network.down()
    state.file.unlink()
    if foreign:
        raise SystemExit(f"test network {arguments.name}: kept namespaces that another process created: {' '.join(foreign)}")


def parse_name(text):
    if not re.fullmatch(r"[a-z][a-z0-9]{0,15}", text):
        raise argparse.ArgumentTypeError("expected up to 16 lower-case letters and digits, starting with a letter")
    return text


def parse_rate(text):
    try:
        bits_per_second(text)
    except SystemExit as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def parse_host_rate(text):
    host, equals, rate_of_host = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: expected HOST=RATE, for example w3=50mbit")
    return host, parse_rate(rate_of_host)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="up | exec | stat | rate | down")

    def add(name, run, description):
        sub = commands.add_parser(name, help=description, description=description)
        sub.add_argument("--name", type=parse_name, default="default", help="name of the test network, for several at a time (default: default)")
        sub.set_defaults(run=run)
        return sub

    def add_rates(sub, default):
        sub.add_argument("--rate", type=parse_rate, default=default,
                         help=f"rate of each worker's link in each direction: 200mbit, 1gbit; 0: no limit (default: {default or 'unchanged'})")
        sub.add_argument("--reducer-rate", type=parse_rate, help="rate of each reducer's link (default: " +
                         ("the pool has the bandwidth of all workers)" if default else "unchanged)"))
        sub.add_argument("--host-rate", type=parse_host_rate, action="append", default=[], metavar="HOST=RATE", help="rate of one host's link; repeatable")

    sub = add("up", up, "create a test network")
    sub.add_argument("--workers", type=int, default=4)
    sub.add_argument("--reducers", type=int, default=1)
    add_rates(sub, "200mbit")
    sub.add_argument("--congestion", default="cubic", help="TCP congestion control of every host (default: cubic)")
    sub.add_argument("--mtu", type=int, default=1500)
    sub = add("exec", exec_at, "run a command at a host")
    sub.add_argument("host")
    sub.add_argument("command", nargs=argparse.REMAINDER)
    add("stat", stat, "print bytes sent, drops and overlimits at both ends of each link")
    add_rates(add("rate", rate, "change link rates"), None)
    add("down", down, "remove the test network")
    arguments = parser.parse_args()
    if arguments.run is exec_at and not arguments.command:
        parser.error("exec: expected a command")
    if os.geteuid() != 0:
        raise SystemExit("manage.py: network namespaces need root; run as root")
    arguments.run(arguments)


if __name__ == "__main__":
    main()
