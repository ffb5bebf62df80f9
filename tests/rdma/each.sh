#!/bin/bash
# each.sh PROGRAM...: runs the test programs one after another, in one guest of guest.sh, because a boot in emulation takes 15 s of processor
# time. Fails if one of them fails.
failed=0
for program in "$@"; do
  "$program" || failed=1
done
exit "$failed"
