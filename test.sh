#!/usr/bin/env bash
# Runs every test that this machine can run, and lists the others with the reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly LABELS=(unit conformance functional streams fault nccl python fuzz model rdma deploy lint)

usage() {
  cat <<END
usage: ./test.sh [LABEL...]

Without a label: installs the Debian packages it needs, builds the release preset and runs all its tests, checks the format and
runs clang-tidy, then runs the tests again under the address and undefined behaviour sanitizers, and those with threads of the labels
unit, conformance, streams, fault and nccl under the thread sanitizer (by clang where that is). With labels: only those, of the release build.

Labels: ${LABELS[*]}

A test that needs something this machine lacks is skipped; the summary lists the skipped tests with the reason.

Environment:
  SLUICE_JOBS          compilers at a time (default: one for each processor)
  SLUICE_TEST_JOBS     tests at a time (default: two for each processor, at most 8)
  SLUICE_TEST_REQUIRE  capabilities, separated by commas, for which a skip is a failure; "all": whatever Debian and PyPI provide
                       (tests/capabilities/capabilities.py list)

Exit codes: 0 all tests passed or were skipped; 1 a build or test failed; 64 a wrong argument; 69 this machine lacks what the build needs.
END
}

for label in "$@"; do
  case " ${LABELS[*]} " in
    *" $label "*) ;;
    *)
      case $label in
        -h | --help)
          usage
          exit 0
          ;;
      esac
      echo "test.sh: no label $label; there are: ${LABELS[*]}" >&2
      exit 64
      ;;
  esac
done

# shellcheck source=scripts/machine.sh
source scripts/machine.sh
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
# shellcheck source=scripts/build.sh
source scripts/build.sh

# Two for each processor: half of a test's time goes by in waiting for deadlines, processes and each other.
test_jobs=${SLUICE_TEST_JOBS:-$(($(nproc) < 4 ? 2 * $(nproc) : 8))}
passed_steps=()
failed_steps=()
skipped_steps=()
test_runs=()

# step NAME COMMAND...: runs it and goes on after a failure, so that one run tells everything.
step() {
  local name=$1 begin=$SECONDS
  shift
  echo "== $name"
  if "$@"; then
    echo "-- $name: ok, $((SECONDS - begin)) s"
    passed_steps+=("$name")
  else
    echo "-- $name: FAILED, $((SECONDS - begin)) s"
    failed_steps+=("$name")
    return 1
  fi
}

# skip_step NAME PROGRAM: for a program that is missing.
skip_step() {
  local reason="needs program:$2: $2 is not installed"
  echo "== $1: skipped, $reason"
  skipped_steps+=(--skipped-step "$1=$reason")
}

# run_tests PRESET [CTEST-ARGUMENT...]: cases are counted from the JUnit file, failures of ctest itself too, by its absence.
run_tests() {
  local preset=$1 begin=$SECONDS
  shift
  local prefix=() jobs=$test_jobs
  if [[ $preset == tsan ]]; then
    # Under it tests do nothing but compute, and threads that spin for each other take longest beside others.
    jobs=$(((jobs + 1) / 2))
    # It cannot lay out its shadow where the kernel randomises more than 28 bits of addresses.
    if setarch "$(uname -m)" -R true 2>/dev/null; then prefix=(setarch "$(uname -m)" -R); fi
  fi
  local junit="$PWD/build/$preset/junit.xml"
  rm -f "$junit"
  test_runs+=("$preset=$junit")
  echo "== tests, $preset"
  "${prefix[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --parallel "$jobs" \
    --output-junit "$junit" --test-output-size-passed 4000000 --test-output-size-failed 4000000 "$@" || true
  echo "-- tests, $preset: $((SECONDS - begin)) s"
}

# One regular expression that matches exactly the labels given.
labels_regex() {
  local IFS='|'
  echo "^($*)\$"
}

finish() {
  local reason
  echo
  echo "== summary, $((SECONDS / 60)) min $((SECONDS % 60)) s"
  # The optional parts that CMake left out.
  sed -n 's/^-- *\(.*: not built, .*\)$/\1/p' build/*/configure.log | sort -u
  for reason in "${failed_steps[@]}"; do echo "failed: $reason"; done
  python3 scripts/test_report.py --other-passed "${#passed_steps[@]}" --other-failed "${#failed_steps[@]}" \
    --require "${SLUICE_TEST_REQUIRE:-}" "${skipped_steps[@]}" "${test_runs[@]}"
  exit
}

check_machine
echo "== packages"
install_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" || exit "$EXIT_UNAVAILABLE"
check_tools
install_packages "${CHECK_PACKAGES[@]}" || true # tests that need them are skipped
install_packages "${PEER_PACKAGES[@]}" || true
install_packages "${RDMA_PACKAGES[@]}" || true
install_packages "${DEPLOY_PACKAGES[@]}" || true

echo "== capabilities of this machine"
export SLUICE_TEST_CAPABILITIES="$PWD/build/capabilities.tsv"
python3 -B tests/capabilities/capabilities.py check --out "$SLUICE_TEST_CAPABILITIES"

step "build release" build_preset release -DSLUICE_TESTS=ON -DSLUICE_TESTS_TOGETHER=ON -DSLUICE_WERROR=ON || finish
if (($# > 0)); then
  run_tests release -L "$(labels_regex "$@")"
  finish
fi
run_tests release

if command -v clang-format-14 >/dev/null; then
  step "format" scripts/format.sh --check || true
else
  skip_step "format" clang-format-14
fi
if command -v clang-tidy-14 >/dev/null && command -v clang++-14 >/dev/null; then
  step "clang-tidy" scripts/tidy.sh || true
else
  skip_step "clang-tidy" clang-tidy-14
fi

# clang takes half of g++'s time for what it does not optimise, and of its thread sanitizer the programs are done in two thirds of the time.
sanitizers_compiler=()
if command -v clang++-14 >/dev/null && [[ -e $(clang++-14 --print-file-name="libclang_rt.asan-$(uname -m).a") ]]; then
  sanitizers_compiler=(--fresh -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14)
fi
if step "build asan-ubsan" build_preset asan-ubsan -DSLUICE_WITH_BENCHMARK=OFF "${sanitizers_compiler[@]}"; then
  run_tests asan-ubsan -LE '^lint$'
fi
if step "build tsan" build_preset tsan -DSLUICE_WITH_BENCHMARK=OFF "${sanitizers_compiler[@]}"; then
  run_tests tsan -LE '^lint$'
fi
finish
