"""The arithmetic alone."""

from run import spread, table

TITLE = "Arithmetic"
TYPES = ["f32", "f64", "bf16", "f16", "f8e4m3", "i32"]


def measure(run):
    told = [run.verb("reduce", "--targets", "all", "-o", "sum", "--budget", run.pick("100ms", "5ms"), *(word for name in TYPES for word in ("-d", name))) for _ in range(run.rounds)]
    rows = {}
    for row in (row for t in told for row in t["results"]):
        rows.setdefault((row["type"], row["target"]), []).append(row)
    return [{"type": kind, "target": target, "wrong": sum(r["wrong"] for r in mine), "runs": len(mine),
             **{key: spread([r[key] for r in mine])["median"] for key in ("in_gbps", "load_only_gbps", "memcpy_gbps", "ratio")}} for (kind, target), mine in rows.items()]


def text(rows):
    return ("`sluice bench reduce`: sums of 8 sources of 256 KiB each, one thread. In: bytes of all sources over time; load-only: the same sources read and nothing else.\n\n"
            + table(["type", "instructions", "in GB/s", "load-only GB/s", "in / load-only", "memcpy GB/s", "runs", "wrong"],
                    [[r["type"], r["target"], f"{r['in_gbps']:.1f}", f"{r['load_only_gbps']:.1f}", f"{r['ratio']:.2f}", f"{r['memcpy_gbps']:.1f}", r["runs"], r["wrong"]]
                     for r in rows]))


def plots(_rows, _folder):
    return []
