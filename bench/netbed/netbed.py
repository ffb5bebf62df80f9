#!/usr/bin/env python3
"""A bed of hosts that stays until it is taken down: workers w0, w1, ..., reducers r0, r1, ... and ctl, whose link has no limit, on one switch. Network
namespaces of this machine (bed.py).

    netbed.py up --workers 4 --reducers 2 --rate 200mbit
    netbed.py exec r0 sluice reducer --insecure --listen 10.99.0.5:7470
    netbed.py exec w0 iperf3 -c 10.99.0.2
    netbed.py stat
    netbed.py rate --rate 100mbit --host-rate w3=50mbit
    netbed.py down

Exit 1: what was asked for could not be done; 2: bad option."""

import argparse
import json
import os
import re
import sys
from pathlib import Path

from bed import Bed, bits, command, rate_text

STATES = Path("/run/sluice-netbed")


class Kept:
    """A Bed and the file that tells the next command what it is."""

    def __init__(self, name):
        self.name = name
        self.file = STATES / f"{name}.json"

    def up(self, bed):
        STATES.mkdir(exist_ok=True)
        try:
            # Before the first namespace, so that what a killed `up` leaves can be taken down.
            with open(self.file, "x", encoding="ascii") as file:
                file.write(self._text(bed))
        except FileExistsError:
            raise SystemExit(f"bed {self.name} is up already") from None
        try:
            bed.up()
        except BaseException:
            self.file.unlink()
            raise

    def _text(self, bed):
        return json.dumps({"hosts": bed.hosts, "rates": bed.rates, "congestion_control": bed.congestion_control, "mtu": bed.mtu, "mark": bed.mark})

    def bed(self):
        try:
            state = json.loads(self.file.read_text(encoding="ascii"))
        except FileNotFoundError:
            raise SystemExit(f"no bed {self.name} is up") from None
        return Bed(state["hosts"], state["rates"].get, state["congestion_control"], state["mtu"], prefix_of(self.name), state["mark"])

    def own_bed(self):
        """For commands that use it: all of it must still be what `up` made."""
        bed = self.bed()
        for name in bed.namespaces():
            if not bed.is_own(name):
                raise SystemExit(f"bed {self.name}: namespace {name} is {'not its own' if bed.is_there(name) else 'gone'}")
        return bed

    def save(self, bed):
        self.file.write_text(self._text(bed), encoding="ascii")


def prefix_of(name):
    return f"sluice-{name}"


def check_host(bed, host):
    if host not in bed.hosts:
        raise SystemExit(f"no host {host}; there are: {' '.join(bed.hosts)}")


def up(arguments):
    workers = [f"w{i}" for i in range(arguments.workers)]
    reducers = [f"r{i}" for i in range(arguments.reducers)]
    rates = {host: arguments.rate for host in workers}
    as_wide = rate_text(bits(arguments.rate) * len(workers) / max(1, len(reducers)))
    rates.update({host: arguments.reducer_rate or as_wide for host in reducers})
    rates["ctl"] = "0"
    for host, rate in arguments.host_rate:
        if host not in rates:
            raise SystemExit(f"--host-rate {host}={rate}: the hosts are {' '.join(rates)}")
        rates[host] = rate
    bed = Bed(rates, rates.get, arguments.congestion, arguments.mtu, prefix_of(arguments.name))
    Kept(arguments.name).up(bed)
    print(f"bed {arguments.name}: {arguments.congestion}, MTU {arguments.mtu}")
    for host in bed.hosts:
        print(f"{host:6} {bed.address(host):12} {bed.rates[host] if bed.rates[host] != '0' else 'no limit'}")


def exec_at(arguments):
    bed = Kept(arguments.name).own_bed()
    check_host(bed, arguments.host)
    words = bed.words(arguments.host, arguments.command)
    os.execvp(words[0], words)


def stat(arguments):
    bed = Kept(arguments.name).own_bed()
    print("host   end             rate          sent bytes      drops  overlimits")
    for row in bed.stat():
        print(f"{row['host']:6} {row['end']:6} {row['rate']:>13} {row['sent_bytes']:19} {row['drops']:10} {row['overlimits']:11}")


def rate(arguments):
    kept = Kept(arguments.name)
    bed = kept.own_bed()
    wanted = {host: arguments.rate for host in bed.hosts if host[0] == "w"} if arguments.rate else {}
    wanted.update({host: arguments.reducer_rate for host in bed.hosts if host[0] == "r"} if arguments.reducer_rate else {})
    wanted.update(arguments.host_rate)
    for host, to in wanted.items():
        check_host(bed, host)
        bed.set_rate(host, to)
    kept.save(bed)


def down(arguments):
    kept = Kept(arguments.name)
    bed = kept.bed()
    for name in bed.namespaces():
        left = command("ip", "netns", "pids", name, check=False).stdout.split()
        if left and bed.is_own(name):
            print(f"{name}: processes {' '.join(left)} still run there; its link stays until they end", file=sys.stderr)
    strange = bed.down()
    kept.file.unlink()
    if strange:
        raise SystemExit(f"left alone, because bed {arguments.name} did not make it: {' '.join(strange)}")


def name_of_bed(text):
    if not re.fullmatch(r"[a-z][a-z0-9]{0,15}", text):
        raise argparse.ArgumentTypeError("up to 16 small letters and digits, a letter first")
    return text


def rate_of_link(text):
    try:
        bits(text)
    except SystemExit as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def rate_of_host(text):
    host, equals, to = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError("HOST=RATE, as in w3=50mbit")
    return host, rate_of_link(to)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="up | exec | stat | rate | down")

    def add(name, run, what):
        sub = commands.add_parser(name, help=what, description=what)
        sub.add_argument("--name", type=name_of_bed, default="bed", help="of the bed, where there are several (default: bed)")
        sub.set_defaults(run=run)
        return sub

    def add_rates(sub, default):
        sub.add_argument("--rate", type=rate_of_link, default=default,
                         help=f"of each worker's link, each way: 200mbit, 1gbit; 0: no limit (default: {default or 'as it is'})")
        sub.add_argument("--reducer-rate", type=rate_of_link, help="of each reducer's link (default: " +
                         ("so that the pool is as wide as the workers)" if default else "as it is)"))
        sub.add_argument("--host-rate", type=rate_of_host, action="append", default=[], metavar="HOST=RATE", help="of one host's link; as often as wanted")

    sub = add("up", up, "make a bed")
    sub.add_argument("--workers", type=int, default=4)
    sub.add_argument("--reducers", type=int, default=1)
    add_rates(sub, "200mbit")
    sub.add_argument("--congestion", default="cubic", help="TCP's congestion control at every host (default: cubic)")
    sub.add_argument("--mtu", type=int, default=1500)
    sub = add("exec", exec_at, "run a command at a host")
    sub.add_argument("host")
    sub.add_argument("command", nargs=argparse.REMAINDER)
    add("stat", stat, "bytes sent, drops and overlimits at both ends of each link")
    add_rates(add("rate", rate, "change the limits of links"), None)
    add("down", down, "take the bed down")
    arguments = parser.parse_args()
    if arguments.run is exec_at and not arguments.command:
        parser.error("exec: no command")
    if os.geteuid() != 0:
        raise SystemExit("netbed.py: network namespaces need root")
    arguments.run(arguments)


if __name__ == "__main__":
    main()
