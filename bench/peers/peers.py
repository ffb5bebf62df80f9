"""Defines the programs that measure collectives: drivers of Sluice and of other libraries in several settings, and `sluice`.

Each program has three methods:

    measure(hosts, ranks, sizes, iterations, warmup, folder)      returns a RESULT for each size
    replay(hosts, ranks, trace, iterations, warmup, folder)       returns a RESULT for a trace of `sluice bench replay --print-trace`
    unavailable_reason(hosts)                                     returns why the program cannot run here, or None

Rank i runs at host w<i> of a TestNetwork or a Loopback (bench/test_network), or with several ranks per host L at w<i // L>. Sluice's
reducers run at r0, r1, ..., and mpirun runs at ctl of a TestNetwork. All programs are configured for TCP between hosts. The bytes on
the links are compared with the minimum of the collective: fewer bytes are an error, because part of the traffic went through shared
memory.

A RESULT is a dictionary with the keys bytes (of a trace: the total), operation_seconds (of each operation or step, at the
slowest rank), cpu_seconds_per_gb (of all ranks per 1e9 bytes contributed), reducer_cpu_seconds_per_gb (per 1e9 bytes received;
`sluice bench` only), wrong (elements), machine (facts about the machine), and from a driver in a TestNetwork sent_bytes (by each rank's
host in the timed loop)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "test_network"))

import sluice_run  # noqa: E402
from test_network import TestNetwork  # noqa: E402

DEADLINE_S = 600


class PeerError(Exception):
    """A peer failed or did not use TCP."""


class PeerCrashed(PeerError):
    """A signal ended a process of the peer: a defect of its library, which says nothing about Sluice."""


def was_crash(returncode):
    """Also true for the exit code of mpirun or a shell whose program a signal has ended."""
    return returncode < 0 or 128 < returncode <= 128 + signal.SIGRTMAX


# How often all hosts but one must send the bytes of an operation: to be added, to deliver the sums, or the parts.
TRANSFERS = {"allreduce": 2, "reduce_scatter": 1, "all_gather": 1, "both": 2}


class CountedBytes:
    """Raises PeerError when the hosts send fewer bytes than a collective of `total_bytes` over `members` of them needs."""

    def __init__(self, name, hosts, members, total_bytes, collective="allreduce"):
        self.name = name
        self.hosts = hosts
        self.collective = collective
        self.minimum = TRANSFERS[collective] * (members - 1) * total_bytes

    def __enter__(self):
        self.before = self.hosts.sent_bytes()
        return self

    def __exit__(self, kind, *_):
        sent = self.hosts.sent_bytes() - self.before
        if kind is None and sent < self.minimum:
            raise PeerError(f"{self.name}: the links carried {sent} bytes, but this operation ({self.collective}) moves at least {self.minimum}: not all traffic "
                            "was TCP")


def trace_bytes(trace):
    lines = Path(trace).read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.strip() and not line.startswith("#"))


def stop_all(processes):
    """Ends processes that are session leaders. SIGTERM lets mpirun stop its ranks."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stderr.close()


