"""Texts that pages quote from messages and logs are texts that the code prints: a user searches a page for what a program has said.

Quoted are: the code spans of a bold or plain lead of an item, in the sections of QUOTING; the first column of a table there; and the
messages of log lines in text blocks of all pages.
"""

import re

# Sections that list messages with their remedies, by page.
QUOTING = {
    "docs/guides/troubleshoot.md": None,  # all sections
    "docs/guides/deploy-kubernetes.md": "Problems",
    "docs/guides/deploy-slurm.md": "Problems",
    "docs/design/rdma.md": "Messages",
}
# What other programs print.
FOREIGN = {"Pending", "didn't match pod anti-affinity rules", "MountVolume.SetUp failed ... sluice-pool-key"}
SOURCES = (".cc", ".h", ".py", ".sh", ".sbatch", ".cu")
# Names, numbers and addresses in an example, in place of which the code has a variable.
VARIABLE = re.compile(r"\.\.\.|\bHOST:\d+|\b[A-Z]\b|\b[\w.:-]*\d[\w.:-]*\b")


def section(text, title):
    if title is None:
        return text
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def item_leads(text):
    """Each list item up to its first colon outside of code, and the first cell of each table row."""
    for item in re.findall(r"^\* (.*?)(?=^\* |^#|^\n|\Z)", text, re.MULTILINE | re.DOTALL):
        joined = re.sub(r"\s+", " ", item)
        lead = re.match(r"\*\*(.*?)\*\*", joined) or re.match(r"((?:`[^`]*`|[^`:])*):", joined)
        if lead:
            yield lead.group(1)
    for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE):
        yield row


def quoted_texts(page, text):
    if page in QUOTING:
        for lead in item_leads(section(text, QUOTING[page])):
            yield from re.findall(r"`([^`]+)`", lead)
    for block in re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for message in re.findall(r'^level=\w+ msg="((?:[^"\\]|\\.)*)"', block, re.MULTILINE):
            yield message.replace('\\"', '"')


def literals(text, is_cpp):
    """The code with neighboring string literals made one, as the compiler does, and without the places of format strings."""
    return re.sub(r"\{[:.\w]{0,6}\}", "", re.sub(r'"\s*\n\s*f?"', "", text) if is_cpp else text)


def is_printed(quoted, sources):
    """Whether each clause is in a source: its constant parts behind one another. Clauses may come from different places, as context and cause do."""
    for clause in re.split(r"[:;](?: |$)|[()]", quoted.replace('"', " ... ")):
        parts = [re.escape(part.strip()) for part in VARIABLE.split(clause) if re.search(r"\w", part)]
        pattern = re.compile(r"[^;]{0,400}?".join(parts))
        if not any(pattern.search(text) for text in sources):
            return False
    return True


def names_error(quoted, sources):
    """`closed.timeout`: a counter of the status by the name of an error."""
    return re.fullmatch(r"(closed|refused)\.\w+", quoted) and any(f'"{quoted.partition(".")[2]}"' in text for text in sources)


def check_quoted_messages(tree):
    sources = [literals(tree.read(path), path.endswith((".cc", ".h", ".cu"))) for path in tree.select(SOURCES) if not path.startswith("tests/")]
    for page in tree.select((".md",)):
        for quoted in quoted_texts(page, tree.read(page)):
            if quoted not in FOREIGN and not is_printed(quoted, sources) and not names_error(quoted, sources):
                yield f"{page}: nothing prints `{quoted}`"
