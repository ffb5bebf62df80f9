#!/usr/bin/env bash
# Runs torchrun on a worker of a SageMaker job with a group of reducers. The number of nodes, the node rank and the address of rank
# 0 come from the platform, without the hosts of the reducers. The arguments are options of torchrun:
#
#   sluice auto -- deploy/launchers/sagemaker.sh --nproc-per-node 8 train.py
set -euo pipefail

# Selects the source explicitly: `sluice auto` sets SLUICE_REDUCERS, which takes precedence and has no data about workers.
read -r nodes rank master < <(sluice discover --source sagemaker | python3 -c '
import json, os, re, sys

found = json.load(sys.stdin)
if found["role"] != "worker":
    sys.exit("sagemaker.sh: this host is not a worker: " + json.dumps(found))
path = os.environ.get("SLUICE_SM_RESOURCE_CONFIG", "/opt/ml/input/config/resourceconfig.json")
with open(path, encoding="utf-8") as file:
    hosts = json.load(file)["hosts"]
reducers = {address.rsplit(":", 1)[0] for address in found["reducers"]}
# In the order of sluice discover: algo-2 before algo-10.
workers = sorted(set(hosts) - reducers, key=lambda host: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", host)])
print(found["workers"], found["index"], workers[0])
')
exec torchrun --nnodes "$nodes" --node-rank "$rank" --master-addr "$master" --master-port "${MASTER_PORT:-29500}" "$@"
