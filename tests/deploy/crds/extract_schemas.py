#!/usr/bin/env python3
"""usage: extract_schemas.py CRD.yaml...

Writes the schemas of these custom resource definitions next to this file, for the tests. Descriptions, which are nine tenths of
a definition, and printed columns are removed.
"""

import gzip
import json
import sys
from pathlib import Path

import yaml


def without_descriptions(schema):
    """Returns the schema without its descriptions. A property with the name "description" is kept."""
    out = {key: value for key, value in schema.items() if key != "description"}
    for key in ("properties", "patternProperties"):
        if key in out:
            out[key] = {name: without_descriptions(entry) for name, entry in out[key].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(out.get(key), dict):
            out[key] = without_descriptions(out[key])
    return out


def main():
    for source in map(Path, sys.argv[1:]):
        for crd in yaml.safe_load_all(source.read_text(encoding="utf-8")):
            spec = crd["spec"]
            extracted = {"group": spec["group"], "kind": spec["names"]["kind"],
                         "versions": {version["name"]: without_descriptions(version["schema"]["openAPIV3Schema"]) for version in spec["versions"]}}
            text = json.dumps(extracted, separators=(",", ":")) + "\n"
            target = Path(__file__).parent / f"{crd['metadata']['name']}.json.gz"
            target.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
