#!/bin/sh
# libsluice shows exactly the functions that its header declares: usage: exported_symbols_test.sh NM LIBRARY HEADER
set -eu
shown=$("$1" -D --defined-only "$2" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
declared=$(sed -n 's/^SLUICE_API .*\(sluice_[a-z_]*\)(.*/\1/p' "$3" | sort)
if [ "$shown" != "$declared" ]; then
  echo "shown by the library:"; echo "$shown"
  echo "declared in the header:"; echo "$declared"
  exit 1
fi
