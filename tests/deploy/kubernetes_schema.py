"""Kubernetes objects against the API's own schemas, with unknown keys refused. Runs in the environment of scripts/schema_env.sh."""

import functools
import gzip
import importlib.util
import json
import re
from pathlib import Path

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

# The oldest release that the manifests say they are for (docs/kubernetes.md), and the newest that the package knows.
OLDEST = "1.27"

# The schemas leave most words open that the API server does not: those that stand in our manifests.
WORDS = {
    "podManagementPolicy": {"OrderedReady", "Parallel"},
    "restartPolicy": {"Always", "OnFailure", "Never"},
    "dnsPolicy": {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
    "unhealthyPodEvictionPolicy": {"IfHealthyBudget", "AlwaysAllow"},
    "completionMode": {"NonIndexed", "Indexed"},
    "policyTypes": {"Ingress", "Egress"},
}
HOST_PATHS = {"", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"}
SECCOMP = {"RuntimeDefault", "Unconfined", "Localhost"}


def api_folders():
    """The package's folders of schemas that refuse unknown keys, by release."""
    package = Path(importlib.util.find_spec("kubernetes_validate").origin).parent
    return {match.group(1): folder for folder in package.glob("kubernetes-json-schema/*-local-strict") if (match := re.match(r"v(\d+\.\d+)\.", folder.name))}


def releases():
    known = sorted(api_folders(), key=lambda release: [int(part) for part in release.split(".")])
    return [OLDEST, known[-1]]


@functools.cache
def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@functools.cache
def api_validator(release, kind, api_version):
    """None where the release has no such kind."""
    folder = api_folders()[release]
    group, _, version = api_version.rpartition("/")
    file = folder / f"{kind.lower()}-{group.split('.')[0] + '-' if group else ''}{version}.json"
    if not file.exists():
        return None
    schema, definitions = read(file), read(folder / "_definitions.json")
    registry = Resource.from_contents(definitions) @ (Resource.from_contents(schema) @ Registry())
    return Draft202012Validator(schema, registry=registry)


def closed(schema):
    """A CRD's schema as a JSON schema that refuses what it does not name. The API server drops such keys without a word."""
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties"):
            out[key] = {name: closed(entry) for name, entry in value.items()}
        elif key in ("items", "additionalProperties"):
            out[key] = closed(value)
        else:  # what stands in allOf and its like names only parts of what is allowed
            out[key] = value
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    elif schema.get("type") == "object" and "properties" in schema and "additionalProperties" not in schema \
            and not schema.get("x-kubernetes-preserve-unknown-fields"):
        out["additionalProperties"] = False
    if schema.get("nullable") and "type" in out:
        out["type"] = [out["type"], "null"]
    return out


@functools.cache
def custom_kinds():
    """{(version, kind): validator} of the custom resource definitions in crds/."""
    validators = {}
    for file in sorted((Path(__file__).parent / "crds").glob("*.json.gz")):
        crd = json.loads(gzip.decompress(file.read_bytes()))
        for version, schema in crd["versions"].items():
            refusing = closed(schema)
            refusing["properties"]["metadata"] = {"type": "object"}
            validators[f"{crd['group']}/{version}", crd["kind"]] = Draft202012Validator(refusing)
    return validators


def place(path):
    return ".".join(map(str, path)) or "the object"


def complaints(validator, thing):
    return [f"{place(error.absolute_path)}: {error.message[:300]}" for error in validator.iter_errors(thing)]


def word_problems(thing, path=()):
    """Words that the API server would refuse, below `thing`."""
    problems = []
    if isinstance(thing, dict):
        for key, value in thing.items():
            here = (*path, key)
            words = WORDS.get(key)
            if key == "type" and path and path[-1] in ("hostPath", "seccompProfile"):
                words = HOST_PATHS if path[-1] == "hostPath" else SECCOMP
            for word in value if isinstance(value, list) else [value]:
                if words and word not in words:
                    problems.append(f"{place(here)}: {word!r} is none of {', '.join(sorted(words))}")
            problems += word_problems(value, here)
    elif isinstance(thing, list):
        for index, value in enumerate(thing):
            problems += word_problems(value, (*path, index))
    return problems


def problems_of(thing):
    """What is wrong with one object, in lines that begin with its kind and name. A kind that neither the API nor crds/ has is wrong too."""
    name, kind, api_version = f"{thing.get('kind')} {thing.get('metadata', {}).get('name')}", thing.get("kind", ""), thing.get("apiVersion", "")
    if validator := custom_kinds().get((api_version, kind)):
        found = complaints(validator, thing)
    else:
        found = []
        for release in releases():
            validator = api_validator(release, kind, api_version)
            found += complaints(validator, thing) if validator else [f"Kubernetes {release} has no {kind} of {api_version}"]
    return [f"{name}: {problem}" for problem in [*dict.fromkeys(found), *word_problems(thing)]]
