"""Hosts on a switch, as network namespaces of this machine: each with a link of a given rate in both directions. Needs ip, tc, sysctl, nsenter and
unshare, and the rights of root in its user namespace; why_none() says what is missing. Namespaces are entered with nsenter, because `ip netns exec` and
`ip -n` fail in a chroot, whose / is no mount point.

    with Bed(["w0", "w1", "r0"], "1gbit") as bed:
        bed.run("w0", ["ping", "-c1", bed.address("w1")])

Names and the switch are this process's own, and go with the Bed; netbed.py keeps one from command to command. Nothing of the machine's own network takes
part. Loopback is this machine alone with the same face."""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import subprocess
from pathlib import Path

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
LOCK = Path("/run/lock/sluice-netbed")
NAMESPACES = Path("/run/netns")
PROGRAMS = ("ip", "tc", "sysctl", "nsenter", "unshare")
UNITS = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3, "bit": 1}


def command(*words, check=True):
    return subprocess.run([str(w) for w in words], check=check, capture_output=True, text=True)


def inside(namespace, *words):
    """The command that runs `words` in the network namespace."""
    return ["nsenter", f"--net={NAMESPACES / namespace}", *words]


def root_is_mount_point():
    """False in a chroot into a plain folder: there the propagation of / can't be changed."""
    return any(line.split()[4] == "/" for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines())


def own_mounts(words):
    """The command that runs `words` in a mount namespace of its own, whose /sys shows the devices of its network namespace."""
    if root_is_mount_point():
        propagation, sysfs = "slave", "mount -t sysfs sysfs /sys"
    else:
        propagation, sysfs = "unchanged", "mount --make-rprivate /sys && mount -t sysfs sysfs /sys"
    return ["unshare", "--mount", "--propagation", propagation, "sh", "-c", f'{{ {sysfs}; }} 2>/dev/null; exec "$@"', "sh", *words]


def why_none():
    """None where this process can make a Bed, else the reason."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        with Bed(["probe"], "1gbit"):
            return None
    except SystemExit as error:
        return str(error)


def bits(rate):
    """Per second, of a rate in tc's words; 0 for no limit."""
    for unit, factor in UNITS.items():
        with contextlib.suppress(ValueError):
            if rate.endswith(unit) and float(rate[: -len(unit)]) > 0:
                return float(rate[: -len(unit)]) * factor
    if rate == "0":
        return 0
    raise SystemExit(f"rate {rate}: a number and one of {', '.join(UNITS)}; 0 for no limit")


def rate_text(per_second):
    return f"{per_second / 1e6:.6g}mbit" if per_second else "0"


