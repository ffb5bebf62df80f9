#!/usr/bin/env bash
# usage: scripts/format.sh [--check] [FILE...]
# Formats the C++ sources of the tree, or FILEs, with clang-format 14. --check changes nothing and fails if a file is not
# formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

check=0
if [[ "${1:-}" == --check ]]; then
  check=1
  shift
fi

# Other major versions format the same source differently.
readonly MAJOR=14
clang_format=$(command -v "clang-format-$MAJOR" || command -v clang-format || true)
if [[ -z "$clang_format" ]]; then
  echo "format.sh: clang-format $MAJOR is not installed (apt-get install clang-format-$MAJOR)" >&2
  exit 2
fi
version=$("$clang_format" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
if [[ "$version" != "$MAJOR" ]]; then
  echo "format.sh: $clang_format has version ${version:-unknown}; expected $MAJOR" >&2
  exit 2
fi

files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(find . \( -path ./build -o -path ./.git \) -prune -o -type f \( -name '*.h' -o -name '*.cc' -o -name '*.c' \) -print | sort)
fi
if ((${#files[@]} == 0)); then exit 0; fi

if ((!check)); then
  exec "$clang_format" -i "${files[@]}"
fi
if ! "$clang_format" --dry-run --Werror "${files[@]}"; then
  echo "format.sh: sources are not formatted; run scripts/format.sh" >&2
  exit 1
fi
