#!/usr/bin/env bash
# Builds Sluice, runs its tests, and lists what did not run with the reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly LABELS=(unit conformance functional streams fault nccl python torch frameworks fuzz model rdma deploy lint)
# The labels of the short run, without the tests that also have the label long.
readonly SHORT_LABELS=(unit conformance functional streams fault nccl python lint)

usage() {
  cat <<END
usage: ./test.sh [--all | LABEL...]

Without an argument: installs the required Debian packages, builds the release preset, checks the format, and runs the tests that show
that Sluice works on this machine: those with the labels ${SHORT_LABELS[*]}, without the long ones. It takes 7 to 14 minutes on two
processors without a compiler cache. The summary lists what it leaves out.

--all: runs all tests. Then runs the tests again with the address and undefined behavior sanitizers, and the multi-threaded tests of the
labels unit, conformance, streams, fault and nccl with the thread sanitizer (with clang if installed). Runs clang-tidy beside the
tests. It takes 40 to 80 minutes on two processors, and downloads 7 GB.

With labels: runs all tests with these labels in the release build. The tests with the label torch, and most with the label frameworks,
run only if they are named: PyTorch's own test suite takes 10 minutes, older releases of torch 10 GB, and so do other frameworks.

Labels: ${LABELS[*]}

Tests whose requirements this machine does not meet are skipped; the summary lists them with the reason.

Environment:
  SLUICE_JOBS          number of parallel compiler processes (default: one per processor)
  SLUICE_TEST_JOBS     number of parallel tests (default: two per processor, at most 8)
  SLUICE_TEST_REQUIRE  comma-separated capabilities for which a skip is a failure; "all": all that Debian and PyPI provide
                       (tests/capabilities/capabilities.py list)

Exit codes: 0 all tests passed or were skipped; 1 a build or test failed; 64 invalid argument; 69 this machine cannot build Sluice.
END
}

all=0
labels=()
for argument in "$@"; do
  case " ${LABELS[*]} " in
    *" $argument "*)
      labels+=("$argument")
      continue
      ;;
  esac
  case $argument in
    -h | --help)
      usage
      exit 0
      ;;
    --all) all=1 ;;
    *)
      echo "test.sh: unknown argument $argument; expected --all or labels: ${LABELS[*]}" >&2
      exit 64
      ;;
  esac
