#!/usr/bin/env bash
# usage: netns_rsh.sh [-OPTION...] ADDRESS COMMAND...
# What mpirun takes for ssh: runs COMMAND at the host of a bed that has ADDRESS. SLUICE_BED_HOSTS: ADDRESS=NAMESPACE, separated by blanks. Both MPIs tell hosts
# apart by name, so each gets the name of its namespace.
set -euo pipefail
while [[ "${1:-}" == -* ]]; do shift; done
address=$1
shift
for entry in $SLUICE_BED_HOSTS; do
  if [[ "$entry" == "$address="* ]]; then
    namespace=${entry#*=}
    exec nsenter --net="/run/netns/$namespace" unshare --uts sh -c "hostname $namespace; $*"
  fi
done
echo "netns_rsh.sh: no host $address in the bed" >&2
exit 1