class Driver:
    """A driver of bench/peers in the folder `programs`."""

    library = None  # first part of the program's file name
    launcher = None

    def __init__(self, name, programs):
        self.name = name
        self.program = Path(programs, f"{self.library}_peer").resolve()
        self.ranks_per_host = 1
        self.collective = "allreduce"
        self.computing = 0  # share of the time that operations beside computing threads take up; 0: no such threads

    def unavailable_reason(self, hosts):
        for program in filter(None, [self.program, self.launcher]):
            if shutil.which(str(program)) is None:
                return f"{program} does not exist"
        return None

    def commands(self, hosts, ranks, folder):
        """Returns (host, command, variables) of each process, without the options of the driver itself."""
        raise NotImplementedError

    def host_of(self, rank):
        return f"w{rank // self.ranks_per_host}"

    def host_count(self, ranks):
        return -(-ranks // self.ranks_per_host)

    def measure(self, hosts, ranks, sizes, iterations, warmup, folder):
        operations = 1 + warmup + iterations
        options = ["--bytes", ",".join(map(str, sizes)), "--iterations", iterations, "--warmup", warmup, "--collective", self.collective]
        options += ["--computing", self.computing] if self.computing else []
        options += ["--interface", hosts.interface] if isinstance(hosts, TestNetwork) else []
        with CountedBytes(self.name, hosts, self.host_count(ranks), operations * sum(sizes), self.collective):
            output = self.run(hosts, ranks, folder, options)
        return [{**result, "machine": output["machine"]} for result in output["results"]]

    def replay(self, hosts, ranks, trace, iterations, warmup, folder):
        """The RESULT also has allreduce_seconds: the part of each step that was spent in allreduces."""
        with CountedBytes(self.name, hosts, ranks, (warmup + iterations) * trace_bytes(trace)):
            output = self.run(hosts, ranks, folder, ["--trace", trace, "--iterations", iterations, "--warmup", warmup])
        return {**output["results"][0], "machine": output["machine"]}

    def run(self, hosts, ranks, folder, options):
        """Runs all processes. Returns the content of the driver's --json file."""
        if reason := self.unavailable_reason(hosts):
            raise PeerError(reason)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            out = Path(own, "out.json")
            processes = []
            try:
                for host, command, variables in self.commands(hosts, ranks, Path(own)):
                    processes.append(hosts.start(host, [*command, *options, "--json", out], env={**os.environ, **variables}, start_new_session=True,
                                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
                for process in processes:
                    errors = process.communicate(timeout=DEADLINE_S)[1].strip()
                    # Exit code 2 means wrong sums, which the result reports.
                    if process.returncode not in (0, 2) or not out.exists():
                        failure = PeerCrashed if was_crash(process.returncode) else PeerError
                        raise failure(f"{self.name} exited with code {process.returncode}: {errors}")
            except subprocess.TimeoutExpired as expired:
                raise PeerError(f"{self.name} did not exit within {DEADLINE_S} s") from expired
            finally:
                stop_all(processes)
            return json.loads(out.read_text(encoding="utf-8"))


class Mpi(Driver):
    def network_variables(self, hosts):
        return {"SLUICE_TEST_NETWORK_HOSTS": " ".join(f"{hosts.address(host)}={hosts.namespace(host)}" for host in hosts.hosts)}

    def unavailable_reason(self, hosts):
        if isinstance(hosts, TestNetwork) and "ctl" not in hosts.hosts:
            return "the test network has no host ctl"
        return super().unavailable_reason(hosts)

    def remote_shell(self, folder):
        """A link to netns_rsh.sh in `folder`: both launchers split the name of this program at spaces."""
        link = folder / "netns_rsh.sh"
        link.symlink_to(HERE / "netns_rsh.sh")
        return link

    def host_addresses(self, hosts, ranks, template):
        """The addresses of the hosts, with the number of ranks of each."""
        return ",".join(template.format(hosts.address(f"w{host}"), min(self.ranks_per_host, ranks - host * self.ranks_per_host))
                        for host in range(self.host_count(ranks)))


class Openmpi(Mpi):
    library = "openmpi"
    launcher = "mpirun.openmpi"

    def __init__(self, name, programs, **settings):
        super().__init__(name, programs)
        # A waiting rank spins. With fewer cores than ranks, spinning would delay the other ranks, so waiting ranks yield.
        self.settings = {"pml": "ob1", "mpi_yield_when_idle": 1, **settings}

    def commands(self, hosts, ranks, folder):
        # Its shared memory serves the ranks of a host.
        transports = {"btl": "tcp,self" if self.ranks_per_host == 1 else "vader,tcp,self"}
        command = [self.launcher, "-np", ranks, "--bind-to", "none", "--oversubscribe"]
        command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        variables = {}
        settings = {**transports, **self.settings, "btl_tcp_if_include": hosts.interface}
        if isinstance(hosts, TestNetwork):
            command += ["-H", self.host_addresses(hosts, ranks, "{}:{}"), "--map-by", "slot"]
            settings.update({"btl_tcp_if_include": hosts.network, "oob_tcp_if_include": hosts.network, "plm_rsh_agent": self.remote_shell(folder),
                             "plm_rsh_no_tree_spawn": 1, "orte_leave_session_attached": 1})
            variables = self.network_variables(hosts)
        for key, value in settings.items():
            command += ["--mca", key, value]
        return [("ctl", [*command, self.program], variables)]


class Mpich(Mpi):
    library = "mpich"
    launcher = "mpiexec.mpich"
    # By default UCX uses shared memory, even between network namespaces, and MPICH uses its own between processes of one host.
    transports = "tcp,self"

    def commands(self, hosts, ranks, folder):
        command = [self.launcher, "-n", ranks, "-bind-to", "none", "-iface", hosts.interface]
        variables = {"UCX_TLS": self.transports, "UCX_NET_DEVICES": hosts.interface, "MPIR_CVAR_NOLOCAL": "1" if self.ranks_per_host == 1 else "0"}
        if isinstance(hosts, TestNetwork):
            command += ["-launcher", "ssh", "-launcher-exec", self.remote_shell(folder), "-hosts", self.host_addresses(hosts, ranks, "{}:{}")]
            variables.update(self.network_variables(hosts))
        return [("ctl", [*command, self.program], variables)]


class Gloo(Driver):
    library = "gloo"

    def __init__(self, name, programs, algorithm):
        super().__init__(name, programs)
        self.algorithm = algorithm

    def commands(self, hosts, ranks, folder):
        store = folder / "store"
        store.mkdir()
        return [(self.host_of(rank), [self.program, "--rank", rank, "--ranks", ranks, "--store", store, "--address", hosts.address(self.host_of(rank)),
                                      "--algorithm", self.algorithm], {}) for rank in range(ranks)]


class SluiceLibrary(Driver):
    """The client library, measured like the other libraries, over reducers that this class starts."""

    library = "sluice"

    def __init__(self, program, programs, reducers, share_hosts, link_rate=None):
        """`program`: `sluice`, for the reducers. `share_hosts`: the value of SLUICE_HOSTS. `link_rate`: as of class Sluice."""
        super().__init__(f"sluice, {reducers} reducer{'' if reducers == 1 else 's'}{', hosts off' if share_hosts == 'off' else ''}", programs)
        self.reducer_program = Path(program).resolve()
        self.reducers = reducers
        self.share_hosts = share_hosts
        self.link_rate = link_rate

    def variables(self, host):
        rate = self.link_rate(host) if self.link_rate else 0
        return {"SLUICE_LINK_RATE": str(int(rate))} if rate else {}

    def commands(self, hosts, ranks, folder):
        variables = {"SLUICE_HOSTS": self.share_hosts, "SLUICE_IFNAME": f"={hosts.interface}"}
        options = ["--ranks", ranks, "--session", os.urandom(16).hex(), "--reducers", self.pool]
        if self.pool == sluice_run.NO_REDUCERS and self.host_count(ranks) > 1:
            variables["SLUICE_RENDEZVOUS"] = sluice_run.rendezvous(hosts)
            options += ["--gather-rendezvous", sluice_run.rendezvous(hosts)] if self.collective == "both" else []
        return [(self.host_of(rank), [self.program, "--rank", rank, *options],
                 {**variables, **self.variables(self.host_of(rank))}) for rank in range(ranks)]

    def run(self, hosts, ranks, folder, options):
        try:
            with sluice_run.reducers(hosts, self.reducer_program, self.reducers, folder, self.variables) as self.pool:
                return super().run(hosts, ranks, folder, options)
        except sluice_run.SluiceFailed as error:
            raise PeerError(str(error)) from error


def tuned(algorithm, **settings):
    return {"coll_tuned_use_dynamic_rules": 1, "coll_tuned_allreduce_algorithm": algorithm, **settings}


# In pairwise exchanges a connection of Open MPI transfers in one direction at a time; a second connection avoids that.
PEERS = {
    "openmpi": lambda name, programs: Openmpi(name, programs),
    "openmpi-links2": lambda name, programs: Openmpi(name, programs, btl_tcp_links=2),
    "openmpi-ring": lambda name, programs: Openmpi(name, programs, **tuned(4)),
    # Its hierarchical component: a collective inside each host, and one between hosts.
    "openmpi-han": lambda name, programs: Openmpi(name, programs, coll_han_priority=100),
    "openmpi-rabenseifner-links2": lambda name, programs: Openmpi(name, programs, **tuned(6, btl_tcp_links=2)),
    "mpich": Mpich,
    "gloo-ring": lambda name, programs: Gloo(name, programs, "ring"),
    "gloo-ring-chunked": lambda name, programs: Gloo(name, programs, "ring_chunked"),
    "gloo-halving-doubling": lambda name, programs: Gloo(name, programs, "halving_doubling"),
    "gloo-bcube": lambda name, programs: Gloo(name, programs, "bcube"),
}


def peer(name, programs):
    return PEERS[name](name, programs)


class Sluice:
    """`sluice bench` with the client library, over reducers that this class starts."""

    def __init__(self, program, reducers, options=(), colocated=None, link_rate=None):
        """`options` are passed to every `sluice bench`. `colocated`: value of SLUICE_COLOCATED, or None for the program's default.
        `link_rate` maps a host to the bits per second of its link, 0 for no limit; None: the program finds the rates itself."""
        self.options = list(options)
        self.name = f"sluice, {reducers} reducer{'' if reducers == 1 else 's'}{', pool alone' if colocated == 'off' else ''}"
        self.program = Path(program).resolve()
        self.reducers = reducers
        self.colocated = colocated
        self.link_rate = link_rate

    def unavailable_reason(self, hosts):
        if not shutil.which(str(self.program)):
            return f"{self.program} does not exist"
        needs_colocation = self.reducers == 0 or self.colocated not in (None, "off")
        if needs_colocation and not self.has_colocation():
            return f"{self.program} has no co-located reducers (`bench allreduce --help` does not name SLUICE_RENDEZVOUS); use a newer program"
        return None

    def has_colocation(self):
        """An older program would ignore SLUICE_COLOCATED, and the pool alone would be measured instead."""
        shown = subprocess.run([self.program, "bench", "allreduce", "--help"], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return "SLUICE_RENDEZVOUS" in shown.stdout

    def variables(self, host):
        colocated = {"SLUICE_COLOCATED": self.colocated} if self.colocated and host[0] == "w" else {}
        rate = self.link_rate(host) if self.link_rate else 0
        return {**colocated, **({"SLUICE_LINK_RATE": str(int(rate))} if rate else {})}

    def measure(self, hosts, ranks, sizes, iterations, warmup, folder):
        results = []
        for size in sizes:
            # `sluice bench allreduce` times each size twice: out of place, which is reported here, and in place.
            options = ["-b", size, "-e", size, "-n", iterations, "-w", warmup, "-c", 1]
            output = self.run(hosts, ranks, folder, (2 * iterations + warmup) * size, "allreduce", options)
            row = output["results"][0]
            side = row["out_of_place"]
            results.append({"bytes": row["size"], "operation_seconds": [1e-6 * us for us in side["iteration_times"]],
                            "wrong": side["nwrong"] + row["in_place"]["nwrong"], "machine": output["machine"], **self.cpu(row)})
        return results

    def replay(self, hosts, ranks, trace, iterations, warmup, folder):
        total = trace_bytes(trace)
        output = self.run(hosts, ranks, folder, (iterations + warmup) * total, "replay", ["--trace", trace, "-n", iterations, "-w", warmup])
        return {"bytes": total, "operation_seconds": [1e-6 * step["whole_us"] for step in output["results"]], "wrong": output["nwrong"],
                "machine": output["machine"], **self.cpu(output)}

    def cpu(self, output):
        return {"cpu_seconds_per_gb": output["worker_cpu_seconds_per_gb"], "reducer_cpu_seconds_per_gb": output["reducer_cpu_seconds_per_gb"]}

    def run(self, hosts, ranks, folder, total_bytes, verb, options):
        try:
            with (sluice_run.reducers(hosts, self.program, self.reducers, folder, self.variables) as pool,
                  CountedBytes(self.name, hosts, ranks, total_bytes)):
                return sluice_run.bench(hosts, self.program, verb, ranks, pool, folder, [*options, *self.options], self.variables)
        except sluice_run.SluiceFailed as error:
            raise PeerError(str(error)) from error
