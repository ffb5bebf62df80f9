#!/bin/sh
# usage: abi_test.sh NM LIBRARY LAYOUT-PROGRAM RECORD HEADER...
# Compares the ABI of libsluice with RECORD (libsluice-0.abi), and its symbols with the declarations in the headers. Prints the
# differences. A line with ">" only is a new function or field; add it to RECORD.
set -eu
nm=$1 library=$2 layout=$3 record=$4
shift 4
symbols=$("$nm" -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print "symbol " $3 }' | LC_ALL=C sort)
declared=$(cat "$@" | sed -n 's/^SLUICE_API .*[ *]\(sluice_[a-z_]*\)(.*/symbol \1@@SLUICE_0/p' | LC_ALL=C sort)
[ "$symbols" = "$declared" ] || { echo "declared in the headers:"; echo "$declared"; echo "exported by the library:"; echo "$symbols"; exit 1; }
{ echo "$symbols"; "$layout"; } | diff "$record" -
