"""Section: wire types of float32, and gradients in which some blocks are zero."""

import sluice_run
from plots import lines
from run import MIB, markdown_table, rate_label, spread

TITLE = "Fewer bytes: wire types and zero blocks"
RATE = 200e6
WORKERS = 4
SIZE = 64 * MIB
WIRES = ["given", "bf16", "f16", "mxfp8", "int8"]
ZEROS = [0, 0.5, 0.9, 0.99]
PLAIN = "zeros travel"


def measure(run):
    size = run.pick(SIZE, 1 * MIB)
    options = {f"wire {wire}": ["--wire", wire] for wire in run.pick(WIRES, ["bf16", "mxfp8"])}
    options |= {f"zeros {zeros}": ["--zeros", zeros] for zeros in run.pick(ZEROS, [0.9])}
    options[PLAIN] = ["--zeros", 0]  # without the search for zeros
    with run.network(WORKERS, WORKERS, RATE, RATE) as network, sluice_run.reducers(network, run.program, WORKERS, run.folder) as pool:

        def measure_once(name):
            variables = {"SLUICE_ZERO_BLOCKS": "send"} if name == PLAIN else {}
            output = sluice_run.bench(network, run.program, "allreduce", WORKERS, pool, run.folder,
                                      ["-b", size, "-e", size, "-n", run.pick(3, 1), "-w", 1, "-c", 1, *options[name]], lambda _: variables)
            row = output["results"][0]
            return [{"machine": output["machine"], "times": [1e-6 * t for t in row["out_of_place"]["iteration_times"]], "bytes": row["wire_bytes_sent"],
                     "worker_cpu": row["worker_cpu_seconds_per_gb"], "reducer_cpu": row["reducer_cpu_seconds_per_gb"],
                     "wrong": row["out_of_place"]["nwrong"] + row["in_place"]["nwrong"]}]

        found = run.interleave(list(options), measure_once)
    # A pool as wide as the workers: the time of the plain tensor at the goodput of a link.
    rows = [{"case": name, "sent": spread([r["bytes"] for r in results])["median"], "wrong": sum(r["wrong"] for r in results),
             "worker_cpu": spread([r["worker_cpu"] for r in results])["median"], **spread([t for r in results for t in r["times"]])}
            for name, results in found.items()]
    return {"size": size, "rows": rows}


def time_of(data, case):
    return next((row["median"] for row in data["rows"] if row["case"] == case), None)


def text(data):
    return (f"{WORKERS} workers, {WORKERS} reducers, links of {rate_label(RATE)}, sums of {data['size'] // MIB} MiB of f32. Zeros: the fraction of blocks of 64 "
            "elements that are zero on all ranks. The last row does not search for zeros.")


def table(data):
    plain, bf16 = time_of(data, PLAIN), time_of(data, "wire bf16")
    ratio = lambda row, base: f"{row['median'] / base:.3f}" if base else ""  # noqa: E731
    return markdown_table(["case", "MB sent", "ms", "p99", "runs", "/ plain", "/ bf16", "worker CPU s/GB", "wrong"],
                          [[row["case"], f"{row['sent'] / 1e6:.2f}", f"{1e3 * row['median']:.0f}", f"{1e3 * row['p99']:.0f}", row["count"], ratio(row, plain),
                            ratio(row, bf16), f"{row['worker_cpu']:.2f}", row["wrong"]] for row in data["rows"]])


def plots(data, folder):
    plain = time_of(data, PLAIN)
    points = [(float(row["case"].split()[1]), row["median"] / plain) for row in data["rows"] if row["case"].startswith("zeros ") and row["case"] != PLAIN]
    if len(points) < 2:
        return []
    xs, ys = zip(*sorted(points))
    return lines(folder, "zero-blocks.svg", "time of an allreduce / time of the plain one", "fraction of zero blocks", "time", [("measured", xs, ys)],
                 [("share of blocks that are not zero", xs, [1 - x for x in xs])])
