"""What tests of label deploy are told: the root of the tree, the build's folder, and so the program."""

import argparse
import sys
import time
import unittest
from pathlib import Path

DEADLINE_S = 60

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = None


def skip(reason):
    """Ends the test as one that this machine cannot run."""
    print(f"skipped: {reason}")
    sys.exit(77)


def until(what, condition, process=None):
    """Polls until condition() is true and returns that; fails after DEADLINE_S, or when `process` has ended, naming `what`."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        if process is not None and process.poll() is not None:
            raise AssertionError(f"the process has ended with {process.returncode} before {what}")
        time.sleep(0.02)
    raise AssertionError(f"not within {DEADLINE_S} s: {what}")


def main(why_not=None):
    """Entry of a test file: --root, --build, then what unittest takes. `why_not` returns why this machine cannot run it, or None."""
    global ROOT, PROGRAM
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--build", type=Path, required=True)
    arguments, rest = parser.parse_known_args()
    ROOT = arguments.root.resolve()
    PROGRAM = arguments.build.resolve() / "bin" / "sluice"
    if not PROGRAM.exists():
        skip(f"{PROGRAM} is not built")
    if why_not is not None and (reason := why_not()):
        skip(reason)
    unittest.main(argv=[sys.argv[0], *rest], module="__main__", verbosity=2)
