#!/usr/bin/env bash
# Runs torchrun on a worker of a SageMaker job. The number of nodes, the node rank and the address of rank 0 come from the platform, without
# the hosts of a group of reducers. In a job without that group all hosts are workers, whose processes reduce by themselves
# (SLUICE_REDUCERS=none), unless SLUICE_REDUCERS names a pool. The arguments are options of torchrun:
#
#   sluice auto -- deploy/launchers/sagemaker.sh --nproc-per-node 8 train.py
set -euo pipefail

# Selects the source explicitly: `sluice auto` sets SLUICE_REDUCERS, which takes precedence and has no data about workers. Exit code 69: the
# job has no group of reducers.
found=$(sluice --log-level error discover --source sagemaker 2>/dev/null) || [[ $? == 69 ]] || exec sluice discover --source sagemaker
read -r nodes rank master < <(python3 -c '
import json, os, re, sys

with open(os.environ.get("SLUICE_SM_RESOURCE_CONFIG", "/opt/ml/input/config/resourceconfig.json"), encoding="utf-8") as file:
    config = json.load(file)
found = json.loads(sys.argv[1] or "{}")
reducers = {address.rsplit(":", 1)[0] for address in found.get("reducers", [])}
# In the order of sluice discover: algo-2 before algo-10.
workers = sorted(set(config["hosts"]) - reducers, key=lambda host: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", host)])
if config["current_host"] not in workers:
    sys.exit("sagemaker.sh: this host is not a worker: " + json.dumps(found))
print(len(workers), workers.index(config["current_host"]), workers[0])
' "$found")
if [[ -z $found ]]; then export SLUICE_REDUCERS=${SLUICE_REDUCERS:-none}; fi
exec torchrun --nnodes "$nodes" --node-rank "$rank" --master-addr "$master" --master-port "${MASTER_PORT:-29500}" "$@"
