"""A network testbed on one machine: hosts on a switch, each with a rate-limited link, built from network namespaces.

    with TestNetwork(["w0", "w1", "r0"], "1gbit") as network:
        network.run("w0", ["ping", "-c1", network.address("w1")])

Needs ip, tc, sysctl, nsenter and unshare, and root in the user namespace. unavailable_reason() names what is missing.
The code enters namespaces with nsenter: `ip netns exec` and `ip -n` fail in a chroot, where / is not a mount point.

A TestNetwork uses namespace names of this process and removes the namespaces on exit. manage.py keeps a network between
commands. The machine's own network is not touched. Loopback offers the same interface on this machine without namespaces."""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import subprocess
from pathlib import Path

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
LOCK = Path("/run/lock/sluice-test-network")
NAMESPACES = Path("/run/netns")
PROGRAMS = ("ip", "tc", "sysctl", "nsenter", "unshare")
GOODPUT = 1448 / 1514  # share of the link rate that is payload: TCP segments with timestamps in Ethernet frames of 1514 bytes
UNITS = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3, "bit": 1}


def run_command(*command, check=True):
    return subprocess.run([str(w) for w in command], check=check, capture_output=True, text=True)


def in_namespace(namespace, *command):
    """Returns the command that runs `command` in the network namespace."""
    return ["nsenter", f"--net={NAMESPACES / namespace}", *command]


def sent_counters(namespace, device):
    """Returns the counters of the packets that the device has sent."""
    return json.loads(run_command(*in_namespace(namespace, "ip"), "-s", "-j", "link", "show", "dev", device).stdout)[0]["stats64"]["tx"]


def root_is_mount_point():
    """False in a chroot into an ordinary folder, where mount propagation of / cannot be changed."""
    return any(line.split()[4] == "/" for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines())


def with_private_sysfs(command):
    """Returns the command that runs `command` in a new mount namespace whose /sys shows the devices of the network namespace."""
    if root_is_mount_point():
        propagation, sysfs = "slave", "mount -t sysfs sysfs /sys"
    else:
        propagation, sysfs = "unchanged", "mount --make-rprivate /sys && mount -t sysfs sysfs /sys"
    return ["unshare", "--mount", "--propagation", propagation, "sh", "-c", f'{{ {sysfs}; }} 2>/dev/null; exec "$@"', "sh", *command]


def unavailable_reason():
    """Returns None where this process can create a TestNetwork, else the reason."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        with TestNetwork(["probe"], "1gbit"):
            return None
    except SystemExit as error:
        return str(error)


def bits_per_second(rate):
    """Parses a rate in tc's notation; 0 means no limit."""
    for unit, factor in UNITS.items():
        with contextlib.suppress(ValueError):
            if rate.endswith(unit) and float(rate[: -len(unit)]) > 0:
                return float(rate[: -len(unit)]) * factor
    if rate == "0":
        return 0
    raise SystemExit(f"rate {rate}: expected a positive number with a unit ({', '.join(UNITS)}), or 0 for no limit")


def rate_text(per_second):
    return f"{per_second / 1e6:.6g}mbit" if per_second else "0"


def ideal_seconds(size, worker_rate, reducer_rate, workers, reducers):
    """Returns the time to send and receive `size` bytes at once, at the goodput of the narrower side: a worker's link or its
    share of the pool's links."""
    share = reducers * reducer_rate / workers
    return size * 8 / (GOODPUT * min(worker_rate, share))


def ring_seconds(size, worker_rate, workers):
    """Returns the minimum time of a ring, 2 (n - 1) / n x S in each direction. Patarasuk and Yuan, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations", 2009."""
    return 2 * (workers - 1) / workers * size * 8 / (GOODPUT * worker_rate)