@contextlib.contextmanager
def allowed(algorithm):
    """Lets namespaces choose this congestion control meanwhile: the machine's list of what is allowed holds for them too. What they have chosen they keep."""
    try:
        lock = open(LOCK, "w", encoding="ascii")
    except OSError as error:
        raise SystemExit(f"the bed does not come up: {LOCK}: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = ALLOWED.read_text(encoding="ascii").split()
        if algorithm in before:
            yield
            return
        try:
            ALLOWED.write_text(" ".join([*before, algorithm]), encoding="ascii")
        except OSError as error:
            raise SystemExit(f"the bed does not come up: congestion control {algorithm} is not among {ALLOWED.name} ({' '.join(before)}), and can't be added "
                             f"there: {error.strerror}; it may take `modprobe tcp_{algorithm}`, or root of the machine itself") from error
        try:
            yield
        finally:
            ALLOWED.write_text(" ".join(before), encoding="ascii")


class Hosts:
    """What a Bed and a Loopback have in common: processes at a host. `interface` is each host's, `network` what their addresses are from."""

    def words(self, host, words):
        raise NotImplementedError

    def start(self, host, words, **how):
        return subprocess.Popen(self.words(host, words), **how)

    def run(self, host, words, **how):
        return subprocess.run(self.words(host, words), check=True, capture_output=True, text=True, **how)


class Bed(Hosts):
    BURST_BYTES = 128 * 1024  # of the limiter: 1 ms at 1 Gb/s
    BURST_US = 250  # at least: what a limiter's timer may be late
    QUEUE_MS = 10
    QUEUE_BYTES = 256 * 1024  # at least: a port's buffer does not shrink with its rate

    interface = "eth0"
    network = "10.99.0.0/24"

    def __init__(self, hosts, rate, congestion_control="cubic", mtu=1500, prefix=None, mark=None):
        """`rate` in tc's words, "0" for no limit; or a function of the host's name. `prefix` of the namespaces' names; `mark`: how those of this Bed are known
        from others of such a name."""
        self.hosts = list(hosts)
        if len(set(self.hosts)) != len(self.hosts) or len(self.hosts) > 254:
            raise SystemExit("a bed has at most 254 hosts, each with a name of its own")
        self.rates = {host: rate(host) if callable(rate) else rate for host in self.hosts}
        for host in self.hosts:
            bits(self.rates[host])
        self.congestion_control = congestion_control
        self.mtu = mtu
        self.prefix = prefix or f"sluice{os.getpid()}"
        self.mark = mark or f"sluice bed {secrets.token_hex(16)}"
        self.switch = f"{self.prefix}-switch"

    def namespace(self, host):
        return f"{self.prefix}-{host}"

    def address(self, host):
        return f"10.99.0.{1 + self.hosts.index(host)}"

    def namespaces(self):
        return [self.namespace(host) for host in self.hosts] + [self.switch]

    def is_there(self, name):
        return (NAMESPACES / name).exists()

    def is_own(self, name):
        """Whether this Bed made the namespace. Its inode would not tell: numbers of ended ones come back."""
        shown = command(*inside(name, "ip"), "-j", "link", "show", "dev", "lo", check=False)
        return shown.returncode == 0 and json.loads(shown.stdout)[0].get("ifalias") == self.mark

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        try:
            with allowed(self.congestion_control):
                self._add_namespace(self.switch)
                command(*inside(self.switch, "ip"), "link", "add", "br0", "mtu", self.mtu, "type", "bridge", "stp_state", "0", "forward_delay", "0")
                command(*inside(self.switch, "ip"), "link", "set", "br0", "up")
                for host in self.hosts:
                    self._add(host)
        except subprocess.CalledProcessError as error:
            self.down()
            raise SystemExit(f"the bed does not come up: {' '.join(error.cmd)}: {error.stderr.strip()}") from error
        except BaseException:
            self.down()
            raise

    def _add_namespace(self, name):
        command("ip", "netns", "add", name)
        command(*inside(name, "ip"), "link", "set", "lo", "alias", self.mark)

    def _port(self, host):
        return f"p{self.hosts.index(host)}"

    def _add(self, host):
        name, port = self.namespace(host), self._port(host)
        self._add_namespace(name)
        command(*inside(name, "ip"), "link", "add", "eth0", "mtu", self.mtu, "type", "veth", "peer", "name", port, "mtu", self.mtu, "netns", self.switch)
        command(*inside(self.switch, "ip"), "link", "set", port, "master", "br0", "up")
        command(*inside(name, "ip"), "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        command(*inside(name, "ip"), "link", "set", "lo", "up")
        command(*inside(name, "ip"), "link", "set", "eth0", "up")
        command(*inside(name, "sysctl"), "-qw", f"net.ipv4.tcp_congestion_control={self.congestion_control}")
        # Not every sysctl says by its exit code that nothing was written.
        chosen = command(*inside(name, "sysctl"), "-n", "net.ipv4.tcp_congestion_control").stdout.strip()
        if chosen != self.congestion_control:
            raise SystemExit(f"the bed does not come up: {name} has congestion control {chosen}, not {self.congestion_control}")
        if self.rates[host] != "0":
            self.set_rate(host, self.rates[host])

    def set_rate(self, host, rate):
        """Limits the host's link, both ways; "0" for no limit."""
        wide = bits(rate)
        burst = max(self.BURST_BYTES, int(wide / 8e6 * self.BURST_US))
        queue = max(self.QUEUE_BYTES, int(wide / 8e3 * self.QUEUE_MS))
        for where, device in self._ends(host).values():
            if wide:
                command(*inside(where, "tc"), "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{int(wide)}bit", "burst", burst, "limit", burst + queue)
            elif self.rates[host] != "0":
                command(*inside(where, "tc"), "qdisc", "del", "dev", device, "root")
        self.rates[host] = rate

    def _ends(self, host):
        return {"host": (self.namespace(host), "eth0"), "switch": (self.switch, self._port(host))}

    def stat(self):
        """Of both ends of each link since it was made: what the host has sent, and what the switch has sent to it. Drops and overlimits are the limiter's, since
        it was set."""
        rows = []
        for host in self.hosts:
            for end, (where, device) in self._ends(host).items():
                link = json.loads(command(*inside(where, "ip"), "-s", "-j", "link", "show", "dev", device).stdout)[0]["stats64"]["tx"]
                limiter = json.loads(command(*inside(where, "tc"), "-s", "-j", "qdisc", "show", "dev", device).stdout)[0]
                rows.append({"host": host, "end": end, "rate": self.rates[host], "sent_bytes": link["bytes"], "drops": link["dropped"] + limiter["drops"],
                             "overlimits": limiter["overlimits"]})
        return rows

    def sent_bytes(self):
        """Of all hosts so far, over their links."""
        return sum(json.loads(command(*inside(self.namespace(host), "ip"), "-s", "-j", "link", "show", "dev", "eth0").stdout)[0]["stats64"]["tx"]["bytes"]
                   for host in self.hosts)

    def down(self):
        """Returns the namespaces of its names that are not its own, which it leaves alone."""
        strange = []
        for name in self.namespaces():
            if self.is_there(name):
                if self.is_own(name):
                    command("ip", "netns", "del", name)
                else:
                    strange.append(name)
        return strange

    def words(self, host, words):
        return inside(self.namespace(host), *own_mounts(map(str, words)))


class Loopback(Hosts):
    """Every host is this machine, as 127.0.0.1; no link is limited. `apart`, which takes root: over a loopback of its own, where nobody else's bytes count."""

    interface = "lo"
    network = "127.0.0.0/8"

    def __init__(self, apart, congestion_control="cubic"):
        """`congestion_control` of a loopback apart; otherwise it is what the machine has."""
        self.bed = Bed(["all"], "0", congestion_control) if apart else None

    def __enter__(self):
        if self.bed:
            self.bed.up()
        return self

    def __exit__(self, *_):
        if self.bed:
            self.bed.down()

    def address(self, _host):
        return "127.0.0.1"

    def words(self, _host, words):
        return self.bed.words("all", words) if self.bed else [str(w) for w in words]

    def sent_bytes(self):
        """Over the loopback so far."""
        lines = self.run("", ["cat", "/proc/net/dev"]).stdout.splitlines()
        return int(next(line for line in lines if line.strip().startswith("lo:")).split(":")[1].split()[8])
