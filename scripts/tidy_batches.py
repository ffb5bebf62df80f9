#!/usr/bin/env python3
"""usage: tidy_batches.py BUILD JOBS: runs clang-tidy on all sources in BUILD's compile commands, many sources per translation unit.

clang-tidy spends most of its time on headers, including system headers. A batch of sources in one translation unit pays this
cost once. Sources of all targets share batches, with the definitions of all targets. names_in() guesses which sources cannot
share a batch. If the guess is wrong, the compiler, which is faster than clang-tidy, finds the conflicting sources, and they get
a separate batch. A source with findings in a batch is checked again alone with the flags of its target; that result counts.

Limitation: clang-tidy looks for unused aliases and using-declarations only in the main file, so a batch does not report them.
"""

import collections
import concurrent.futures
import functools
import json
import pathlib
import re
import shlex
import subprocess
import sys

SIZE = 256
# The headers and declarations of other sources change the meaning of these sources, and names_in() cannot detect it. They share
# batches only with each other.
KEPT_APART = {
    "bench/micro/ring_bench.cc",
    "config/sizing/plan.cc",
    "config/sizing/vm_catalog.cc",
    "gpu_client/api/sluice.cc",
    "tests/conformance/transport/tcp_cost_test.cc",
    "tests/fuzz/entry_point.cc",
    "tests/nccl/player/collnet.cc",
    "tests/nccl/player/profiler.cc",
    "tests/nccl/player/scenario_profiler.cc",
    "tests/unit/reducer/lane_health_test.cc",
    "transport/tcp/tcp_info.cc",
}
# For each parameter that CLI11 takes by value, performance-unnecessary-value-param searches the whole translation unit. The sources of these
# folders include it, and get batches of their own.
FOLDERS_WITH_CLI11 = ("cli/", "bench/peers/")
TIDY = ["clang-tidy-14", "--quiet"]
# These checks look at the main file only.
NOT_OF_BATCHES = "--checks=-misc-unused-alias-decls,-misc-unused-using-decls"
COMPILER = {".c": "clang-14", ".cc": "clang++-14"}
# In a batch, this check takes sources for headers.
OF_HEADERS = "[google-global-names-in-headers"
# clang-tidy defines it, and Highway then includes a source once, for one target.
AS_CLANG_TIDY = "-D__clang_analyzer__"
# Functions that many programs define with the same signature. In a batch, each source has its own name for them.
ENTRY_POINTS = ("fuzz_one", "main")
# Flags that do not affect clang-tidy: code model, symbol visibility, and the optimization that is the default.
IGNORED_FLAGS = {"-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-O0"}


def flags_of(entry):
    arguments = shlex.split(entry["command"].replace(" -isystem ", " -isystem"))
    output = arguments.index("-o")
    return [flag for flag in arguments[1:output] + arguments[output + 2 :] if flag not in ("-c", entry["file"]) and flag not in IGNORED_FLAGS]


def definitions(flags):
    """Returns {name: flag} of the -D flags, without the _EXPORTS definitions that CMake adds for libraries."""
    return {flag.split("=")[0]: flag for flag in flags if flag.startswith("-D") and not flag.endswith("_EXPORTS")}


def sets_of_sources(build, root):
    """Returns [(flags, sources)]: the sources of a set have the same language, and their flags differ only in definitions and
    include folders. A source that defines a macro with another value than earlier sources gets a separate set."""
    sets = collections.OrderedDict()
    seen = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        # Generated sources in the build folder are not checked.
        if not source.is_relative_to(root) or source.is_relative_to(root / "build") or source in seen:
            continue
        seen.add(source)
        flags = flags_of(entry)
        defined = definitions(flags)
        folders = [flag for flag in flags if flag.startswith(("-I", "-isystem"))]
        others = tuple(flag for flag in flags if not flag.startswith(("-I", "-isystem", "-D")))
        name = str(source.relative_to(root))
        # Highway includes a source once per target, but only the first one in a translation unit.
        if "hwy/foreach_target.h" in source.read_text():
            kind = ("apart", name)
        else:
            kind = ("apart", name.startswith("tests/")) if name in KEPT_APART else "CLI11" if name.startswith(FOLDERS_WITH_CLI11) else "other"
        known, known_folders, sources = sets.setdefault((source.suffix, others, kind), ({}, {}, []))
        if any(known.get(name, flag) != flag for name, flag in defined.items()):
            known, known_folders, sources = sets.setdefault((source.suffix, others, source), ({}, {}, []))
        known.update(defined)
        known_folders.update(dict.fromkeys(folders))
        sources.append(source)
    return [([*known.values(), *folders, *others], sources) for (_, others, _), (known, folders, sources) in sets.items()]


