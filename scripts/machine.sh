# shellcheck shell=bash
# Checks whether this machine can build Sluice. quickstart.sh and test.sh source this file before they install or build.

readonly EXIT_UNAVAILABLE=69 # a requirement is missing; one line on stderr states it

# Requirements of the release build with tests: disk space, and memory of one compiler process.
# Tests set the variables to values that no machine meets.
readonly NEEDED_DISK_MIB=${SLUICE_TEST_DISK_MIB:-4096}
readonly NEEDED_MEMORY_MIB=${SLUICE_TEST_MEMORY_MIB:-1536}
readonly NEEDED_CMAKE=3.25
readonly NEEDED_GLIBC=2.34

unavailable() {
  echo "${0##*/}: $1" >&2
  exit "$EXIT_UNAVAILABLE"
}

# at_least VERSION NEEDED
at_least() { [[ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" == "$2" ]]; }

# check_machine: ends the script with one line on stderr when the build cannot succeed on this machine.
check_machine() {
  local found
  if ! { mkdir -p build && : >build/.writable && rm -f build/.writable; } 2>/dev/null; then
    unavailable "user $(id -un 2>/dev/null || id -u) cannot write to $PWD/build"
  fi
  found=$(df -Pm build | awk 'NR == 2 { print $4 }')
  if ((found < NEEDED_DISK_MIB)); then
    unavailable "$PWD/build has $found MiB of free disk space; the build needs $NEEDED_DISK_MIB MiB"
  fi
  found=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null || true)
  if [[ -n "$found" ]] && ((found < NEEDED_MEMORY_MIB)); then
    unavailable "this machine has $found MiB of free memory; the compiler needs $NEEDED_MEMORY_MIB MiB"
  fi
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }' || true)
  if [[ -z "$found" ]] || ! at_least "$found" "$NEEDED_GLIBC"; then
    unavailable "glibc $NEEDED_GLIBC or newer is needed; this machine has ${found:-another C library}"
  fi
}

# check_tools: checks tool versions; call it after the packages are installed.
check_tools() {
  local found
  found=$(cmake --version 2>/dev/null | awk 'NR == 1 { print $3 }' || true)
  if [[ -z "$found" ]] || ! at_least "$found" "$NEEDED_CMAKE"; then
    unavailable "CMake $NEEDED_CMAKE or newer is needed; this machine has ${found:-none}"
  fi
}
