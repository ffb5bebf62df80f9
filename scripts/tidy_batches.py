#!/usr/bin/env python3
"""usage: tidy_batches.py BUILD JOBS: clang-tidy over all sources of BUILD's compile commands, many to a translation unit.

clang-tidy reads and matches every header of a translation unit, the system's too; that is nearly all of its time, and so taken once for
a batch. Sources of all targets share a batch, with the definitions of all. Which can't be read together is guessed from their lines; where
that was wrong, the compiler, which is faster, says which they are, and those are a batch of their own. The sources in which a batch has findings
are taken singly, as their own targets compile them, and that decides. What a batch cannot see: aliases and using-declarations that nothing
uses, which are looked for only in the file that clang-tidy is given.
"""

import collections
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys

SIZE = 128
# Behind others' headers and declarations these mean something else, which names_in() cannot see: they share batches with each other.
KEPT_APART = {
    "bench/micro/net_bench.cc",
    "bench/micro/ring_bench.cc",
    "config/sizing/plan.cc",
    "config/sizing/vm_rows.cc",
    "gpu_client/api/sluice.cc",
    "reducer/kernels/load_only.cc",
    "transport/tcp/path.cc",
}
TIDY = ["clang-tidy-14", "--quiet"]
COMPILER = {".c": "clang-14", ".cc": "clang++-14"}
# One batch is compiled with or without these alike: they say where code may lie and what a library shows.
OF_NO_MATTER = {"-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"}


def flags_of(entry):
    words = shlex.split(entry["command"].replace(" -isystem ", " -isystem"))
    output = words.index("-o")
    return [word for word in words[1:output] + words[output + 2 :] if word not in ("-c", entry["file"]) and word not in OF_NO_MATTER]


def definitions(flags):
    """{name: its whole flag} of the definitions, without those that CMake makes for a library's own sources."""
    return {flag.split("=")[0]: flag for flag in flags if flag.startswith("-D") and not flag.endswith("_EXPORTS")}


def sets_of_sources(build, root):
    """[(flags, sources)]: sources of one language whose targets differ in definitions and folders alone. One that gives a name another value than those before
    it is a set of its own."""
    sets = collections.OrderedDict()
    seen = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        # Generated sources live under the build and are nobody's style.
        if not source.is_relative_to(root) or source.is_relative_to(root / "build") or source in seen:
            continue
        seen.add(source)
        flags = flags_of(entry)
        defined = definitions(flags)
        folders = [flag for flag in flags if flag.startswith(("-I", "-isystem"))]
        others = tuple(flag for flag in flags if not flag.startswith(("-I", "-isystem", "-D")))
        shares = str(source.relative_to(root)) not in KEPT_APART
        known, known_folders, sources = sets.setdefault((source.suffix, others, shares), ({}, {}, []))
        if any(known.get(name, flag) != flag for name, flag in defined.items()):
            known, known_folders, sources = sets.setdefault((source.suffix, others, source), ({}, {}, []))
        known.update(defined)
        known_folders.update(dict.fromkeys(folders))
        sources.append(source)
    return [([*known.values(), *folders, *others], sources) for (_, others, _), (known, folders, sources) in sets.items()]


def write_batch(build, name, sources):
    batch = build / "batches" / (name + sources[0].suffix)
    batch.write_text("".join(f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n' for source in sources))
    return batch


def where(line):
    """The file that this line of a compiler's output has an error or a warning in, or none."""
    found = re.match(r"(/[^:]+):\d+:\d+: (?:fatal )?(?:error|warning): ", line)
    return found and found[1]


def named(sources, told):
    """Those of the sources that an error or a warning is in, or in a header that they include."""
    files = set()
    included_from = []
    for line in told.splitlines():
        if including := re.match(r"In file included from ([^:]+):", line):
            included_from.append(including[1])
        elif file := where(line):
            files.update([file, *included_from])
        elif not line.startswith("  "):
            included_from = []
    return [source for source in sources if str(source) in files]


def split(build, name, flags, sources):
    """As many of these sources as compile as one, and those that do not."""
    batch, clashing = sources, []
    while len(batch) > 1:
        compiler = COMPILER[batch[0].suffix]
        run = subprocess.run([compiler, "-fsyntax-only", "-w", "-ferror-limit=0", *flags, write_batch(build, name, batch)],
                             capture_output=True, text=True, check=False, cwd=build)
        if run.returncode == 0:
            break
        out = [source for source in named(batch, run.stderr) if source != batch[0]] or [batch[-1]]
        clashing += out
        batch = [source for source in batch if source not in out]
    return batch, clashing


def check(build, name, flags, sources):
    """Findings in these sources, empty when there are none."""
    if len(sources) == 1:
        run = subprocess.run([*TIDY, "-p", build, sources[0]], capture_output=True, text=True, check=False)
        return "" if run.returncode == 0 else run.stdout or run.stderr
    run = subprocess.run([*TIDY, write_batch(build, name, sources), "--", *flags], capture_output=True, text=True, check=False, cwd=build)
    if run.returncode == 0:
        return ""
    if "[clang-diagnostic-error]" in run.stdout:
        batch, clashing = split(build, name, flags, sources)
        if clashing:
            return check(build, name, flags, batch) + check(build, name + "_apart", flags, clashing)
    suspects = named(sources, run.stdout)
    told = "".join(check(build, name, flags, [source]) for source in suspects)
    # Which source a header's finding came by is not said: those are told as they are.
    in_headers = [line for line in run.stdout.splitlines(keepends=True) if (file := where(line)) and pathlib.Path(file) not in sources]
    if not suspects and not in_headers:
        return run.stdout + run.stderr  # it ended by something else
    return told + "".join(in_headers)


def names_in(source):
    """What seems to be declared at the beginnings of this source's lines: enough to keep most clashes apart without asking the compiler."""
    text = source.read_text()
    declared = re.findall(r"^(?!using namespace|namespace|template|TEST|return|extern)[A-Za-z_][^\n;=({#\"]*?(?<!::)\b(\w+)\s*(?:[;=({]|$)", text, re.MULTILINE)
    in_c = re.findall(r'^extern "C" [^\n(]*?(\w+)\(', text, re.MULTILINE)
    return {*declared, *in_c}


def apart(sources):
    """The sources in groups of at most SIZE, none of which declares a name twice as far as names_in() sees."""
    groups = []
    # Tests come first: GoogleTest's headers do not stand behind names of ours that are also the standard library's.
    for source in sorted(sources, key=lambda source: "tests" not in source.parts):
        names = names_in(source)
        group = next((group for group in groups if len(group[1]) < SIZE and not group[0] & names), None)
        if group is None:
            group = (set(), [])
            groups.append(group)
        group[0].update(names)
        group[1].append(source)
    return [group for _, group in groups]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    (build / "batches").mkdir(exist_ok=True)
    sets = sorted(sets_of_sources(build, pathlib.Path.cwd()), key=lambda of_set: -len(of_set[1]))
    print(f"clang-tidy: {sum(len(sources) for _, sources in sets)} files", flush=True)
    with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2])) as executor:
        checks = [executor.submit(check, build, f"set_{i}_{j}", flags, group) for i, (flags, sources) in enumerate(sets) for j, group in enumerate(apart(sources))]
        findings = "".join(done.result() for done in checks)
    print(findings, end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
