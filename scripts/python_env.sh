#!/usr/bin/env bash
# usage: scripts/python_env.sh [FOLDER [arrays | TORCH]]
# Creates the virtual environment of the tests with the label python in FOLDER (default: build/python-venv). It contains numpy,
# mypy, setuptools, wheel, ml_dtypes, torch (5 GB), what torch's own tests need, and what trains with torch: lightning, accelerate,
# torchft. All presets share it. With "arrays" it stops before torch. TORCH is a release of torch, for example 2.4.0, and the environment
# then has numpy, mypy and torch only. The files FOLDER/has-arrays, FOLDER/has-small-floats, FOLDER/has-torch, FOLDER/has-torch-suite and FOLDER/has-trainers mark
# complete installations. When an installation fails, the script exits with 77 and writes the reason to FOLDER.reason. PYTHON sets
# the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/python-venv}
readonly DEADLINE=900 # seconds per installation

mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9

# skip STEP LOG: prints the reason in one line and exits with 77.
skip() {
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
  "${PYTHON:-python3}" -m venv "$folder" >"$log" 2>&1 || skip "venv" "$log"
fi

# pip's settings of the package index, for uv.
if [[ -n ${PIP_INDEX_URL:-} ]]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}; fi
if [[ -n ${PIP_CERT:-} ]]; then export SSL_CERT_FILE=${SSL_CERT_FILE:-$PIP_CERT}; fi

# install MARK PACKAGE...: installs the packages and creates the file MARK. pip takes several times the processor time of uv, and environments of
# uv share files. Compiles the modules, because the tests do not write into the environment.
install() {
  local mark=$folder/$1
  shift
  if [[ -e "$mark" ]]; then return; fi
  if [[ ! -e "$folder/bin/uv" ]]; then
    timeout "$DEADLINE" "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --retries 2 --timeout 20 -q uv >"$log" 2>&1 || skip "pip install uv" "$log"
  fi
  UV_HTTP_TIMEOUT=20 timeout "$DEADLINE" "$folder/bin/uv" pip install -q --compile-bytecode --python "$folder/bin/python" "$@" >"$log" 2>&1 ||
    skip "uv pip install $*" "$log"
  touch "$mark"
}

install has-arrays numpy mypy setuptools wheel
if (($# < 2)) || [[ $2 == arrays ]]; then install has-small-floats ml_dtypes; fi
if [[ ${2:-} == arrays ]]; then exit 0; fi
install has-torch "torch${2:+==$2}"
if (($# < 2)); then
  install has-torch-suite expecttest hypothesis
  install has-trainers lightning accelerate torchft "torch==$("$folder/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))')"
fi
"$folder/bin/python" -c 'import numpy, platform; from importlib.metadata import version
print("Python", platform.python_version(), "numpy", numpy.__version__, "torch", version("torch"), "mypy", version("mypy"))'
