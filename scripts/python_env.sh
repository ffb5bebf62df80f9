#!/usr/bin/env bash
# usage: scripts/python_env.sh [FOLDER]
# What tests of label python take, as a virtual environment in FOLDER (build/python-venv): numpy, mypy, setuptools, wheel, and torch, which is 5 GB.
# Made once, kept for all presets. FOLDER/has-arrays and FOLDER/has-torch are there when those are; exit 77 and FOLDER.reason say what can't be had.
# PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/python-venv}
readonly DEADLINE=900 # seconds for each of the two

mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9

# missing WHAT LOG: says why, in one line, and ends.
missing() {
  local reason
  reason="$1: $(grep -v '^ *$' "$2" | tail -1)"
  echo "$reason" >"$folder.reason"
  echo "skipped: needs pypi: $reason"
  exit 77
}

log="$folder.log"
rm -f "$folder.reason"
if [[ ! -e "$folder/has-arrays" ]]; then
  rm -rf "$folder"
  "${PYTHON:-python3}" -m venv "$folder" >"$log" 2>&1 || missing "venv" "$log"
fi

# install MARK PACKAGE...
install() {
  local mark=$folder/$1
  shift
  if [[ -e "$mark" ]]; then return; fi
  timeout "$DEADLINE" "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --retries 2 --timeout 20 -q "$@" >"$log" 2>&1 ||
    missing "pip install $*" "$log"
  touch "$mark"
}

install has-arrays numpy mypy setuptools wheel
install has-torch torch
"$folder/bin/python" -c 'import numpy, platform; from importlib.metadata import version
print("Python", platform.python_version(), "numpy", numpy.__version__, "torch", version("torch"), "mypy", version("mypy"))'
