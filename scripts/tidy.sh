#!/usr/bin/env bash
# usage: scripts/tidy.sh [--changed | FILE...]
# Runs clang-tidy 14 with the checks of .clang-tidy and the compile commands of the tidy preset.
# Without arguments it checks all sources in batches (tidy_batches.py), in a quarter of the time. --changed checks the sources that
# differ from the merge base with the main branch (on the main branch: from the previous commit), and the sources that include a
# changed header. SLUICE_JOBS sets the number of processes (default: 2).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly BUILD=build/tidy

sources() {
  python3 - "$BUILD" <<'END'
import json, os, sys
root = os.getcwd() + "/"
files = {entry["file"] for entry in json.load(open(sys.argv[1] + "/compile_commands.json"))}
# Generated sources in build/ are not checked.
print("\n".join(sorted(f[len(root):] for f in files if f.startswith(root) and not f.startswith(root + "build/"))))
END
}

for tool in clang-tidy-14 clang++-14; do
  if ! command -v "$tool" >/dev/null; then
    echo "tidy.sh: $tool is not installed (apt-get install clang-tidy-14 clang-14)" >&2
    exit 2
  fi
done
mkdir -p "$BUILD"
if ! cmake --preset tidy -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14 >"$BUILD/configure.log" 2>&1; then
  cat "$BUILD/configure.log" >&2
  exit 1
fi
# Generate the headers that sources include.
cmake --build "$BUILD" --target sluice_abi_layouts_header >>"$BUILD/configure.log"

# changed_sources: prints the .cc files that differ from the base or include a changed header.
changed_sources() {
  local base changed
  base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true)
  if [[ -z "$base" || "$base" == "$(git rev-parse HEAD)" ]]; then base=HEAD~1; fi
  changed=$(git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h')
  local file
  while read -r file; do
    if grep -qxF "$file" <<<"$changed" || grep -qF -f <(sed -n 's|\(.*\.h\)$|#include "\1"|p' <<<"$changed") "$file"; then
      echo "$file"
    fi
  done < <(sources)
}

files=()
case ${1:-} in
  --changed) mapfile -t files < <(changed_sources) ;;
  '') exec python3 -B scripts/tidy_batches.py "$BUILD" "${SLUICE_JOBS:-2}" ;;
  *) files=("$@") ;;
esac
echo "clang-tidy: ${#files[@]} files"
if ((${#files[@]} == 0)); then exit 0; fi
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "${SLUICE_JOBS:-2}" clang-tidy-14 -p "$BUILD" --quiet
