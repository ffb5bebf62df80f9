#!/usr/bin/env bash
# usage: scripts/schema_env.sh [FOLDER]
# Creates the virtual environment for the check of Kubernetes manifests in FOLDER (default: build/schema-venv). It contains
# kubernetes-validate with the schemas of the Kubernetes API (110 MB), jsonschema, PyYAML, and Helm as a library (244 MB). All presets
# share it. The file
# FOLDER/has-schemas marks a complete installation. Exit code 77, with the reason on stdout, when the installation fails. PYTHON
# sets the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/schema-venv}
readonly DEADLINE=250 # seconds
readonly PACKAGES=(kubernetes-validate==1.37.0 helm-python-sdk==0.2.2) # pins the schemas too

mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
if [[ "$(cat "$folder/has-schemas" 2>/dev/null)" == "${PACKAGES[*]}" ]]; then exit 0; fi

# skip STEP: prints the reason in one line and exits with 77.
skip() {
  echo "$1: $(grep -v '^ *$' "$folder.log" | tail -1)"
  exit 77
}

rm -rf "$folder"
"${PYTHON:-python3}" -m venv "$folder" >"$folder.log" 2>&1 || skip "venv"
timeout "$DEADLINE" "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --retries 2 --timeout 20 -q "${PACKAGES[@]}" \
  >"$folder.log" 2>&1 || skip "pip install ${PACKAGES[*]}"
echo "${PACKAGES[*]}" >"$folder/has-schemas"
