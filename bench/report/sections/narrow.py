"""Section: pools with less bandwidth than the workers: half of it, and one reducer with the link of one worker."""

from run import MIB, markdown_table, rate_label, size_text, spread
from test_network import ideal_seconds

TITLE = "Pool with less bandwidth than the workers"
WORKERS = 4
# (name, reducers, bandwidth of the pool in links of a worker)
POOLS = [("half as wide", 2, 2.0), ("one reducer, a link like a worker's", 1, 1.0)]
RATES = [(200e6, 16 * MIB), (1e9, 64 * MIB)]


def measure(run):
    rows = []
    for rate, size in run.pick(RATES, [(200e6, 4 * MIB)]):
        for name, reducers, width in POOLS:
            program = run.sluice(reducers)
            reducer_rate = rate * width / reducers
            with run.network(WORKERS, reducers, rate, reducer_rate) as network:
                drops = drops_of(network)
                found = run.interleave([f"{name}, {rate_label(rate)}"], lambda _: program.measure(network, WORKERS, [size], 3, 1, run.folder))  # noqa: B023
                drops = drops_of(network) - drops
            results = [r for rounds in found.values() for r in rounds]
            rows.append({"pool": name, "rate": rate, "reducers": reducers, "bytes": size, "drops": drops, "wrong": sum(r["wrong"] for r in results),
                         **spread([t for r in results for t in r["operation_seconds"]]),
                         "ideal_seconds": ideal_seconds(size, rate, reducer_rate, WORKERS, reducers)})
    return rows


def drops_of(network):
    return sum(end["drops"] for end in network.stat())


def text(_rows):
    return ("4 workers. Packets queue at the switch port of the reducer. The bound is the time of the tensor at the goodput of a worker's share of the pool.")


def table(rows):
    return markdown_table(["pool", "reducers", "worker's link", "size", "ms", "p99", "runs", "/ bound", "packets dropped", "wrong"],
                          [[r["pool"], r["reducers"], rate_label(r["rate"]), size_text(r["bytes"]), f"{1e3 * r['median']:.0f}", f"{1e3 * r['p99']:.0f}", r["count"],
                            f"{r['median'] / r['ideal_seconds']:.3f}", r["drops"], r["wrong"]] for r in rows])
