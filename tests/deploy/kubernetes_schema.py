"""Validates Kubernetes objects with the schemas of the API and rejects unknown keys. Runs in the environment of
scripts/schema_env.sh."""

import functools
import gzip
import importlib.util
import json
import re
from pathlib import Path

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

# The oldest release that the manifests support (docs/guides/deploy-kubernetes.md). The newest release is that of the package.
OLDEST = "1.27"

# Allowed values of keys in our manifests. The API server checks them, but the schemas do not.
ALLOWED_VALUES = {
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
    """Returns the folders of the package with schemas that reject unknown keys, by release."""
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
    """Returns None if the release has no such kind."""
    folder = api_folders()[release]
    group, _, version = api_version.rpartition("/")
    file = folder / f"{kind.lower()}-{group.split('.')[0] + '-' if group else ''}{version}.json"
    if not file.exists():
        return None
    schema, definitions = read(file), read(folder / "_definitions.json")
    registry = Resource.from_contents(definitions) @ (Resource.from_contents(schema) @ Registry())
    return Draft202012Validator(schema, registry=registry)


def closed(schema):
    """Returns the schema of a CRD as a JSON schema that rejects unknown keys. The API server would drop them without an error."""
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties"):
            out[key] = {name: closed(entry) for name, entry in value.items()}
        elif key in ("items", "additionalProperties"):
            out[key] = closed(value)
        else:  # the schemas in allOf, anyOf and oneOf name only some of the allowed keys
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
    """Returns {(version, kind): validator} of the custom resource definitions in crds/."""
    validators = {}
    for file in sorted((Path(__file__).parent / "crds").glob("*.json.gz")):
        crd = json.loads(gzip.decompress(file.read_bytes()))
        for version, schema in crd["versions"].items():
            strict = closed(schema)
            strict["properties"]["metadata"] = {"type": "object"}
            validators[f"{crd['group']}/{version}", crd["kind"]] = Draft202012Validator(strict)
    return validators


def location(path):
    return ".".join(map(str, path)) or "the object"


def schema_problems(validator, item):
    return [f"{location(error.absolute_path)}: {error.message[:300]}" for error in validator.iter_errors(item)]


def value_problems(node, path=()):
    """Yields the values in `node` that the API server would reject."""
    if isinstance(node, dict):
        for key, child in node.items():
            child_path = (*path, key)
            allowed = ALLOWED_VALUES.get(key)
            if key == "type" and path and path[-1] in ("hostPath", "seccompProfile"):
                allowed = HOST_PATHS if path[-1] == "hostPath" else SECCOMP
            for value in child if isinstance(child, list) else [child]:
                if allowed and value not in allowed:
                    yield f"{location(child_path)}: {value!r} is not one of {', '.join(sorted(allowed))}"
            yield from value_problems(child, child_path)
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from value_problems(child, (*path, index))


def problems_of(item):
    """Returns the problems of one object, each with its kind and name. A kind that is neither in the API nor in crds/ is also a
    problem."""
    name, kind, api_version = f"{item.get('kind')} {item.get('metadata', {}).get('name')}", item.get("kind", ""), item.get("apiVersion", "")
    if validator := custom_kinds().get((api_version, kind)):
        found = schema_problems(validator, item)
    else:
        found = []
        for release in releases():
            validator = api_validator(release, kind, api_version)
            found += schema_problems(validator, item) if validator else [f"Kubernetes {release} has no {kind} of {api_version}"]
    return [f"{name}: {problem}" for problem in [*dict.fromkeys(found), *value_problems(item)]]
