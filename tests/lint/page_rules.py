"""Rules of the Markdown pages: line length, headings, links and anchors."""

import re
from pathlib import Path

WIDTH = 100
# Lines here may not be longer than WIDTH at all, code and tables included: people read this page in a terminal.
STRICT = ("README.md",)


def prose_lines(text):
    """(number, line) of the lines outside of fenced code."""
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        elif not is_fenced:
            yield number, line


def headings(text):
    """(number, level, title) of each heading."""
    for number, line in prose_lines(text):
        match = re.match(r"(#{1,6}) +(.*?) *#*$", line)
        if match:
            yield number, len(match.group(1)), match.group(2)


def anchor_of(title):
    """The anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def anchors(text):
    found = set()
    for _, _, title in headings(text):
        anchor, count = anchor_of(title), 0
        while (anchor if count == 0 else f"{anchor}-{count}") in found:
            count += 1
        found.add(anchor if count == 0 else f"{anchor}-{count}")
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def is_wide_by_nature(line):
    """Tables, indented code, and lines that hold one long address."""
    return line.lstrip().startswith("|") or line.startswith("    ") or re.search(r"https?://|\]\([^)]{60,}\)", line)


def check_widths(tree):
    for path in tree.select((".md",)):
        text = tree.read(path)
        strict = path in STRICT
        for number, line in enumerate(text.splitlines(), 1) if strict else prose_lines(text):
            if len(line) > WIDTH and (strict or not is_wide_by_nature(line)):
                yield f"{path}:{number}: {len(line)} characters; the limit is {WIDTH}"


def check_headings(tree):
    """One title, in the first line; no level left out; no two sections of one name below the same title."""
    for path in tree.select((".md",)):
        previous = 0
        seen = set()
        for number, level, title in headings(tree.read(path)):
            if (level == 1) != (number == 1):
                yield f"{path}:{number}: the title of level 1 stands in line 1, and only there"
            if level > previous + 1:
                yield f"{path}:{number}: a heading of level {level} below one of level {previous}"
            if title in seen and not path.endswith("CHANGELOG.md"):
                yield f"{path}:{number}: two headings '{title}'"
            previous = level
            seen.add(title)
        if previous == 0:
            yield f"{path}: no title"


def check_links(tree):
    for path in tree.select((".md",)):
        for number, line in prose_lines(tree.read(path)):
            plain = re.sub(r"`[^`]*`", "", line)
            for target in re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r'\b(?:src|href|srcset)="([^"]+)"', plain):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                file = (tree.root / path).parent / name if name else tree.root / path
                if not file.exists():
                    yield f"{path}:{number}: link to {target}: there is no such file"
                elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                    yield f"{path}:{number}: link to {target}: {Path(file).name} has no such heading"
