"""usage: in_environment.py NEEDS FOLDER TEST.py --sluice PROGRAM --library FILE [ARGUMENT...]: runs the test with the interpreter of FOLDER, the
environment of scripts/python_env.sh. Exits with 77 and the reason if the environment lacks what the test NEEDS: arrays,
small-floats, torch, torch-suite, trainers, or the name of a framework."""

import os
import sys
from pathlib import Path

from package_test_bed import variables


def main():
    needs, folder, test = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    if not (folder / f"has-{needs}").exists():
        reason = Path(f"{folder}.reason")
        print(f"skipped: needs pypi: {reason.read_text().strip() if reason.exists() else f'{folder} does not exist'}")
        sys.exit(77)
    interpreter = str(folder / "bin" / "python")
    sys.stdout.flush()
    for_tests = {name: value for name, value in os.environ.items() if name.startswith(("SLUICE_TEST_", "SLUICE_UPDATE_"))}
    os.execve(interpreter, [interpreter, "-B", *test], {**variables(), **for_tests})


if __name__ == "__main__":
    main()
