# shellcheck shell=bash
# Configure and build one preset. Sourced by quickstart.sh and test.sh, from the root of the tree.

# ccache where it is, never asked for.
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

# As many jobs as processors, and no more than memory holds: the largest translation unit takes the compiler about 1.5 GiB.
build_jobs() {
  local jobs available
  jobs=${SLUICE_JOBS:-$(nproc)}
  available=$(awk '/^MemAvailable:/ { print int($2 / 1536 / 1024) }' /proc/meminfo 2>/dev/null || true)
  if [[ -n "$available" ]] && ((available < jobs)); then jobs=$available; fi
  if ((jobs < 1)); then jobs=1; fi
  echo "$jobs"
}

# build_preset PRESET [CMAKE-ARGUMENT...]: into build/PRESET. The log of configuring stays in build/PRESET/configure.log; it names
# the optional parts that were left out and why.
build_preset() {
  local preset=$1
  shift
  mkdir -p "build/$preset"
  if ! cmake --preset "$preset" "$@" >"build/$preset/configure.log" 2>&1; then
    cat "build/$preset/configure.log" >&2
    echo "configuring build/$preset failed" >&2
    return 1
  fi
  cmake --build "build/$preset" --parallel "$(build_jobs)"
}
