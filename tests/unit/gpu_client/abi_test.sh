#!/bin/sh
# The ABI of libsluice is what libsluice-0.abi says, and its symbols are what the headers declare. usage: abi_test.sh NM LIBRARY
# LAYOUT-PROGRAM RECORD HEADER... Prints what differs; a line more of ours (">") is a new function or field, to be recorded.
set -eu
nm=$1 library=$2 layout=$3 record=$4
shift 4
symbols=$("$nm" -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print "symbol " $3 }' | LC_ALL=C sort)
declared=$(cat "$@" | sed -n 's/^SLUICE_API .*[ *]\(sluice_[a-z_]*\)(.*/symbol \1@@SLUICE_0/p' | LC_ALL=C sort)
[ "$symbols" = "$declared" ] || { echo "declared in the headers:"; echo "$declared"; echo "shown by the library:"; echo "$symbols"; exit 1; }
{ echo "$symbols"; "$layout"; } | diff "$record" -
