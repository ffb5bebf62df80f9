"""The command `sluice` of the wheel, and `python -m sluice`: runs the program that the wheel contains.

`python -m sluice plugin-path` prints the path of the NCCL plugin, for NCCL_NET_PLUGIN."""

from __future__ import annotations

import os
import sys

from . import nccl_plugin_path
from ._library import packaged_file
from .errors import LibraryNotFound


def main() -> None:
    try:
        if sys.argv[1:] == ["plugin-path"]:
            print(nccl_plugin_path())
            return
        os.execv(packaged_file("bin/sluice"), ["sluice", *sys.argv[1:]])
    except (LibraryNotFound, OSError) as error:
        sys.exit(f"sluice: {error}")


if __name__ == "__main__":
    main()
