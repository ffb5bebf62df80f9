# shellcheck shell=bash
# Checks whether this machine can build Sluice. quickstart.sh and test.sh source this file before they install or build.

readonly EXIT_UNAVAILABLE=69 # a requirement is missing; one line on stderr states it

# Requirements of the release build with tests: disk space, and memory of one compiler process.
# Tests set the variables to values that no machine meets.
readonly NEEDED_DISK_MIB=${SLUICE_TEST_DISK_MIB:-4096}
readonly NEEDED_MEMORY_MIB=${SLUICE_TEST_MEMORY_MIB:-1536}
readonly NEEDED_CMAKE=3.25
readonly NEEDED_GLIBC=2.34
readonly NEEDED_COMPILER=12 # g++, for C++20
readonly SUPPORTED="Debian 12 and 13 and Ubuntu 24.04"

unavailable() {
  echo "${0##*/}: $1" >&2
  exit "$EXIT_UNAVAILABLE"
}

# at_least VERSION NEEDED
at_least() { [[ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" == "$2" ]]; }

# available_memory_mib: prints the free memory, within the limit of the container; nothing if it is unknown.
available_memory_mib() {
  local group=/sys/fs/cgroup limit used cache
  awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null || return 0
  limit=$(cat $group/memory.max 2>/dev/null || cat $group/memory/memory.limit_in_bytes 2>/dev/null || echo max)
  used=$(cat $group/memory.current 2>/dev/null || cat $group/memory/memory.usage_in_bytes 2>/dev/null || echo 0)
  # The files of a build stay in the page cache, which counts as used and is free when it is needed.
  cache=$(cat $group/memory.stat $group/memory/memory.stat 2>/dev/null | awk '$1 == "inactive_file" || $1 == "active_file" { n += $2 } END { printf "%.0f", n }' || true)
  if [[ "$limit" =~ ^[0-9]+$ ]]; then echo $(((limit - used + ${cache:-0}) / 1048576)); fi
}

# check_distribution: Sluice builds with the packages of SUPPORTED. On other distributions the tools must be installed.
check_distribution() {
  local id version name
  # shellcheck disable=SC1090
  IFS=$'\t' read -r id version name < <(source "${SLUICE_TEST_OS_RELEASE:-/etc/os-release}" 2>/dev/null &&
    printf '%s\t%s\t%s\n' "${ID:-}" "${VERSION_ID:-99}" "${PRETTY_NAME:-}" || true) || true
  case ${id:-} in
    debian) if at_least "$version" 12; then return; fi ;;
    ubuntu) if at_least "$version" 24.04; then return; fi ;;
    *) if [[ $(command -v g++ cmake ninja | wc -l) == 3 ]]; then return; fi ;;
  esac
  unavailable "cannot build on ${name:-this distribution}: $SUPPORTED are supported; what ./release.sh makes there runs here"
}

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
  found=$(available_memory_mib | sort -n | head -n 1)
  if [[ -n "$found" ]] && ((found < NEEDED_MEMORY_MIB)); then
    unavailable "this machine has $found MiB of free memory; the compiler needs $NEEDED_MEMORY_MIB MiB"
  fi
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }' || true)
  if [[ -z "$found" ]] || ! at_least "$found" "$NEEDED_GLIBC"; then
    unavailable "glibc $NEEDED_GLIBC or newer is needed; this machine has ${found:-another C library}"
  fi
  check_distribution
}

# check_tools: checks tool versions; call it after the packages are installed.
check_tools() {
  local found compiler
  read -ra compiler <<<"${CXX:-c++}" # as CMake reads it: a program and arguments
  found=$(cmake --version 2>/dev/null | awk 'NR == 1 { print $3 }' || true)
  if [[ -z "$found" ]] || ! at_least "$found" "$NEEDED_CMAKE"; then
    unavailable "CMake $NEEDED_CMAKE or newer is needed; this machine has ${found:-none}"
  fi
  found=$("${compiler[@]}" -dumpfullversion -dumpversion 2>/dev/null | head -n 1 || true)
  if [[ -z "$found" ]]; then
    unavailable "no C++ compiler: ${CXX:-c++} is not installed or does not run; install g++ $NEEDED_COMPILER or newer"
  fi
  if ! at_least "$found" "$NEEDED_COMPILER" && "${compiler[@]}" --version | grep -q 'Free Software Foundation'; then
    unavailable "g++ $NEEDED_COMPILER or newer is needed; ${CXX:-c++} has version $found"
  fi
}
