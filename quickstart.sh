#!/usr/bin/env bash
# Builds Sluice on Debian or Ubuntu and trains a small model with it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'END'
usage: ./quickstart.sh [--build-only]

1. Installs the missing Debian packages of the build (apt-get, as root or with sudo).
2. Builds the release preset in build/release: bin/sluice and lib/.
3. Trains a small network on handwritten digits: 4 worker processes send gradients through the NCCL plugin, and 2 reducers on
   loopback sum them.

  --build-only  stop after step 2
  --help        print this text

Environment: SLUICE_JOBS, the number of parallel compiler processes (default: one per processor).

Exit codes: 0 success; 1 the build or the training failed; 64 invalid argument; 69 this machine cannot build Sluice.
END
}

run_demo=1
for argument in "$@"; do
  case $argument in
    --build-only) run_demo=0 ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "quickstart.sh: unknown argument $argument" >&2
      usage >&2
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

check_machine
echo "== 1. packages"
install_packages "${BUILD_PACKAGES[@]}" || exit "$EXIT_UNAVAILABLE"
check_tools
echo "== 2. build/release"
BUILD_TARGETS=(sluice_program sluice_client sluice_nccl_plugin)
build_preset release -DSLUICE_TESTS=OFF -DSLUICE_PORTABLE=AUTO
if ((!run_demo)); then
  echo "built: build/release/bin/sluice"
  exit 0
fi
echo "== 3. build/release/bin/sluice demo digits --workers 4 --reducers 2 --through-plugin"
exec build/release/bin/sluice demo digits --workers 4 --reducers 2 --through-plugin
