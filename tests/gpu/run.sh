#!/usr/bin/env bash
# Real NCCL on a real GPU that several processes share, each a node of its own to NCCL (NCCL_HOSTID). One command, no network but loopback, under nine minutes.
# usage: tests/gpu/run.sh [--out FOLDER] [--sluice FILE] [--plugin FILE]
# Takes the built program and plugin, which need only libc, and compiles one test program with nvcc and the NCCL of the PyTorch wheel. Results are
# written as they come: FOLDER/results.txt says what passed, FOLDER/*.log hold everything.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

out=docs/gpu-results/$(date +%Y-%m-%d)
sluice=build/release/bin/sluice
plugin=build/release/lib/libnccl-net-sluice.so
while (($# > 0)); do
  case $1 in
    --out) out=$2 && shift 2 ;;
    --sluice) sluice=$2 && shift 2 ;;
    --plugin) plugin=$2 && shift 2 ;;
    *)
      sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}"
      exit 64
      ;;
  esac
done
readonly ranks=3
mkdir -p "$out"
results=$out/results.txt
work=$(mktemp -d)
pids=()
# shellcheck disable=SC2317 # called by trap
clean_up() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap clean_up EXIT
: >"$results"

say() { echo "$*" | tee -a "$results"; }
failed=0
# step NAME SECONDS COMMAND...: its output goes to NAME.log, its end to the results; a failure does not end the run.
step() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  ((code == 0)) || failed=1
  say "$([[ $code == 0 ]] && echo PASS || echo "FAIL ($code)") $name, $((SECONDS - begin)) s"
  return $code
}

for needed in nvidia-smi nvcc python3; do
  command -v "$needed" >/dev/null || { say "no $needed here: nothing was run"; exit 77; }
done
nccl=$(python3 -c 'import os, nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null || true)
say "date $(date -u +%FT%TZ)"
say "gpu $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
say "nvcc $(nvcc --version | sed -n 's/.*release \([^,]*\),.*/\1/p')"
say "sluice $("$sluice" --version | head -1)"
[[ -n $nccl ]] || { say "no NCCL of a Python wheel here (nvidia-nccl)"; exit 77; }

step compile 120 nvcc -std=c++17 -O2 -o "$work/nccl_job" tests/gpu/nccl_job.cu -I"$nccl/include" -L"$nccl/lib" -l:libnccl.so.2 \
  -Xlinker -rpath -Xlinker "$nccl/lib" || exit 1
job=$work/nccl_job

reducers=()
for i in 0 1; do
  "$sluice" reducer --listen 127.0.0.1:0 --port-file "$work/port$i" >"$out/reducer$i.log" 2>&1 &
  pids+=($!)
done
for i in 0 1; do
  for _ in $(seq 100); do [[ -s $work/port$i ]] && break; sleep 0.1; done
  reducers+=("127.0.0.1:$(cat "$work/port$i")")
done
pool=$(IFS=,; echo "${reducers[*]}")

common=(NCCL_SOCKET_IFNAME=lo NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_RAS_ENABLE=0 NCCL_DEBUG=INFO "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING")
offload=("${common[@]}" "NCCL_NET_PLUGIN=$PWD/$plugin" NCCL_NET_PLUGIN_REF_COUNT=1 NCCL_COLLNET_ENABLE=1 SLUICE_NET=always SLUICE_IFNAME=lo "SLUICE_REDUCERS=$pool")
[[ $plugin == /* ]] && offload[6]="NCCL_NET_PLUGIN=$plugin"
must=("${offload[@]}" "NCCL_ALGO=allreduce:collnetchain")

# Bytes that the reducers have received so far.
received() { "$sluice" status --reducers "$pool" | python3 -c 'import json, sys; print(sum(r["status"]["data"]["bytes_in"] for r in json.load(sys.stdin)))'; }
# offloads NAME SECONDS COMMAND...: a step after which the reducers must have received more.
offloads() {
  local before after
  before=$(received)
  step "$@"
  after=$(received)
  say "  reducers received $(((after - before) / 1000000)) MB"
  ((after > before)) || { failed=1; say "FAIL $1: nothing went through the reducers"; }
}

step check-plugin 30 env "${offload[@]}" "$sluice" check plugin "$plugin"
offloads allreduce 120 env "${must[@]}" "$job" check $ranks
offloads allreduce-16-channels 60 env "${must[@]}" NCCL_MIN_NCHANNELS=16 "$job" large $ranks
offloads tuner-chooses 60 env "${offload[@]}" "$job" large $ranks
step point-to-point 60 env "${offload[@]}" SLUICE_REDUCERS= "$job" point-to-point $ranks
step reducers-unreachable 90 env "${offload[@]}" SLUICE_REDUCERS=127.0.0.1:1 SLUICE_CONNECT_TIMEOUT=5s "$job" large $ranks
for round in 1 2; do
  step "bench-sluice-$round" 60 env "${offload[@]}" NCCL_DEBUG=WARN "$job" bench $ranks
  step "bench-socket-$round" 60 env "${common[@]}" NCCL_DEBUG=WARN NCCL_NET=Socket "$job" bench $ranks
done
grep -h '^bench' "$out"/bench-sluice-*.log | sed 's/^bench/sluice/' >>"$results"
grep -h '^bench' "$out"/bench-socket-*.log | sed 's/^bench/socket/' >>"$results"
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  step ddp-socket 60 env "${common[@]}" NCCL_NET=Socket python3 tests/gpu/ddp_train.py --ranks $ranks --losses "$work/plain"
  offloads ddp-sluice 60 env "${offload[@]}" python3 tests/gpu/ddp_train.py --ranks $ranks --losses "$work/offloaded"
  step ddp-losses 10 python3 tests/gpu/compare_losses.py "$work/plain" "$work/offloaded"
  cat "$out/ddp-losses.log" >>"$results"
  step groups 60 env "${offload[@]}" python3 tests/gpu/ddp_train.py --groups --steps 20 --ranks $ranks --losses "$work/groups"
  step groups-shared 60 env "${offload[@]}" NCCL_COMM_SPLIT_SHARE_RESOURCES=1 python3 tests/gpu/ddp_train.py --groups --steps 20 --ranks $ranks --losses "$work/shared"
else
  say "SKIP ddp: no PyTorch that sees the GPU"
fi
grep -hoE 'NET/SLUICE: offload.*|Connected Collnet Chains.*|[0-9]+ coll channels.*' "$out"/*.log | sort | uniq -c | sort -rn | head -20 >>"$results"
if ((failed)); then say "FAILED, $SECONDS s"; else say "passed, $SECONDS s"; fi
exit "$failed"
