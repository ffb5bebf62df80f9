"""The arithmetic alone."""

from run import size_text, spread, table

TITLE = "Arithmetic"
TYPES = ["f32", "f64", "bf16", "f16", "f8e4m3", "i32"]


# Of each source. With eight of the largest and the result a core's L2 of 2 MiB is full.
SIZES = [64 << 10, 128 << 10, 256 << 10]


def measure(run):
    rows = {}
    for _ in range(run.rounds):
        for size in run.pick(SIZES, SIZES[:1]):
            told = run.verb("reduce", "--targets", "all", "-o", "sum", "--size", size, "--budget", run.pick("100ms", "5ms"), *(word for name in TYPES for word in ("-d", name)))
            for row in told["results"]:
                rows.setdefault((row["type"], row["target"], size), []).append(row)
    return [{"type": kind, "target": target, "bytes": size, "wrong": sum(r["wrong"] for r in mine), "runs": len(mine),
             **{key: spread([r[key] for r in mine])["median"] for key in ("in_gbps", "load_only_gbps", "memcpy_gbps", "ratio")}} for (kind, target, size), mine in sorted(rows.items())]


def text(rows):
    return ("`sluice bench reduce`: sums of 8 sources, one thread. In: bytes of all sources over time; load-only: the same sources read and nothing else.\n\n"
            + table(["type", "instructions", "bytes of each", "in GB/s", "load-only GB/s", "in / load-only", "memcpy GB/s", "runs", "wrong"],
                    [[r["type"], r["target"], size_text(r["bytes"]), f"{r['in_gbps']:.1f}", f"{r['load_only_gbps']:.1f}", f"{r['ratio']:.2f}", f"{r['memcpy_gbps']:.1f}", r["runs"], r["wrong"]]
                     for r in rows]))


def plots(_rows, _folder):
    return []
