#!/usr/bin/env bash
# usage: scripts/schema_env.sh [FOLDER]
# What checking Kubernetes manifests takes, as a virtual environment in FOLDER (build/schema-venv): the package kubernetes-validate, which carries the schemas
# of the API's releases (110 MB), with jsonschema and PyYAML. Made once, kept for all presets; FOLDER/has-schemas is there when it is whole. Exit 77, with
# the reason on stdout, where it can't be had. PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/schema-venv}
readonly DEADLINE=200 # seconds
readonly PACKAGE=kubernetes-validate==1.37.0 # with it come the schemas, so what the manifests are held to changes here alone

mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
if [[ "$(cat "$folder/has-schemas" 2>/dev/null)" == "$PACKAGE" ]]; then exit 0; fi

# missing WHAT: says why, in one line, and ends.
missing() {
  echo "$1: $(grep -v '^ *$' "$folder.log" | tail -1)"
  exit 77
}

rm -rf "$folder"
"${PYTHON:-python3}" -m venv "$folder" >"$folder.log" 2>&1 || missing "venv"
timeout "$DEADLINE" "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --retries 2 --timeout 20 -q "$PACKAGE" \
  >"$folder.log" 2>&1 || missing "pip install $PACKAGE"
echo "$PACKAGE" >"$folder/has-schemas"