done
if ((all && ${#labels[@]} > 0)); then
  echo "test.sh: --all runs the tests with all labels; name no labels beside it" >&2
  exit 64
fi
mode=short
if ((all)); then mode=all; elif ((${#labels[@]} > 0)); then mode=labels; fi

# shellcheck source=scripts/machine.sh
source scripts/machine.sh
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
# shellcheck source=scripts/build.sh
source scripts/build.sh

# Two per processor, because tests spend half of their time waiting for deadlines and processes.
test_jobs=${SLUICE_TEST_JOBS:-$(($(nproc) < 4 ? 2 * $(nproc) : 8))}
passed_steps=()
failed_steps=()
skipped_steps=()
test_runs=()
declare -A beside_tests=() # process of each step that runs beside the tests
last_beside=

# step NAME COMMAND...: runs a step and records the result. A failure does not end the script, so one run reports all failures.
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

# begin_step NAME COMMAND...: runs a step beside the tests, after the steps that were begun before. Tests wait for deadlines and processes, and
# some run alone; the step uses the time of the processors that they leave. The scheduling policy idle keeps it out of the way of the
# tests' deadlines.
begin_step() {
  local name=$1 before=$last_beside
  shift
  mkdir -p build/beside
  set -m # a process group that the trap can end
  {
    if [[ -n $before ]]; then tail --pid="$before" -f /dev/null; fi
    chrt --idle --pid 0 "$BASHPID" || true
    "$@"
  } >"build/beside/$name.log" 2>&1 </dev/null &
  set +m
  last_beside=$!
  beside_tests[$name]=$last_beside
}

# end_step NAME: waits for a step of begin_step, and prints and records the result like step.
end_step() {
  step "$1" output_of_step "$1"
}

# end_beside: ends the checks that run beside the tests.
end_beside() {
  local name
  for name in format clang-tidy; do
    if [[ -n ${beside_tests[$name]:-} ]]; then end_step "$name" || true; fi
  done
}

# shellcheck disable=SC2317 # called through step()
output_of_step() {
  local status=0
  wait "${beside_tests[$1]}" || status=$?
  unset "beside_tests[$1]"
  cat "build/beside/$1.log"
  return "$status"
}

# shellcheck disable=SC2317 # a trap calls it
stop_steps() {
  local process
  for process in "${beside_tests[@]}"; do kill -- "-$process" 2>/dev/null || true; done
}
trap stop_steps EXIT

# skip_step NAME PROGRAM: records that a step is skipped because the program is not installed.
skip_step() {
  local reason="needs program:$2: $2 is not installed"
  echo "== $1: skipped, $reason"
  skipped_steps+=(--skipped-step "$1=$reason")
}

# run_tests PRESET [CTEST-ARGUMENT...]: runs ctest. test_report.py reads the JUnit file; a missing file counts as a failure.
run_tests() {
  local preset=$1 begin=$SECONDS
  shift
  local prefix=() jobs=$test_jobs
  # With a sanitizer, tests are CPU-bound, and their deadlines pass if there are many. With the thread sanitizer, threads that spin for
  # each other are slow on a loaded machine.
  if [[ $preset == asan-ubsan ]]; then jobs=$(((3 * jobs + 3) / 4)); fi
  if [[ $preset == tsan ]]; then
    jobs=$(((jobs + 1) / 2))
    # The thread sanitizer cannot map its shadow memory if the kernel randomizes more than 28 address bits.
    if setarch "$(uname -m)" -R true 2>/dev/null; then prefix=(setarch "$(uname -m)" -R); fi
  fi
  local junit="$PWD/build/$preset/junit.xml"
  # With a sanitizer, programs are several times slower.
  if [[ $preset != release ]]; then prefix+=(env SLUICE_TEST_DEADLINE_S=120); fi
  rm -f "$junit"
  test_runs+=("$preset=$junit")
  echo "== tests, $preset"
  "${prefix[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --parallel "$jobs" \
    --output-junit "$junit" --test-output-size-passed 4000000 --test-output-size-failed 4000000 "$@" || true
  echo "-- tests, $preset: $((SECONDS - begin)) s"
}

# labels_regex LABEL...: prints a regular expression that matches exactly the labels.
labels_regex() {
  local IFS='|'
  echo "^($*)\$"
}

# count_tests CTEST-ARGUMENT...: prints the number of tests of the release build that the arguments choose.
count_tests() {
  ctest --test-dir build/release -N "$@" | sed -n 's/^Total Tests: //p'
}

# list_left_out: prints what the short run leaves out.
list_left_out() {
  local label all run left=()
  for label in "${LABELS[@]}"; do
    all=$(count_tests -C named -L "^$label\$")
    run=0
    case " ${SHORT_LABELS[*]} " in *" $label "*) run=$(count_tests -L "^$label\$" -LE '^long$') ;; esac
    if ((run < all)); then left+=("$label $((all - run)) of $all"); fi
  done
  local IFS=,
  echo "left out (./test.sh --all runs it):${left[*]/#/ }, the tests with sanitizers, clang-tidy, the check that each header compiles alone"
}

finish() {
  local reason
  echo
  echo "== summary, $((SECONDS / 60)) min $((SECONDS % 60)) s"
  # The optional parts that were not built.
  sed -n 's/^-- *\(.*: not built, .*\)$/\1/p' build/*/configure.log | sort -u
  for reason in "${failed_steps[@]}"; do echo "failed: $reason"; done
  if [[ $mode == short ]]; then list_left_out; fi
  python3 scripts/test_report.py --other-passed "${#passed_steps[@]}" --other-failed "${#failed_steps[@]}" \
    --require "${SLUICE_TEST_REQUIRE:-}" "${skipped_steps[@]}" "${test_runs[@]}"
  exit
}

check_machine
echo "== packages"
install_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" || exit "$EXIT_UNAVAILABLE"
check_tools
install_packages --optional "${CHECK_PACKAGES[@]}" || true # tests that need these packages are skipped
install_packages --optional "${CLANG_PACKAGES[@]}" || true
if [[ $mode != short ]]; then
  install_packages --optional "${PEER_PACKAGES[@]}" || true
  install_packages --optional "${RDMA_PACKAGES[@]}" || true
  install_packages --optional "${DEPLOY_PACKAGES[@]}" || true
  install_packages --optional "${RELEASE_PACKAGES[@]}" || true
  ./release.sh --libraries || true # without them, the test of the artefacts is skipped
fi

echo "== capabilities of this machine"
export SLUICE_TEST_CAPABILITIES="$PWD/build/capabilities.tsv"
python3 -B tests/capabilities/capabilities.py check --out "$SLUICE_TEST_CAPABILITIES"

if [[ $mode != labels ]]; then
  if command -v clang-format-14 >/dev/null; then
    begin_step "format" scripts/format.sh --check
  else
    skip_step "format" clang-format-14
  fi
fi
if [[ $mode == short ]]; then
  # Without SLUICE_WERROR, which would compile again what quickstart.sh has built.
  step "build release" build_preset release -DSLUICE_PORTABLE=AUTO -DSLUICE_TESTS=ON -DSLUICE_LONG_TESTS=OFF || finish
  run_tests release -L "$(labels_regex "${SHORT_LABELS[@]}")" -LE '^long$'
  end_beside
  finish
fi
step "build release" build_preset release -DSLUICE_PORTABLE=AUTO -DSLUICE_TESTS=ON -DSLUICE_LONG_TESTS=ON -DSLUICE_WERROR=ON || finish
if [[ $mode == labels ]]; then
  run_tests release -C named -L "$(labels_regex "${labels[@]}")" # other configurations lack the tests that run only if named
  finish
fi

# Without optimization, clang compiles in half of the time of g++. Programs with clang's thread sanitizer need two thirds of the
# run time.
sanitizers_compiler=()
if command -v clang++-14 >/dev/null && [[ -e $(clang++-14 --print-file-name="libclang_rt.asan-$(uname -m).a") ]]; then
  sanitizers_compiler=(--fresh -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14)
fi
# In the order in which their results are needed.
for preset in asan-ubsan tsan; do
  begin_step "build $preset" build_preset "$preset" -DSLUICE_WITH_BENCHMARK=OFF -DSLUICE_SANITIZE_LINES=OFF "${sanitizers_compiler[@]}"
done
if command -v clang-tidy-14 >/dev/null && command -v clang++-14 >/dev/null; then
  begin_step "clang-tidy" scripts/tidy.sh
else
  skip_step "clang-tidy" clang-tidy-14
fi

run_tests release
for preset in asan-ubsan tsan; do
  if end_step "build $preset"; then run_tests "$preset" -LE '^lint$'; fi
done
end_beside
finish
