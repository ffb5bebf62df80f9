"""The words that the project no longer uses (retired_words.toml), and where they still stand."""

import re
import tomllib
from pathlib import Path

TABLE = Path(__file__).with_name("retired_words.toml")
# Generated data and texts of other projects.
LEFT_OUT = ("LICENSE", "LICENSES/", "docs/results/", "tests/lint/", "tests/fuzz/corpus/", "deploy/packaging/debian/copyright")
CXX_SUFFIXES = (".h", ".hpp", ".cc", ".c", ".cu")
TEXT_SUFFIXES = (".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".py", ".pyi", ".sh", ".cmake", ".md", ".txt", ".toml", ".yaml", ".yml", ".service", ".sbatch",
                 ".pml", ".js", ".html", ".css", ".conf", ".in", ".map")


def load_table(path=TABLE):
    with open(path, "rb") as file:
        return tomllib.load(file)


def words_of(line):
    """Each word of a line in lower case, with identifiers taken apart: HeartbeatMonitor and heartbeat_monitor both hold "monitor"."""
    for run in re.findall(r"[A-Za-z]+", line):
        for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", run):
            yield word.lower()


class RetiredWords:
    def __init__(self, table):
        self.words = {word: entry["use"] for entry in table.get("word", []) for word in entry["words"]}
        self.identifiers = {name: entry["use"] for entry in table.get("identifier", []) for name in entry["names"]}
        self.phrases = [(re.compile(entry["pattern"], re.IGNORECASE), entry["use"]) for entry in table.get("phrase", [])]
        self.public = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in table.get("public", {}).get("names", [])) or "(?!)")
        self.exceptions = {(entry["path"], entry["word"]) for entry in table.get("exception", [])}
        self.used_exceptions = set()

    def allowed(self, path, word):
        hit = (path, word) in self.exceptions
        if hit:
            self.used_exceptions.add((path, word))
        return hit

    def found_in(self, path, line):
        """(what stands there, what to use) for each retired word of the line."""
        line = self.public.sub("", line)
        for word in words_of(line):
            if word in self.words and not self.allowed(path, word):
                yield word, self.words[word]
        for name in re.findall(r"\w+", line) if path.endswith(CXX_SUFFIXES) else ():
            if name in self.identifiers and not self.allowed(path, name):
                yield name, self.identifiers[name]
        for pattern, use in self.phrases:
            match = pattern.search(line)
            if match and not self.allowed(path, match.group(0).lower()):
                yield match.group(0), use


def check_words(tree, table):
    """Problems of all text files and of their names; exceptions that nothing needs are problems too."""
    retired = RetiredWords(table)
    for path in tree.files:
        if path.startswith(LEFT_OUT):
            continue
        for found, use in retired.found_in(path, path):
            yield f"{path}: the name has '{found}'; use {use}"
        if not (path.endswith(TEXT_SUFFIXES) or "." not in Path(path).name):
            continue
        for number, line in enumerate(tree.read(path).splitlines(), 1):
            for found, use in retired.found_in(path, line):
                yield f"{path}:{number}: '{found}' is retired; use {use}"
    for path, word in sorted(retired.exceptions - retired.used_exceptions):
        yield f"retired_words.toml: the exception of '{word}' in {path} is not needed"