@contextlib.contextmanager
def congestion_control_allowed(algorithm):
    """Allows namespaces to select this congestion control while the context is active. The machine-wide list of allowed
    algorithms also applies inside namespaces. A namespace keeps its selection afterwards."""
    try:
        lock = open(LOCK, "w", encoding="ascii")
    except OSError as error:
        raise SystemExit(f"cannot create the test network: {LOCK}: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = ALLOWED.read_text(encoding="ascii").split()
        if algorithm in before:
            yield
            return
        try:
            ALLOWED.write_text(" ".join([*before, algorithm]), encoding="ascii")
        except OSError as error:
            raise SystemExit(f"cannot create the test network: congestion control {algorithm} is not in {ALLOWED.name} ({' '.join(before)}) and cannot be "
                             f"added: {error.strerror}; run `modprobe tcp_{algorithm}`, or run as root of the machine") from error
        try:
            yield
        finally:
            ALLOWED.write_text(" ".join(before), encoding="ascii")


class Hosts:
    """Base class that starts processes at a host. Subclasses define `interface`, the network interface of every host, and
    `network`, the subnet of their addresses."""

    def command_at(self, host, command):
        """Returns the command that runs `command` at the host."""
        raise NotImplementedError

    def start(self, host, command, **popen_options):
        return subprocess.Popen(self.command_at(host, command), **popen_options)

    def run(self, host, command, **run_options):
        return subprocess.run(self.command_at(host, command), check=True, capture_output=True, text=True, **run_options)


class TestNetwork(Hosts):
    """Network namespaces, one per host, connected by veth pairs to a bridge in a further namespace."""

    BURST_BYTES = 128 * 1024  # minimum token bucket of a limiter: 1 ms at 1 Gb/s
    BURST_US = 250  # minimum token bucket as time: covers the delay of the limiter's timer
    QUEUE_MS = 10
    QUEUE_BYTES = 256 * 1024  # minimum queue: the buffer of a switch port does not shrink with its rate

    interface = "eth0"
    network = "10.99.0.0/24"

    def __init__(self, hosts, rate, congestion_control="cubic", mtu=1500, prefix=None, mark=None):
        """`rate`: a rate in tc's notation, "0" for no limit, or a function that maps a host name to a rate. `prefix`: of the
        namespace names. `mark`: identifies the namespaces of this network; another process may use the same names."""
        self.hosts = list(hosts)
        if len(set(self.hosts)) != len(self.hosts) or len(self.hosts) > 254:
            raise SystemExit("a test network has at most 254 hosts, and host names are unique")
        self.rates = {host: rate(host) if callable(rate) else rate for host in self.hosts}
        for host in self.hosts:
            bits_per_second(self.rates[host])
        self.congestion_control = congestion_control
        self.mtu = mtu
        self.prefix = prefix or f"sluice{os.getpid()}"
        self.mark = mark or f"sluice test network {secrets.token_hex(16)}"
        self.switch = f"{self.prefix}-switch"

    def namespace(self, host):
        return f"{self.prefix}-{host}"

    def address(self, host):
        return f"10.99.0.{1 + self.hosts.index(host)}"

    def namespaces(self):
        return [self.namespace(host) for host in self.hosts] + [self.switch]

    def namespace_exists(self, name):
        return (NAMESPACES / name).exists()

    def owns_namespace(self, name):
        """True when this network created the namespace. The inode is no proof: the kernel reuses inode numbers."""
        shown = run_command(*in_namespace(name, "ip"), "-j", "link", "show", "dev", "lo", check=False)
        return shown.returncode == 0 and json.loads(shown.stdout)[0].get("ifalias") == self.mark

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        try:
            with congestion_control_allowed(self.congestion_control):
                self._add_namespace(self.switch)
                run_command(*in_namespace(self.switch, "ip"), "link", "add", "br0", "mtu", self.mtu, "type", "bridge", "stp_state", "0", "forward_delay", "0")
                run_command(*in_namespace(self.switch, "ip"), "link", "set", "br0", "up")
                for host in self.hosts:
                    self._add(host)
        except subprocess.CalledProcessError as error:
            self.down()
            raise SystemExit(f"cannot create the test network: {' '.join(error.cmd)}: {error.stderr.strip()}") from error
        except BaseException:
            self.down()
            raise

    def _add_namespace(self, name):
        run_command("ip", "netns", "add", name)
        run_command(*in_namespace(name, "ip"), "link", "set", "lo", "alias", self.mark)

    def _port(self, host):
        return f"p{self.hosts.index(host)}"

    def _add(self, host):
        name, port = self.namespace(host), self._port(host)
        self._add_namespace(name)
        run_command(*in_namespace(name, "ip"), "link", "add", "eth0", "mtu", self.mtu, "type", "veth", "peer", "name", port, "mtu", self.mtu, "netns", self.switch)
        run_command(*in_namespace(self.switch, "ip"), "link", "set", port, "master", "br0", "up")
        run_command(*in_namespace(name, "ip"), "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        run_command(*in_namespace(name, "ip"), "link", "set", "lo", "up")
        run_command(*in_namespace(name, "ip"), "link", "set", "eth0", "up")
        run_command(*in_namespace(name, "sysctl"), "-qw", f"net.ipv4.tcp_congestion_control={self.congestion_control}")
        # Some versions of sysctl exit with 0 although the write failed.
        chosen = run_command(*in_namespace(name, "sysctl"), "-n", "net.ipv4.tcp_congestion_control").stdout.strip()
        if chosen != self.congestion_control:
            raise SystemExit(f"cannot create the test network: {name} has congestion control {chosen}, expected {self.congestion_control}")
        if self.rates[host] != "0":
            self.set_rate(host, self.rates[host])

    def set_rate(self, host, rate):
        """Limits the host's link in both directions; "0" removes the limit."""
        limit = bits_per_second(rate)
        burst = max(self.BURST_BYTES, int(limit / 8e6 * self.BURST_US))
        queue = max(self.QUEUE_BYTES, int(limit / 8e3 * self.QUEUE_MS))
        for namespace, device in self._link_ends(host).values():
            if limit:
                run_command(*in_namespace(namespace, "tc"), "qdisc", "replace", "dev", device, "root", "tbf",
                            "rate", f"{int(limit)}bit", "burst", burst, "limit", burst + queue)
            elif self.rates[host] != "0":
                run_command(*in_namespace(namespace, "tc"), "qdisc", "del", "dev", device, "root")
        self.rates[host] = rate

    def _link_ends(self, host):
        return {"host": (self.namespace(host), "eth0"), "switch": (self.switch, self._port(host))}

    def stat(self):
        """Returns the counters of both ends of each link: bytes sent by the host and bytes sent to the host by the switch.
        Drops and overlimits count since the limiter was set."""
        rows = []
        for host in self.hosts:
            for end, (namespace, device) in self._link_ends(host).items():
                link = sent_counters(namespace, device)
                limiter = json.loads(run_command(*in_namespace(namespace, "tc"), "-s", "-j", "qdisc", "show", "dev", device).stdout)[0]
                rows.append({"host": host, "end": end, "rate": self.rates[host], "sent_bytes": link["bytes"], "drops": link["dropped"] + limiter["drops"],
                             "overlimits": limiter["overlimits"]})
        return rows

    def sent_bytes(self, hosts=None):
        """Bytes that the hosts, by default all of them, have sent over their links so far."""
        return sum(sent_counters(self.namespace(host), "eth0")["bytes"] for host in hosts or self.hosts)

    def down(self):
        """Removes the namespaces. Returns the names of namespaces that another process created, which stay untouched."""
        foreign = []
        for name in self.namespaces():
            if self.namespace_exists(name):
                if self.owns_namespace(name):
                    run_command("ip", "netns", "del", name)
                else:
                    foreign.append(name)
        return foreign

    def command_at(self, host, command):
        return in_namespace(self.namespace(host), *with_private_sysfs(map(str, command)))


class Loopback(Hosts):
    """All hosts are this machine at 127.0.0.1, and no link is limited. `private` (needs root): uses the loopback interface of
    a new network namespace, so that the byte counter sees no traffic of other processes."""

    interface = "lo"
    network = "127.0.0.0/8"

    def __init__(self, private, congestion_control="cubic"):
        """`congestion_control`: of a private loopback; otherwise the machine's setting applies."""
        self.private_network = TestNetwork(["all"], "0", congestion_control) if private else None

    def __enter__(self):
        if self.private_network:
            self.private_network.up()
        return self

    def __exit__(self, *_):
        if self.private_network:
            self.private_network.down()

    def address(self, _host):
        return "127.0.0.1"

    def command_at(self, _host, command):
        return self.private_network.command_at("all", command) if self.private_network else [str(w) for w in command]

    def sent_bytes(self):
        """Bytes sent over the loopback interface so far."""
        lines = self.run("", ["cat", "/proc/net/dev"]).stdout.splitlines()
        return int(next(line for line in lines if line.strip().startswith("lo:")).split(":")[1].split()[8])
