#!/usr/bin/env bash
# usage: scripts/arm64_libraries.sh FOLDER
# Downloads Debian's arm64 packages of the libraries of the reducer and unpacks them into FOLDER, for cmake/aarch64.cmake. Does
# not install packages and does not change the package lists of the machine. Exit code 77, with the reason on stderr, when the
# packages are not available.
set -euo pipefail

readonly PACKAGES=(
  libexpected-dev libc-ares-dev libhwy-dev libhwy1 libboost1.74-dev libspdlog-dev libspdlog1.10 libfmt-dev libfmt9 libcli11-dev nlohmann-json3-dev
  zlib1g-dev zlib1g libssl-dev libssl3 libibverbs-dev libtomlplusplus-dev prometheus-cpp-dev libprometheus-cpp-core1.0 libgtest-dev libgmock-dev
)

root=$(mkdir -p "$1" && cd "$1" && pwd)
if [[ "$(cat "$root/.packages" 2>/dev/null)" == "${PACKAGES[*]}" ]]; then
  exit 0
fi
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
mkdir -p "$lists"/{state/lists/partial,cache/archives/partial,packages}
: >"$lists/status"
apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Acquire::Languages=none -o Acquire::Retries=3
  -o "Dir::State=$lists/state" -o "Dir::State::status=$lists/status" -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=root)
if ! "${apt[@]}" update >"$lists/log" 2>&1 || ! (cd "$lists/packages" && "${apt[@]}" download "${PACKAGES[@]}" >>"$lists/log" 2>&1); then
  tail -n 5 "$lists/log" >&2
  echo "arm64_libraries.sh: cannot download the arm64 packages; see the apt-get output above" >&2
  exit 77
fi
if [[ -e "$root/.packages" ]]; then
  find "$root" -mindepth 1 -delete # remove the packages of an older list
elif [[ -n "$(ls -A "$root")" ]]; then
  echo "arm64_libraries.sh: $root is not empty and was not created by this script" >&2
  exit 64
fi
: >"$root/.packages" # incomplete until the end of the script
for package in "$lists"/packages/*.deb; do dpkg -x "$package" "$root"; done
echo "${PACKAGES[*]}" >"$root/.packages"
