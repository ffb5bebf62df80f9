#!/usr/bin/env bash
# usage: netns_rsh.sh [-OPTION...] ADDRESS COMMAND...
# Replaces ssh for mpirun: runs COMMAND at the test network host that has ADDRESS. SLUICE_TEST_NETWORK_HOSTS lists
# ADDRESS=NAMESPACE pairs, separated by blanks. Both MPIs distinguish hosts by name, so each host gets the name of its namespace.
set -euo pipefail
while [[ "${1:-}" == -* ]]; do shift; done
address=$1
shift
for entry in $SLUICE_TEST_NETWORK_HOSTS; do
  if [[ "$entry" == "$address="* ]]; then
    namespace=${entry#*=}
    exec nsenter --net="/run/netns/$namespace" unshare --uts sh -c "hostname $namespace; $*"
  fi
done
echo "netns_rsh.sh: the test network has no host with address $address" >&2
exit 1