def write_batch(build, name, sources):
    batch = build / "batches" / (name + sources[0].suffix)
    text = []
    for number, source in enumerate(sources):
        text += [f"#undef {entry}\n#define {entry} {entry}_of_{number}  // NOLINT(readability-identifier-naming)\n" for entry in ENTRY_POINTS]
        text.append(f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n')
    batch.write_text("".join(text))
    return batch


def file_of_diagnostic(line):
    """Returns the file of an error or warning in a line of compiler output, or None."""
    found = re.match(r"(/[^:]+):\d+:\d+: (?:fatal )?(?:error|warning): ", line)
    return found and found[1]


def sources_with_diagnostics(sources, output):
    """Returns the sources that have an error or warning, or include a header that has one."""
    files = set()
    included_from = []
    for line in output.splitlines():
        if including := re.match(r"In file included from ([^:]+):", line):
            included_from.append(including[1])
        elif file := file_of_diagnostic(line):
            files.update([file, *included_from])
        elif not line.startswith("  "):
            included_from = []
    return [source for source in sources if str(source) in files]


def split(build, name, flags, sources):
    """Returns the sources that compile together and the sources that conflict with them."""
    batch, clashing = sources, []
    while len(batch) > 1:
        compiler = COMPILER[batch[0].suffix]
        run = subprocess.run([compiler, "-fsyntax-only", "-w", "-ferror-limit=0", AS_CLANG_TIDY, *flags, write_batch(build, name, batch)],
                             capture_output=True, text=True, check=False, cwd=build)
        if run.returncode == 0:
            break
        conflicts = [source for source in sources_with_diagnostics(batch, run.stderr) if source != batch[0]] or [batch[-1]]
        clashing += conflicts
        batch = [source for source in batch if source not in conflicts]
    return batch, clashing


def check(build, name, flags, sources):
    """Returns the findings in the sources as text; empty without findings."""
    if len(sources) == 1:
        run = subprocess.run([*TIDY, "-p", build, sources[0]], capture_output=True, text=True, check=False)
        return "" if run.returncode == 0 else run.stdout or run.stderr
    run = subprocess.run([*TIDY, NOT_OF_BATCHES, write_batch(build, name, sources), "--", *flags], capture_output=True, text=True, check=False, cwd=build)
    if run.returncode == 0:
        return ""
    if "[clang-diagnostic-error]" in run.stdout:
        batch, clashing = split(build, name, flags, sources)
        if clashing:
            return check(build, name, flags, batch) + check(build, name + "_apart", flags, clashing)
    names = {str(source) for source in sources}
    lines = [line for line in run.stdout.splitlines(keepends=True) if not (OF_HEADERS in line and file_of_diagnostic(line) in names)]
    if run.returncode == 1 and not any(map(file_of_diagnostic, lines)) and OF_HEADERS in run.stdout:
        return ""
    suspects = sources_with_diagnostics(sources, "".join(lines))
    findings = "".join(check(build, name, flags, [source]) for source in suspects)
    # A finding in a header does not state the source, so it is reported without a second check.
    in_headers = [line for line in lines if (file := file_of_diagnostic(line)) and file not in names]
    if not suspects and not in_headers:
        return run.stdout + run.stderr  # clang-tidy failed for another reason
    return findings + "".join(in_headers)


@functools.cache
def names_in(file):
    """Guesses the names that the file and the test headers that it includes declare. This prevents most conflicts without a compiler
    run. Returns {name: what it is}: sources can share a name for the same type or from the same header."""
    names = names_declared_in(file)
    for header in re.findall(r'^#include "(tests/[^"]+)"', file.read_text(), re.MULTILINE):
        names = names | names_in(pathlib.Path(header))
    return names


def names_declared_in(file):
    """Guesses the names from the beginnings of the file's lines, each with the first namespace of the file."""
    text = re.sub(r"(?: final)? : (?:public|private) [^\n{]*| final(?= \{)|(?<=\w) : \w+(?= \{)", "", file.read_text())
    space = re.search(r"^namespace ([\w:]+) \{", text, re.MULTILINE)
    declared = re.findall(r"^(?!using|namespace|template|TEST|return|extern)[A-Za-z_][^\n;=({#\"]*?(?<!::)\b(\w+)\s*(?:[;=({]|$)", text, re.MULTILINE)
    in_c = re.findall(r'^extern "C" [^\n(]*?(\w+)\(', text, re.MULTILINE)
    types = re.findall(r"^using (\w+) = ([^;]*);", text, re.MULTILINE)
    imported = [(name, whole) for whole, name in re.findall(r"^using ([\w:]+::(\w+));", text, re.MULTILINE)]
    names = {(space and space[1], name): meaning for name, meaning in [*types, *imported, *((name, file) for name in declared if name not in ENTRY_POINTS)]}
    return names | dict.fromkeys(in_c, file)


def group_without_conflicts(sources):
    """Returns groups of at most SIZE sources. Within a group, names_in() finds no name with two meanings."""
    groups = []
    # Tests come first: the headers of GoogleTest do not compile after declarations with names of the standard library.
    for source in sorted(sources, key=lambda source: "tests" not in source.parts):
        names = names_in(source)
        shares = (group for group in groups if len(group[1]) < SIZE and all(group[0].get(name, meaning) == meaning for name, meaning in names.items()))
        group = next(shares, None)
        if group is None:
            group = ({}, [])
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
        checks = [executor.submit(check, build, f"set_{i}_{j}", flags, group) for i, (flags, sources) in enumerate(sets) for j, group in enumerate(group_without_conflicts(sources))]
        findings = "".join(done.result() for done in checks)
    print(findings, end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
