"""For tests of what is in bench/netbed and bench/peers: whether this machine lets them make beds."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/netbed"), str(ROOT / "bench/peers")]

import os  # noqa: E402
import shutil  # noqa: E402

from bed import Bed  # noqa: E402


def why_no_bed():
    """None where there can be one."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "sysctl"):
        if shutil.which(program) is None:
            return f"there is no {program} here"
    try:
        with Bed(["probe"], "1gbit"):
            return None
    except SystemExit as error:
        return str(error)
