"""The rules of rules.toml, each a function from a tree to lines "path[:line]: what is wrong"."""

import ast
import collections
import graphlib
import os
import re
import shutil
import statistics
import subprocess
import tomllib
from pathlib import Path

SOURCES = (".h", ".cc", ".c", ".cu")
CODE = SOURCES + (".py", ".sh", ".cmake")
TEXT = CODE + (".md", ".txt", ".toml", ".json", ".yaml", ".yml", ".service", ".hex")
LEFT_OUT = {"build", ".git", "__pycache__"}
PUBLIC_HEADERS = "gpu_client/include/"


def load_rules(path):
    with open(path, "rb") as file:
        return tomllib.load(file)


class Tree:
    """The files below `root`, as paths relative to it."""

    def __init__(self, root):
        self.root = Path(root)
        self.files = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
            self.files += [(Path(folder) / name).relative_to(self.root).as_posix() for name in sorted(names)]

    def select(self, suffixes):
        return [path for path in self.files if path.endswith(suffixes)]

    def read(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def shell_scripts(self):
        for path in self.files:
            if path.endswith(".sh"):
                yield path
            elif "." not in Path(path).name:
                with open(self.root / path, "rb") as file:
                    if re.match(rb"#!.*\b(ba)?sh\b", file.readline(200)):
                        yield path


def is_below(path, folder):
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def includes_of(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(<|")([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1) == "<", match.group(2)


def check_library(rules, path, header):
    """None when `header` is no library's; otherwise a possibly empty complaint."""
    for library in rules["library"]:
        if any(header.startswith(prefix) for prefix in library["headers"]):
            seen = path.startswith("tests/") or any(is_below(path, folder) for folder in library["seen_by"])
            places = ", ".join(library["seen_by"]) or "tests only"
            return "" if seen else f"{library['name']} ({header}) may be seen by: {places}"
    return None


def check_includes(tree, rules):
    folders = sorted(rules["folder"], key=lambda entry: -len(entry["path"]))
    for path in tree.select(SOURCES):
        folder = next((entry for entry in folders if is_below(path, entry["path"])), None)
        if folder is None:
            yield f"{path}: no folder of rules.toml covers it"
            continue
        for number, is_angled, header in includes_of(tree.read(path)):
            place = f"{path}:{number}"
            complaint = check_library(rules, path, header)
            if complaint is not None:
                if complaint:
                    yield f"{place}: {complaint}"
                continue
            if is_angled:
                system = any(header.startswith(prefix) for prefix in rules["system"]["headers"])
                if "/" in header and not system and not header.startswith("sluice/"):
                    yield f"{place}: <{header}> is of no library in rules.toml"
                if not header.startswith("sluice/"):
                    continue
            target = PUBLIC_HEADERS + header if header.startswith("sluice/") else header
            if not (tree.root / target).is_file():
                yield f'{place}: "{header}" is no file below the root of the tree'
            elif not any(is_below(target, allowed) for allowed in folder["may_include"]):
                yield f"{place}: {folder['path']} may not include {target}"


def check_pragma_once(tree):
    """Highway's *-inl.h have guards of their own; the public C header is for compilers of others."""
    for path in tree.select((".h",)):
        if path.endswith("-inl.h") or path.startswith(PUBLIC_HEADERS):
            continue
        if not re.search(r"^#pragma once$", tree.read(path), re.MULTILINE):
            yield f"{path}: #pragma once is missing"


def modules_imported(text, path, modules):
    """The files of `modules` that the Python file imports with relative imports, also in functions and for type checkers."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            package = Path(path).parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for name in node.names:
                files = [f"{package / name.name}.py", f"{package / name.name}/__init__.py", f"{package}.py", f"{package}/__init__.py"]
                yield from [file for file in files if file in modules][:1]


def check_tidy_filter(tree):
    """A room whose headers clang-tidy leaves out is a room that it does not check. The public headers are C, with names of their own."""
    if ".clang-tidy" not in tree.files:
        return
    pattern = re.search(r"^HeaderFilterRegex: '(.*)'$", tree.read(".clang-tidy"), re.MULTILINE)[1]
    for path in tree.select((".h",)):
        if not path.startswith(PUBLIC_HEADERS) and not re.search(pattern, f"/{path}"):
            yield f"{path}: HeaderFilterRegex of .clang-tidy does not match it"


def check_python_circles(tree):
    modules = {path for path in tree.files if path.endswith(".py") and path.startswith("gpu_client/python/src/")}
    graph = {path: set(modules_imported(tree.read(path), path, modules)) - {path} for path in modules}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"{error.args[1][0]}: a circle of imports: {' <- '.join(error.args[1])}"


def check_sizes(tree, rules):
    limits = rules["files"]
    for path in tree.select(CODE) + tree.select(("CMakeLists.txt", ".md")):
        limit = limits["most_page_lines" if path.endswith(".md") else "most_test_lines" if path.startswith("tests/") else "most_lines"]
        lines = tree.read(path).count("\n")
        if lines > limit:
            yield f"{path}: {lines} lines, the limit is {limit}"


def check_folders(tree, rules):
    """A folder is a list that a reader takes in at a glance."""
    units = collections.defaultdict(set)
    for path in tree.select(CODE):
        folder = Path(path).parent.as_posix()
        if not folder.startswith("tests") and folder not in rules["files"]["large_folders"]:
            units[folder].add(Path(path).stem)
    most = rules["files"]["most_units_of_a_folder"]
    return [f"{folder}: {len(names)} units, the limit is {most}" for folder, names in sorted(units.items()) if len(names) > most]


def describe_sizes(tree):
    sizes = sorted(tree.read(path).count("\n") for path in tree.select(SOURCES))
    if not sizes:
        return "no C++ files"
    p90 = sizes[min(len(sizes) - 1, len(sizes) * 9 // 10)]
    return f"{len(sizes)} C++ files: median {statistics.median(sizes):.0f} lines, p90 {p90}, largest {sizes[-1]}"


def check_names(tree, rules):
    banned = set(rules["files"]["banned_words"])
    for path in tree.files:
        for part in Path(path).parts:
            word = banned.intersection(re.split(r"[^a-z0-9]+", part.lower()))
            if word:
                yield f"{path}: '{word.pop()}' in a name says nothing about what is inside"


def check_lines(tree, pattern, complaint, suffixes=TEXT):
    for path in tree.select(suffixes) + list(tree.shell_scripts()):
        if path.startswith("tests/lint/"):
            continue
        for number, line in enumerate(tree.read(path).splitlines(), 1):
            match = re.search(pattern, line)
            if match:
                yield f"{path}:{number}: {complaint}: {match.group(0).strip()}"


def check_machine_paths(tree):
    return check_lines(tree, r"(?<![\w.])/(home|root|work|Users|mnt)/\w", "path of one machine")


def check_open_ends(tree):
    return check_lines(tree, r"\b(TODO|FIXME|XXX)\b", "unfinished work belongs into an issue")


def check_shell(tree):
    shellcheck = shutil.which("shellcheck")
    for path in tree.shell_scripts():
        commands = [["bash", "-n", path]]
        if shellcheck:
            commands.append([shellcheck, path])
        for command in commands:
            run = subprocess.run(command, cwd=tree.root, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                yield f"{path}: {command[0]}: {(run.stdout + run.stderr).strip()}"

