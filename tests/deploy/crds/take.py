#!/usr/bin/env python3
"""usage: take.py CRD.yaml...: takes the schemas of these custom resource definitions in, beside this file, as the tests need them: without the
descriptions, which are nine tenths of them, and printed columns."""

import gzip
import json
import sys
from pathlib import Path

import yaml


def bare(schema):
    """A schema without its descriptions. A property may be called so: its name is not the schema's."""
    out = {key: value for key, value in schema.items() if key != "description"}
    for key in ("properties", "patternProperties"):
        if key in out:
            out[key] = {name: bare(entry) for name, entry in out[key].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(out.get(key), dict):
            out[key] = bare(out[key])
    return out


def main():
    for source in map(Path, sys.argv[1:]):
        for crd in yaml.safe_load_all(source.read_text(encoding="utf-8")):
            spec = crd["spec"]
            taken = {"group": spec["group"], "kind": spec["names"]["kind"],
                     "versions": {version["name"]: bare(version["schema"]["openAPIV3Schema"]) for version in spec["versions"]}}
            text = json.dumps(taken, separators=(",", ":")) + "\n"
            target = Path(__file__).parent / f"{crd['metadata']['name']}.json.gz"
            target.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
