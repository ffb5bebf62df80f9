"""Section: bandwidth of the reduction kernels without network."""

from run import markdown_table, size_text, spread

TITLE = "Reduction kernels"
TYPES = ["f32", "f64", "bf16", "f16", "f8e4m3", "mxfp8", "int8-block", "i32"]
# Bytes per source. Eight sources of the largest size and the result fill a core's L2 cache of 2 MiB.
SIZES = [64 << 10, 128 << 10, 256 << 10]


def measure(run):
    rows = {}
    for _ in range(run.rounds):
        for size in run.pick(SIZES, SIZES[:1]):
            output = run.bench("reduce", "--targets", "all", "-o", "sum", "--size", size, "--budget", run.pick("100ms", "5ms"),
                               *(option for name in TYPES for option in ("-d", name)))
            for row in output["results"]:
                rows.setdefault((row["type"], row["target"], size), []).append(row)
    return [{"type": kind, "target": target, "bytes": size, "wrong": sum(r["wrong"] for r in runs), "runs": len(runs),
             **{key: spread([r[key] for r in runs])["median"] for key in ("in_gbps", "in_gvalues_per_s", "load_only_gbps", "memcpy_gbps", "ratio")}}
            for (kind, target, size), runs in sorted(rows.items())]


def text(_rows):
    return ("`sluice bench reduce`: sums of 8 sources in one thread. In is the bytes of all sources per second, load-only a loop that only reads them.")


def table(rows):
    return markdown_table(["type", "instructions", "bytes of each", "in GB/s", "Gvalues/s", "load-only GB/s", "in / load-only", "memcpy GB/s", "runs", "wrong"],
                          [[r["type"], r["target"], size_text(r["bytes"]), f"{r['in_gbps']:.1f}", f"{r['in_gvalues_per_s']:.2f}", f"{r['load_only_gbps']:.1f}", f"{r['ratio']:.2f}",
                            f"{r['memcpy_gbps']:.1f}", r["runs"], r["wrong"]] for r in rows])
