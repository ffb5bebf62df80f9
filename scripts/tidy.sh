#!/usr/bin/env bash
# usage: scripts/tidy.sh [--changed | FILE...]
# clang-tidy 14 with the checks of .clang-tidy over the compile commands of the tidy preset: all sources of the tree; or those that
# differ from the merge base with the main branch (on it: from the commit before), and those that include a header that does; or
# FILEs. Two at a time by default (SLUICE_JOBS). All sources go in batches (tidy_batches.py), in a quarter of the time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly BUILD=build/tidy

sources() {
  python3 - "$BUILD" <<'END'
import json, os, sys
root = os.getcwd() + "/"
files = {entry["file"] for entry in json.load(open(sys.argv[1] + "/compile_commands.json"))}
# Generated sources live under build/ and are nobody's style.
print("\n".join(sorted(f[len(root):] for f in files if f.startswith(root) and not f.startswith(root + "build/"))))
END
}

for tool in clang-tidy-14 clang++-14; do
  if ! command -v "$tool" >/dev/null; then
    echo "tidy.sh: $tool is missing (apt-get install clang-tidy-14 clang-14)" >&2
    exit 2
  fi
done
mkdir -p "$BUILD"
if ! cmake --preset tidy -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14 >"$BUILD/configure.log" 2>&1; then
  cat "$BUILD/configure.log" >&2
  exit 1
fi
# Headers that the build makes.
cmake --build "$BUILD" --target sluice_abi_layouts_header >>"$BUILD/configure.log"

# changed_sources: .cc files that differ from the base, or include a header that does.
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
