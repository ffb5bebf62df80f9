"""Part of the section kernels: sums in the order of a tree beside those in the order of earlier releases."""

import statistics

from run import markdown_table, size_text

TITLE = "Order of sums"
SOURCES = [*range(2, 10), 16, 64, 512]
SIZE = 64 << 10  # bytes per source


def measure(run):
    """Both orders of a type take turns within a run; the ratio is the median of the runs'."""
    found = {}
    for _ in range(run.rounds):
        for sources in run.pick(SOURCES, SOURCES[:2]):
            output = run.bench("reduce", "-o", "sum", "--sources", sources, "--size", SIZE, "--budget", run.pick("150ms", "5ms"), "--order", "tree,groups")
            by_order = {order: {row["type"]: row for row in output["results"] if row["order"] == order} for order in ("tree", "groups")}
            for kind, tree in by_order["tree"].items():
                found.setdefault((kind, sources), []).append((tree, by_order["groups"][kind]))
    return [row(kind, sources, runs) for (kind, sources), runs in sorted(found.items())]


def row(kind, sources, runs):
    def median(order):
        return statistics.median(pair[order]["in_gbps"] for pair in runs)

    return {"type": kind, "sources": sources, "target": runs[0][0]["target"], "tree_gbps": median(0), "groups_gbps": median(1), "runs": len(runs),
            "ratio": statistics.median(tree["in_gbps"] / groups["in_gbps"] for tree, groups in runs), "wrong": sum(row["wrong"] for pair in runs for row in pair)}


def text(rows):
    slower = sorted((r for r in rows if r["ratio"] < 0.97), key=lambda r: r["ratio"])
    named = ", ".join(f"{r['type']} of {r['sources']} ({r['ratio']:.2f})" for r in slower[:8])
    least = min(rows, key=lambda r: r["ratio"])
    return (f"`sluice bench reduce --order tree,groups --sources N`: sums of N sources of {size_text(SIZE)} in one thread, with {rows[0]['target']}, in the order of a balanced tree and "
            "in that of earlier releases, groups of eight one after another. The two take turns within a run. The ratio is the speed of the tree over that of the groups: "
            f"{statistics.median(r['ratio'] for r in rows):.3f} in the median of all types and numbers, {least['ratio']:.2f} at least. "
            + (f"Of {len(rows)} cases {len(slower)} are more than 3 % slower: {named}{', and others' if len(slower) > 8 else ''}." if slower else "None is more than 3 % slower."))


def table(rows):
    return markdown_table(["type", "sources", "tree: in GB/s", "groups: in GB/s", "tree / groups", "runs", "wrong"],
                          [[r["type"], r["sources"], f"{r['tree_gbps']:.2f}", f"{r['groups_gbps']:.2f}", f"{r['ratio']:.3f}", r["runs"], r["wrong"]] for r in rows])
