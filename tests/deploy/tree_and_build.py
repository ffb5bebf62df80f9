"""What tests of label deploy are told: the root of the tree, the build's folder, and so the program."""

import argparse
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = None


def skip(reason):
    """Ends the test as one that this machine cannot run."""
    print(f"skipped: {reason}")
    sys.exit(77)


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
