"""usage: examples_rank.py PORT...: a rank that runs the examples of torch one after the other with gloo, then with sluice, and at last FSDP2 over gloo
with gradients through reducers, each with its port for the first rank. One process for all, because the import of torch takes seconds. The variables are
those of torchrun. Before the output of each example it prints its name and the backend."""

import importlib.util
import itertools
import os
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "torch"
BACKENDS = ("gloo", "sluice")
OFFLOADED = ("gloo --wire f32", "train_fsdp2")
SCRIPTS = ("train_ddp", "train_fsdp2", "train_hsdp", "train_lightning", "train_accelerate")


def main():
    ports = sys.argv[1:]
    for (backend, name), port in zip([*itertools.product(BACKENDS, SCRIPTS), OFFLOADED], ports, strict=True):
        os.environ["MASTER_PORT"] = port
        if os.environ["RANK"] == "0":
            print(f"== {name} {backend}", flush=True)
        specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        script = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(script)
        sys.argv[1:] = ["--backend", *backend.split()]
        script.main()


if __name__ == "__main__":
    main()
