"""docs/benchmarks.md with its tables and plots: Sluice beside other libraries and beside what the links and the machine allow. Each section is a run of its
own in which everything that is compared takes turns, so that what disturbs the machine disturbs all alike.

usage: report.py --sluice FILE --peers FOLDER [--sections links,latency] [--rounds 3] [--brief]
       report.py --render-only

Sections that are not measured keep their last results. Shaped links need root; a section that can't run here says why and is left as it was."""

import argparse
import datetime
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("netbed", "peers", "report"):
    sys.path.insert(0, str(ROOT / "bench" / folder))

from run import CannotRun, Run  # noqa: E402

# In the order of the page.
SECTIONS = ["links", "narrow", "patterns", "latency", "loopback", "reducer_cpu", "kernels", "scale", "replay"]
INTRODUCTION = """# Benchmarks

Made by `python3 bench/report/report.py --sluice build/release/bin/sluice --peers build/release/bench/peers` (docs/benchmarking.md says what it takes); the
figures behind it are in [benchmarks/results.json](benchmarks/results.json). Times are medians; the number of runs and the p99 stand beside them. Within a
table everything took turns in one run. "CPU s/GB" is user and system time per 1e9 bytes.
"""


def section(name):
    return importlib.import_module(f"sections.{name}")


def load(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def measure(arguments, results_file):
    results = load(results_file)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.sections:
            print(f"== {name}", flush=True)
            run = Run(arguments, Path(folder))
            began = time.monotonic()
            try:
                data = section(name).measure(run)
            except CannotRun as why:
                print(f"-- {name}: left as it was: {why}", flush=True)
                failed.append(name)
                continue
            results[name] = {"measured": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "seconds": round(time.monotonic() - began),
                             "disturbed": run.disturbed(), "machine": run.machine(), "data": data}
            results_file.parent.mkdir(parents=True, exist_ok=True)
            results_file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(f"-- {name}: {results[name]['seconds']} s", flush=True)
    return failed


def machine_line(entry):
    m, nic = entry["machine"], entry["machine"].get("nic") or {}
    return (f"{entry['measured']}, revision {m['revision']}, {m['kernel']}, {m['cores']} x {m['cpu']}, {m['memory_bytes'] / 2**30:.0f} GiB, "
            f"{nic.get('name', 'no interface')}, MTU {nic.get('mtu', '-')}, {m['congestion_control']}; {100 * entry['disturbed']:.1f} % of the "
            "processors' time went to others on the host")


def render(results, docs):
    plots = docs / "benchmarks"
    text = INTRODUCTION
    for name in SECTIONS:
        if name not in results:
            continue
        module, entry = section(name), results[name]
        text += f"\n## {module.TITLE}\n\n{module.text(entry['data'])}"
        for title, plot in module.plots(entry["data"], plots):
            text += f"\n![{title}](benchmarks/{plot})\n"
        text += f"\n<sub>{machine_line(entry)}</sub>\n"
    (docs / "benchmarks.md").write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, help="the program")
    parser.add_argument("--peers", type=Path, help="folder of the peers' drivers (docs/benchmarking.md)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where benchmarks.md and benchmarks/ are")
    parser.add_argument("--sections", type=lambda text: text.split(","), default=SECTIONS, help=",".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=3, help="turns that everything has")
    parser.add_argument("--brief", action="store_true", help="few sizes and runs, to see that it works: the figures mean nothing")
    parser.add_argument("--render-only", action="store_true", help="the page again, from the results that are there")
    arguments = parser.parse_args()
    for name in arguments.sections:
        if name not in SECTIONS:
            parser.error(f"no section {name}; there are {', '.join(SECTIONS)}")
    results_file = arguments.docs / "benchmarks" / "results.json"
    failed = []
    if not arguments.render_only:
        if not arguments.sluice or not arguments.peers:
            parser.error("--sluice and --peers are needed to measure")
        failed = measure(arguments, results_file)
    render(load(results_file), arguments.docs)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
