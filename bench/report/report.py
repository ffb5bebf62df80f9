"""Measures Sluice, other libraries and the limits of links and machine; writes docs/results/benchmarks.md with its tables (long ones as CSV) and plots.

Each section is a separate run. All programs of a section take turns, so that a disturbance of the machine affects all of them.

usage: report.py --sluice FILE --peers FOLDER [--sections links,latency] [--rounds 3] [--brief]
       report.py --render-only

Sections that are not measured keep their previous results. Rate-limited links need root. A section that cannot run prints the
reason and keeps its previous results."""

import argparse
import collections
import csv
import importlib
import json
import re
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("test_network", "peers", "report", "training"):
    sys.path.insert(0, str(ROOT / "bench" / folder))

from run import CannotRun, Run, markdown_table  # noqa: E402

# Sections in the order of the page. SECTION/PART is a part of a section with a measurement of its own.
SECTIONS = ["links", "narrow", "colocated", "hosts", "hosts/computing", "hosts/deaths", "changes", "patterns", "latency", "loopback", "reducer_cpu", "kernels",
            "kernels/orders", "scale", "pauses", "replay", "torch_backend", "torch_backend/calls", "torch_backend/hsdp", "models", "outer_steps", "fewer_bytes", "wire_types"]
INTRODUCTION = """# Benchmarks

For readers who plan a deployment: measured times of Sluice and of other libraries
([how](../guides/benchmark.md)). bench/report/report.py generates the page from
[results.json](results.json), which also has kernels, network interfaces and MTUs.

Times are medians. All rows of a table were measured in one run, in interleaved rounds. "CPU s/GB"
is user and system time per 1e9 bytes. Results are checked; a table has a column "wrong" only if one
was wrong.
"""
WIDTH = 100
LONGEST_TABLE = 10  # lines of a table that stays in the page


def wrapped(text):
    """Wraps each paragraph at WIDTH characters."""
    return "\n\n".join(textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False) for paragraph in text.split("\n\n"))


def section(name):
    folder, _, part = name.rpartition("/")
    return importlib.import_module(f"parts.{part}" if folder else f"sections.{name}")


def load(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def store(path, content):
    """Writes JSON. Lists and objects that contain no others stay on one line: a row of results is one line of a difference."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = re.sub(r"\[[^][{}]*\]|\{[^][{}]*\}", lambda row: " ".join(row[0].split()), json.dumps(content, indent=1))
    path.write_text(text + "\n", encoding="utf-8")


def own_files(folder):
    """Returns the files of the sections that are not in results.json, by section."""
    return {name: folder / section(name).RESULTS for name in SECTIONS if hasattr(section(name), "RESULTS")}


def load_all(folder):
    """Returns the stored results of all sections."""
    return {**load(folder / "results.json"), **{name: load(file) for name, file in own_files(folder).items() if file.exists()}}


def measure(arguments, folder):
    results = load(folder / "results.json")
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.sections:
            print(f"== {name}", flush=True)
            run = Run(arguments, Path(temporary))
            try:
                data = section(name).measure(run)
            except CannotRun as reason:
                print(f"-- {name}: not measured, previous results kept: {reason}", flush=True)
                failed.append(name)
                continue
            entry = run.entry(data)
            if file := own_files(folder).get(name):
                store(file, {**section(name).FACTS, **entry})
            else:
                results[name] = entry
                store(folder / "results.json", results)
            print(f"-- {name}: {entry['seconds']} s", flush=True)
    return failed


def machine_line(entry):
    m = entry["machine"]
    return f"{m['cores']} x {m['cpu']}, {m['memory_bytes'] / 2**30:.0f} GiB, {m['congestion_control']}"


def run_line(entry):
    # A section whose cases were measured one by one has no steal time.
    disturbed = "" if entry["disturbed"] is None else f"; {100 * entry['disturbed']:.1f} % steal time"
    return f"{entry['measured']}, revision {entry['machine']['revision']}{disturbed}"


def place_table(name, table, folder):
    """Returns `table` itself, or a link to NAME.csv with its cells if it is long: a page is for reading, a CSV file for looking up."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if not line.startswith("|---")]
    file = folder / f"{name.replace('/', '_')}.csv"
    if len(rows) <= LONGEST_TABLE:
        file.unlink(missing_ok=True)
        has_only_zeros = rows[0][-1] == "wrong" and {row[-1] for row in rows[1:]} == {"0"}
        return markdown_table(rows[0][:-1], [row[:-1] for row in rows[1:]]) if has_only_zeros else table
    with file.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows(rows)
    return f"All {len(rows) - 1} rows: [{file.name}]({file.name}).\n"


def render(results, folder):
    machines = collections.Counter(machine_line(entry) for entry in results.values())
    usual = machines.most_common(1)[0][0] if machines else ""
    page = INTRODUCTION + (f"\n{wrapped(f'Machine, where a section names no other: {usual}.')}\n" if usual else "")
    for name in SECTIONS:
        if name not in results:
            continue
        module, entry = section(name), results[name]
        page += f"\n{'###' if '/' in name else '##'} {module.TITLE}\n\n{wrapped(module.text(entry['data']))}\n\n{place_table(name, module.table(entry['data']), folder)}"
        for title, plot in module.plots(entry["data"], folder) if hasattr(module, "plots") else []:
            page += f"\n![{title}]({plot})\n"
        page += "\n" + wrapped(f"<sub>{run_line(entry)}{'' if machine_line(entry) == usual else '; ' + machine_line(entry)}</sub>") + "\n"
    (folder / "benchmarks.md").write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, help="the sluice program")
    parser.add_argument("--peers", type=Path, help="folder of the drivers of the peers (docs/guides/benchmark.md)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder that holds results/, which gets benchmarks.md, results.json and plots")
    parser.add_argument("--sections", type=lambda text: text.split(","), default=SECTIONS, help="sections to measure: " + ",".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each section")
    parser.add_argument("--brief", action="store_true", help="few sizes and runs, as a functional check; the figures mean nothing")
    parser.add_argument("--render-only", action="store_true", help="write the page from the stored results; measure nothing")
    arguments = parser.parse_args()
    for name in arguments.sections:
        if name not in SECTIONS:
            parser.error(f"no section {name}; the sections are {', '.join(SECTIONS)}")
    folder = arguments.docs / "results"
    failed = []
    if not arguments.render_only:
        if not arguments.sluice or not arguments.peers:
            parser.error("a measurement needs --sluice and --peers; use --render-only to measure nothing")
        failed = measure(arguments, folder)
    folder.mkdir(parents=True, exist_ok=True)
    render(load_all(folder), folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
