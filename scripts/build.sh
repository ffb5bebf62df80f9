# shellcheck shell=bash
# Functions that configure and build one preset. quickstart.sh and test.sh source this file from the root of the tree.

# Use ccache if it is installed. All checkouts share results: paths in the tree are relative, in debug information too.
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
fi

# One job per processor, limited by memory: the largest translation unit needs about 1.5 GiB.
build_jobs() {
  local jobs available
  jobs=${SLUICE_JOBS:-$(nproc)}
  available=$(available_memory_mib | sort -n | head -n 1)
  if [[ -n "$available" ]] && ((available / NEEDED_MEMORY_MIB < jobs)); then jobs=$((available / NEEDED_MEMORY_MIB)); fi
  if ((jobs < 1)); then jobs=1; fi
  echo "$jobs"
}

# build_preset PRESET [CMAKE-ARGUMENT...]: builds in build/PRESET all targets, or those in the array BUILD_TARGETS. build/PRESET/configure.log lists the optional parts that are not
# built, with the reason.
build_preset() {
  local preset=$1
  shift
  mkdir -p "build/$preset"
  if ! cmake --preset "$preset" "$@" >"build/$preset/configure.log" 2>&1; then
    cat "build/$preset/configure.log" >&2
    echo "cannot configure build/$preset; see the CMake output above" >&2
    return 1
  fi
  cmake --build "build/$preset" --parallel "$(build_jobs)" ${BUILD_TARGETS:+--target "${BUILD_TARGETS[@]}"}
}
