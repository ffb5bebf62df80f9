"""Pools that are narrower than their workers: half as wide, and one reducer with a link like one worker's."""

from run import MIB, ideal_seconds, rate_words, size_text, spread, table

TITLE = "A pool narrower than the workers"
WORKERS = 4
# reducers; the pool's width, in workers' links
POOLS = [("half as wide", 2, 2.0), ("one reducer, a link like a worker's", 1, 1.0)]
RATES = [(200e6, 16 * MIB), (1e9, 64 * MIB)]


def measure(run):
    rows = []
    for rate, size in run.pick(RATES, [(200e6, 4 * MIB)]):
        for name, reducers, width in POOLS:
            program = run.sluice(reducers)
            reducer_rate = rate * width / reducers
            with run.bed(WORKERS, reducers, rate, reducer_rate) as bed:
                drops = drops_of(bed)
                found = run.in_turns([f"{name}, {rate_words(rate)}"], lambda _: program.measure(bed, WORKERS, [size], 3, 1, run.folder))  # noqa: B023
                drops = drops_of(bed) - drops
            results = [r for rounds in found.values() for r in rounds]
            rows.append({"pool": name, "rate": rate, "reducers": reducers, "bytes": size, "drops": drops, "wrong": sum(r["wrong"] for r in results),
                         **spread([t for r in results for t in r["operation_seconds"]]),
                         "ideal_seconds": ideal_seconds(size, rate, reducer_rate, WORKERS, reducers)})
    return rows


def drops_of(bed):
    return sum(end["drops"] for end in bed.stat())


def text(rows):
    return ("4 workers; every reducer's link carries what all workers send at once, so packets meet in the queue of its port. The bound is the tensor at the goodput of "
            "a worker's share of the pool.\n\n"
            + table(["pool", "reducers", "worker's link", "size", "ms", "p99", "runs", "/ bound", "packets dropped", "wrong"],
                    [[r["pool"], r["reducers"], rate_words(r["rate"]), size_text(r["bytes"]), f"{1e3 * r['median']:.0f}", f"{1e3 * r['p99']:.0f}", r["count"],
                      f"{r['median'] / r['ideal_seconds']:.3f}", r["drops"], r["wrong"]] for r in rows]))


def plots(_rows, _folder):
    return []
