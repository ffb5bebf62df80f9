#!/usr/bin/env bash
# usage: scripts/python_env.sh [FOLDER [arrays | TORCH | FRAMEWORK.txt]]
# Creates the virtual environment of the tests with the label python in FOLDER (default: build/python-venv). It contains numpy, mypy, setuptools, wheel,
# ml_dtypes, torch (5 GB), what torch's own tests need, and what trains with torch: lightning, accelerate, torchft. All presets share it. With "arrays" it stops
# before torch. TORCH is a release of torch, for example 2.4.0, and the environment then has numpy, mypy and torch only. FRAMEWORK.txt is a file of
# requirements: the environment then has numpy and these. The files FOLDER/has-arrays, FOLDER/has-small-floats, FOLDER/has-torch, FOLDER/has-torch-suite,
# FOLDER/has-trainers and FOLDER/has-FRAMEWORK mark complete installations. When an installation fails, the script exits with 77 and writes the reason to
# FOLDER.reason. PYTHON sets the interpreter.
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

# pip_setting NAME: prints the value that pip has from its files or its environment.
pip_setting() {
  "$folder/bin/python" -m pip config list 2>/dev/null | sed -nE "s/^(global|install|:env:)\.$1='(.*)'\$/\2/p" | tail -1
}

# with_pip PACKAGE...: installs the packages, or returns an error.
with_pip() {
  timeout "$DEADLINE" "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --retries 2 --timeout 20 -q "$@" >"$log" 2>&1
}

# with_uv PACKAGE...: the same, with the index and the certificates of pip. pip takes several times the processor time of uv, and environments of
# uv share files. Compiles the modules, because the tests do not write into the environment.
with_uv() {
  local index certificates
  if [[ ! -e "$folder/bin/uv" ]]; then with_pip uv || return; fi
  index=$(pip_setting index-url)
  certificates=$(pip_setting cert)
  if [[ -n $index ]]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}; fi
  if [[ -n $certificates ]]; then export SSL_CERT_FILE=${SSL_CERT_FILE:-$certificates}; fi
  UV_HTTP_TIMEOUT=20 timeout "$DEADLINE" "$folder/bin/uv" pip install -q --compile-bytecode --python "$folder/bin/python" "$@" >"$log" 2>&1
}

# install MARK PACKAGE...: installs the packages and creates the file MARK. uv does not know all settings of pip, which then is the one that works.
install() {
  local mark=$folder/$1
  shift
  if [[ -e "$mark" ]]; then return; fi
  with_uv "$@" || with_pip "$@" || skip "pip install $*" "$log"
  touch "$mark"
}

if [[ ${2:-} == *.txt ]]; then
  install has-arrays numpy setuptools wheel
  install "has-$(basename "$2" .txt)" -r "$2"
  exit 0
fi
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
