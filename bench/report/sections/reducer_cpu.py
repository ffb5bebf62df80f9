"""A reducer's processor time beside that of a bare TCP star."""

from run import spread, table

TITLE = "What a reducer costs"


def measure(run):
    rows = {"with checksums": [], "without": []}
    for _ in range(run.rounds):
        for name, words in (("with checksums", []), ("without", ["--no-crc"])):
            rows[name].append(run.verb("star", "--workers", 4, "--size", run.pick("64M", "4M"), "--rounds", run.pick(5, 1), *words))
    return [{"name": name, "runs": len(told), "reducer": spread([spread(t["reducer_cpu_seconds_per_gb"])["median"] for t in told])["median"],
             "star": spread([spread(t["star_cpu_seconds_per_gb"])["median"] for t in told])["median"],
             "ratios": sorted(a / b for t in told for a, b in zip(t["reducer_cpu_seconds_per_gb"], t["star_cpu_seconds_per_gb"])), "wrong": sum(t["nwrong"] for t in told)}
            for name, told in rows.items()]


def text(rows):
    return ("`sluice bench star`: CPU seconds per GB received (and sent again) of a reducer with one lane, and of a TCP server that moves the same bytes for the same 4 "
            "workers and adds nothing, round by round in turns.\n\n"
            + table(["payloads", "reducer CPU s/GB", "star CPU s/GB", "reducer / star, median", "least", "greatest", "rounds", "wrong"],
                    [[r["name"], f"{r['reducer']:.3f}", f"{r['star']:.3f}", f"{spread(r['ratios'])['median']:.2f}", f"{r['ratios'][0]:.2f}", f"{r['ratios'][-1]:.2f}",
                      len(r["ratios"]), r["wrong"]] for r in rows]))


def plots(_rows, _folder):
    return []
