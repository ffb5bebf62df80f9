#!/bin/sh
# slow_wire.sh DELAY COMMAND...: runs COMMAND with DELAY in each direction between the two ends of rail 0. In a guest of guest.sh --net pair.
set -eu
delay=$1
shift
for end in rail0a rail0b; do
  tc qdisc add dev "$end" root netem delay "$delay" limit 10000
done
exec "$@"
