"""Writes what a test program proved about NCCL's releases and interface versions, for compatibility/compatibility.py."""

import os
from pathlib import Path


class Evidence:
    """The rows of one test program. They go to the file SLUICE_EVIDENCE when all its cases passed; without the variable, nowhere."""

    def __init__(self, is_whole_program):
        """`is_whole_program`: no case was excluded on the command line."""
        name = os.environ.get("SLUICE_EVIDENCE")
        self._path = Path(name) if name and is_whole_program else None
        self._rows = []
        if self._path:
            self._path.unlink(missing_ok=True)  # from an earlier run

    def add(self, feature, subject, kind):
        """`subject` is an interface version ("v8") or a release of NCCL ("2.20.5"), `kind` "played" or "loaded"."""
        self._rows.append(f"{feature}\t{subject}\t{kind}\n")

    def write(self):
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text("".join(self._rows))


def run_and_record(evidence, run):
    """Calls `run`, which ends the process like unittest.main(), and writes the evidence if all cases passed."""
    try:
        run()
    except SystemExit as end:
        if not end.code:
            evidence.write()
        raise
