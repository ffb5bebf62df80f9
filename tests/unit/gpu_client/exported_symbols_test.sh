#!/bin/sh
# libsluice shows exactly the functions that its headers declare: usage: exported_symbols_test.sh NM LIBRARY HEADER...
set -eu
nm=$1 library=$2
shift 2
shown=$("$nm" -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
declared=$(cat "$@" | sed -n 's/^SLUICE_API .*[ *]\(sluice_[a-z_]*\)(.*/\1/p' | sort)
if [ "$shown" != "$declared" ]; then
  echo "shown by the library:"; echo "$shown"
  echo "declared in the headers:"; echo "$declared"
  exit 1
fi
