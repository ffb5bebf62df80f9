"""Section: CPU time of a reducer, compared with a bare TCP star."""

from run import markdown_table, spread

TITLE = "CPU time of a reducer"


def measure(run):
    cases = {"with checksums": [], "without": ["--no-crc"], "with --health": ["--health"]}
    rows = {name: [] for name in cases}
    for _ in range(run.rounds):
        for name, options in cases.items():
            rows[name].append(run.bench("star", "--workers", 4, "--size", run.pick("64M", "4M"), "--rounds", run.pick(5, 1), *options))
    return [{"name": name, "runs": len(outputs), "reducer": spread([spread(output["reducer_cpu_seconds_per_gb"])["median"] for output in outputs])["median"],
             "star": spread([spread(output["star_cpu_seconds_per_gb"])["median"] for output in outputs])["median"],
             "ratios": sorted(a / b for output in outputs for a, b in zip(output["reducer_cpu_seconds_per_gb"], output["star_cpu_seconds_per_gb"])),
             "wrong": sum(output["nwrong"] for output in outputs)}
            for name, outputs in rows.items()]


def text(_rows):
    return ("`sluice bench star`: CPU seconds per GB received (and sent) of a reducer with one lane, and of a TCP server that moves the same bytes for the same 4 "
            "workers without additions.")


def table(rows):
    return markdown_table(["payloads", "reducer CPU s/GB", "star CPU s/GB", "reducer / star, median", "least", "greatest", "rounds", "wrong"],
                          [[r["name"], f"{r['reducer']:.3f}", f"{r['star']:.3f}", f"{spread(r['ratios'])['median']:.2f}", f"{r['ratios'][0]:.2f}",
                            f"{r['ratios'][-1]:.2f}", len(r["ratios"]), r["wrong"]] for r in rows])
