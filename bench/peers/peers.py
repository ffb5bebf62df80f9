"""What an allreduce is measured with: the drivers of other libraries in several settings, and `sluice`. Each has

    measure(hosts, ranks, sizes, iterations, warmup, folder)      a RESULT for each size
    replay(hosts, ranks, trace, iterations, warmup, folder)       a RESULT for a trace, as `sluice bench replay --print-trace` writes it
    missing(hosts)                                                why it can't run here, or None

with rank i at host w<i> of a Bed or a Loopback (bench/netbed), Sluice's reducers at r0, r1, ..., and mpirun of a Bed at ctl. All are held to TCP, and what the
links have carried is compared with the least that an allreduce must move: where less came by, shared memory has slipped in, and that is an error.

RESULT, a dictionary: bytes (of the trace: all), operation_seconds (of each operation, or of each step of the trace, at the rank that took longest),
cpu_seconds_per_gb (of all ranks, per 1e9 bytes that they contributed), reducer_cpu_seconds_per_gb (per 1e9 bytes received; sluice alone), wrong (elements),
machine (its facts)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "netbed"))

import sluice_run  # noqa: E402
from bed import Bed  # noqa: E402

DEADLINE_S = 600


class PeerError(Exception):
    pass


class CountedBytes:
    """Fails when less was sent meanwhile than `ranks` members must send to allreduce `total_bytes`: n - 1 of them their data so that it can be added up, and
    the sum back to n - 1."""

    def __init__(self, name, hosts, ranks, total_bytes):
        self.name = name
        self.hosts = hosts
        self.least = 2 * (ranks - 1) * total_bytes

    def __enter__(self):
        self.before = self.hosts.sent_bytes()
        return self

    def __exit__(self, kind, *_):
        sent = self.hosts.sent_bytes() - self.before
        if kind is None and sent < self.least:
            raise PeerError(f"{self.name}: {sent} bytes came over the links, an allreduce has to move {self.least}: not all of it was TCP")


def trace_bytes(trace):
    lines = Path(trace).read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.strip() and not line.startswith("#"))


def end(processes):
    """Each is the first of a session of its own. The term signal lets mpirun end its ranks."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Driver:
    """A program of bench/peers that `programs` holds."""

    part = None  # of its name
    launcher = None

    def __init__(self, name, programs):
        self.name = name
        self.program = Path(programs, f"{self.part}_allreduce").resolve()

    def missing(self, hosts):
        for program in filter(None, [self.program, self.launcher]):
            if shutil.which(str(program)) is None:
                return f"{program} is not there"
        return None

    def commands(self, hosts, ranks, folder):
        """(host, words, variables) of each process to be started, without what the driver itself is told."""
        raise NotImplementedError

    def measure(self, hosts, ranks, sizes, iterations, warmup, folder):
        operations = 1 + warmup + iterations
        with CountedBytes(self.name, hosts, ranks, operations * sum(sizes)):
            told = self.run(hosts, ranks, folder, ["--bytes", ",".join(map(str, sizes)), "--iterations", iterations, "--warmup", warmup])
        return [{**result, "machine": told["machine"]} for result in told["results"]]

    def replay(self, hosts, ranks, trace, iterations, warmup, folder):
        """allreduce_seconds too: the part of each step that was spent in allreduces."""
        with CountedBytes(self.name, hosts, ranks, (warmup + iterations) * trace_bytes(trace)):
            told = self.run(hosts, ranks, folder, ["--trace", trace, "--iterations", iterations, "--warmup", warmup])
        return {**told["results"][0], "machine": told["machine"]}

    def run(self, hosts, ranks, folder, options):
        """What the driver's --json holds."""
        with tempfile.TemporaryDirectory(dir=folder) as own:
            out = Path(own, "out.json")
            processes = []
            try:
                for host, words, variables in self.commands(hosts, ranks, Path(own)):
                    processes.append(hosts.start(host, [*words, *options, "--json", out], env={**os.environ, **variables}, start_new_session=True,
                                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
                for process in processes:
                    said = process.communicate(timeout=DEADLINE_S)[1].strip()
                    # 2: wrong sums, which the result tells.
                    if process.returncode not in (0, 2) or not out.exists():
                        raise PeerError(f"{self.name} ended with {process.returncode}: {said}")
            except subprocess.TimeoutExpired as expired:
                raise PeerError(f"{self.name} does not end") from expired
            finally:
                end(processes)
            return json.loads(out.read_text(encoding="utf-8"))


class Mpi(Driver):
    def bed_variables(self, hosts):
        return {"SLUICE_BED_HOSTS": " ".join(f"{hosts.address(host)}={hosts.namespace(host)}" for host in hosts.hosts)}

    def missing(self, hosts):
        if isinstance(hosts, Bed) and "ctl" not in hosts.hosts:
            return "the bed has no host ctl"
        return super().missing(hosts)

    def ranks_at(self, hosts, ranks, form):
        return ",".join(form.format(hosts.address(f"w{rank}")) for rank in range(ranks))


class Openmpi(Mpi):
    part = "openmpi"
    launcher = "mpirun.openmpi"

    def __init__(self, name, programs, **settings):
        super().__init__(name, programs)
        # Ranks that wait spin; where there are fewer cores than ranks, the others' work waits for that.
        self.settings = {"pml": "ob1", "btl": "tcp,self", "mpi_yield_when_idle": 1, **settings}

    def commands(self, hosts, ranks, folder):
        words = [self.launcher, "-np", ranks, "--bind-to", "none", "--oversubscribe"]
        words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        variables = {}
        settings = {**self.settings, "btl_tcp_if_include": hosts.interface}
        if isinstance(hosts, Bed):
            words += ["-H", self.ranks_at(hosts, ranks, "{}:1")]
            settings.update({"btl_tcp_if_include": hosts.network, "oob_tcp_if_include": hosts.network, "plm_rsh_agent": HERE / "netns_rsh.sh",
                             "plm_rsh_no_tree_spawn": 1, "orte_leave_session_attached": 1})
            variables = self.bed_variables(hosts)
        for key, value in settings.items():
            words += ["--mca", key, value]
        return [("ctl", [*words, self.program], variables)]


class Mpich(Mpi):
    part = "mpich"
    launcher = "mpiexec.mpich"
    # Of its own accord UCX takes shared memory, between network namespaces too, and MPICH's own between processes of one host.
    transports = "tcp,self"

    def commands(self, hosts, ranks, folder):
        words = [self.launcher, "-n", ranks, "-bind-to", "none", "-iface", hosts.interface]
        variables = {"UCX_TLS": self.transports, "UCX_NET_DEVICES": hosts.interface, "MPIR_CVAR_NOLOCAL": "1"}
        if isinstance(hosts, Bed):
            words += ["-launcher", "ssh", "-launcher-exec", HERE / "netns_rsh.sh", "-hosts", self.ranks_at(hosts, ranks, "{}")]
            variables.update(self.bed_variables(hosts))
        return [("ctl", [*words, self.program], variables)]


class Gloo(Driver):
    part = "gloo"

    def __init__(self, name, programs, algorithm):
        super().__init__(name, programs)
        self.algorithm = algorithm

    def commands(self, hosts, ranks, folder):
        store = folder / "store"
        store.mkdir()
        return [(f"w{rank}", [self.program, "--rank", rank, "--ranks", ranks, "--store", store, "--address", hosts.address(f"w{rank}"),
                              "--algorithm", self.algorithm], {}) for rank in range(ranks)]


def tuned(algorithm, **settings):
    return {"coll_tuned_use_dynamic_rules": 1, "coll_tuned_allreduce_algorithm": algorithm, **settings}


# In pairwise exchanges one connection of Open MPI's works in one direction at a time; a second one mends that.
PEERS = {
    "openmpi": lambda name, programs: Openmpi(name, programs),
    "openmpi-links2": lambda name, programs: Openmpi(name, programs, btl_tcp_links=2),
    "openmpi-ring": lambda name, programs: Openmpi(name, programs, **tuned(4)),
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
    """With the client library, over reducers that it starts."""

    def __init__(self, program, reducers, options=()):
        """`options` of every `sluice bench`."""
        self.options = list(options)
        self.name = f"sluice, {reducers} reducer{'s' if reducers > 1 else ''}"
        self.program = Path(program).resolve()
        self.reducers = reducers

    def missing(self, hosts):
        return None if shutil.which(str(self.program)) else f"{self.program} is not there"

    def measure(self, hosts, ranks, sizes, iterations, warmup, folder):
        results = []
        for size in sizes:
            # Each timed twice: out of place, which counts here, and in place.
            options = ["-b", size, "-e", size, "-n", iterations, "-w", warmup, "-c", 1]
            told = self.run(hosts, ranks, folder, (2 * iterations + warmup) * size, "allreduce", options)
            row = told["results"][0]
            side = row["out_of_place"]
            results.append({"bytes": row["size"], "operation_seconds": [1e-6 * us for us in side["iteration_times"]],
                            "wrong": side["nwrong"] + row["in_place"]["nwrong"], "machine": told["machine"], **self.cpu(row)})
        return results

    def replay(self, hosts, ranks, trace, iterations, warmup, folder):
        total = trace_bytes(trace)
        told = self.run(hosts, ranks, folder, (iterations + warmup) * total, "replay", ["--trace", trace, "-n", iterations, "-w", warmup])
        return {"bytes": total, "operation_seconds": [1e-6 * step["whole_us"] for step in told["results"]], "wrong": told["nwrong"], "machine": told["machine"],
                **self.cpu(told)}

    def cpu(self, told):
        return {"cpu_seconds_per_gb": told["worker_cpu_seconds_per_gb"], "reducer_cpu_seconds_per_gb": told["reducer_cpu_seconds_per_gb"]}

    def run(self, hosts, ranks, folder, total_bytes, verb, options):
        try:
            with sluice_run.reducers(hosts, self.program, self.reducers, folder) as pool, CountedBytes(self.name, hosts, ranks, total_bytes):
                return sluice_run.bench(hosts, self.program, verb, ranks, pool, folder, [*options, *self.options])
        except sluice_run.SluiceFailed as error:
            raise PeerError(str(error)) from error
