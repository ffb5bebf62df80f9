"""The committed list of the cases of torch's suite that do not pass with gloo or with sluice: cases.tsv.

Each line has a case, its results "gloo's/sluice's" with 2, 3 and 4 ranks, and the reason."""

from pathlib import Path

FILE = Path(__file__).with_name("cases.tsv")
RANKS = (2, 3, 4)
PASSES = "pass/pass"
NONE = "none/none"  # the suite has no such case


def load():
    """Returns the release of torch that has these cases, and {case: {ranks: results}}."""
    release, lines = _read()
    return release, {case: dict(zip(RANKS, cells)) for case, *cells in lines}


def pair(gloo, sluice):
    """Combines the results of the two backends to {case: (results, reason)}."""
    found = {}
    for case in sorted({*gloo, *sluice}):
        (first, reason), (second, other) = gloo.get(case, ("none", "")), sluice.get(case, ("none", ""))
        found[case] = (f"{first}/{second}", reason or other)
    return found


def changes(found, ranks, listed, chosen=()):
    """Returns a sentence for each case whose results differ from the list. `chosen`: the cases that were run; none means all."""
    for case in sorted(chosen or {*found, *listed}):
        now, reason = found.get(case, (NONE, ""))
        before = listed[case][ranks] if case in listed else PASSES
        if now != before:
            yield f"{case}, {ranks} ranks: {now} with gloo/sluice, but the list has {before}; {reason}"


def update(release, ranks, found):
    """Writes the results of all cases with one number of ranks into the list."""
    rows = {case: dict(zip((*RANKS, "reason"), cells)) for case, *cells in (_read()[1] if FILE.exists() else [])}
    for case in {*rows, *found}:
        row = rows.setdefault(case, {**dict.fromkeys(RANKS, PASSES), "reason": ""})
        row[ranks], reason = found.get(case, (NONE, ""))
        row["reason"] = reason.split("http")[0].strip() or row["reason"] or "disabled by torch"
    lines = [f"# torch {release}: case, gloo/sluice with {', '.join(map(str, RANKS))} ranks, reason"]
    for case, row in sorted(rows.items()):
        if any(row[each] != PASSES for each in RANKS) and any(row[each] != NONE for each in RANKS):
            lines.append("\t".join((case, *(row[each] for each in RANKS), row["reason"])))
    FILE.write_text("\n".join(lines) + "\n")


def _read():
    title, *lines = FILE.read_text().splitlines()
    return title.split()[2].removesuffix(":"), [line.split("\t") for line in lines]
