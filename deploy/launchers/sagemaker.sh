#!/usr/bin/env bash
# torchrun on a worker of a SageMaker job with a group of reducers: how many nodes train, which of them this is and where rank 0 listens are said by
# the platform, and a reducer's host is none of them. Arguments are torchrun's:
#
#   sluice auto -- deploy/launchers/sagemaker.sh --nproc-per-node 8 train.py
set -euo pipefail

# By name: `sluice auto` has set SLUICE_REDUCERS, which would be found first and says nothing of workers.
read -r nodes rank master < <(sluice discover --source sagemaker | python3 -c '
import json, os, re, sys

found = json.load(sys.stdin)
if found["role"] != "worker":
    sys.exit("sagemaker.sh: this host is no worker: " + json.dumps(found))
path = os.environ.get("SLUICE_SM_RESOURCE_CONFIG", "/opt/ml/input/config/resourceconfig.json")
with open(path, encoding="utf-8") as file:
    hosts = json.load(file)["hosts"]
reducers = {address.rsplit(":", 1)[0] for address in found["reducers"]}
# As discover counts them: algo-2 before algo-10.
workers = sorted(set(hosts) - reducers, key=lambda host: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", host)])
print(found["workers"], found["index"], workers[0])
')
exec torchrun --nnodes "$nodes" --node-rank "$rank" --master-addr "$master" --master-port "${MASTER_PORT:-29500}" "$@"
