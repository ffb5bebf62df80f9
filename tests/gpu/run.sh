#!/usr/bin/env bash
# Tests streams on a real GPU, and real NCCL with several processes that share the GPU. NCCL sees each process as a node (NCCL_HOSTID). The
# script uses only the loopback network and takes less than nine minutes.
# usage: tests/gpu/run.sh [--out FOLDER] [--sluice FILE] [--plugin FILE] [--gpu-bench FILE] [--device-tests FILE]
#   [--library FILE] [--only streams|nccl] [--device host]
# It needs the built programs (-DSLUICE_CUDA=ON) and plugin, and compiles one test program with nvcc and the NCCL of the PyTorch wheel.
# FOLDER/results.txt has the result of each step, FOLDER/*.log the full output. --device host runs the steps of the streams without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

out=docs/results/gpu/$(date +%Y-%m-%d)
sluice=build/release/bin/sluice
plugin=build/release/lib/libnccl-net-sluice.so
library=build/release/lib/libsluice.so.0
gpu_bench=build/release/bin/sluice-gpu-bench
device_tests=build/release/tests/conformance/device/device_conformance_test
only=all
device=cuda
while (($# > 0)); do
  case $1 in
    --out) out=$2 && shift 2 ;;
    --sluice) sluice=$2 && shift 2 ;;
    --plugin) plugin=$2 && shift 2 ;;
    --library) library=$2 && shift 2 ;;
    --gpu-bench) gpu_bench=$2 && shift 2 ;;
    --device-tests) device_tests=$2 && shift 2 ;;
    --only) only=$2 && shift 2 ;;
    --device) device=$2 && shift 2 ;;
    *)
      sed -n '2,8s/^# //p' "${BASH_SOURCE[0]}"
      exit 64
      ;;
  esac
done
readonly ranks=3
export SLUICE_HOSTS=off # the ranks of this machine stand for hosts, so that the reducers get data
readonly max_seconds=530
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

report() { echo "$*" | tee -a "$results"; }
failed=0
# step NAME SECONDS COMMAND...: runs the command, with its output in NAME.log and its result in results.txt. A failure does not end the run.
step() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  ((limit <= max_seconds - SECONDS)) || limit=$((max_seconds - SECONDS))
  ((limit > 0)) || { failed=1; report "FAIL $name: not run, because the time limit of $max_seconds s is used up"; return 1; }
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  ((code == 0)) || failed=1
  report "$([[ $code == 0 ]] && echo PASS || echo "FAIL ($code)") $name, $((SECONDS - begin)) s"
  return $code
}

# Tests allreduces on streams: exact results for every type, operator and wire type; then a range of sizes, and the overlap of the stages.
readonly max_ratio=1.15 # limit for 256 MiB: the end-to-end time divided by the time of the slowest stage
run_streams() {
  local -a bench=("$gpu_bench" --log-level warn --device "$device" --reducers 2)
  local name
  # The tests contain a fake driver, so the real one is preloaded. "cuda_one_queue" is for the fake driver only: a GPU has many queues.
  if [[ $device == cuda && -x $device_tests ]]; then
    step device-conformance 60 env SLUICE_TEST_GPU=1 LD_PRELOAD=libcuda.so.1 "$device_tests" --gtest_filter='*/cuda'
    report "  $(grep -E '^\[  (PASSED|FAILED)' "$out/device-conformance.log" | head -1)"
  elif [[ $device == cuda ]]; then
    report "SKIP device-conformance: $device_tests was not built"
  fi
  step streams-first 60 "${bench[@]}" --workers 1 -b 1K -e 1K -n 1 || { report "  $(tail -1 "$out/streams-first.log")"; return; }
  step streams-every-type 60 "${bench[@]}" --workers 2 -b 1M -e 1M -n 1 -d all -o all
  step streams-small-pieces 60 "${bench[@]}" --workers 3 -b 1001 -e 9000003 -f 29 -n 1 -d all --piece 64K --staging 256K
  for name in bf16 f16; do step "streams-as-$name" 60 "${bench[@]}" --workers 2 -b 1M -e 64M -f 8 -n 5 -o all --wire "$name"; done
  # One rank uses the GPU alone; two ranks share its copy engines.
  for name in 1 2; do
    step "streams-sizes-$name" 90 "${bench[@]}" --workers "$name" -b 1M -e 256M -f 4 -n 10 --json "$out/streams-sizes-$name.json" --csv "$out/streams-sizes-$name.csv"
  done
  step streams-sizes-bf16 90 "${bench[@]}" --workers 2 -b 1M -e 256M -f 4 -n 10 --wire bf16 --csv "$out/streams-sizes-bf16.csv"
  step streams-overlap 60 "${bench[@]}" --workers 2 -b 256M -e 256M -n 20 --max-ratio "$max_ratio"
  for name in streams-sizes-1 streams-sizes-2 streams-sizes-bf16 streams-overlap; do
    { echo "$name"; grep -E '^ |^# (copy limits|End to end|device:)' "$out/$name.log"; } >>"$results"
  done
  report "  256 MiB, end to end over the slowest single stage: $(sed -n 's/^# End to end .* : //p' "$out/streams-overlap.log"), limit $max_ratio"
}

needs=(nvidia-smi)
[[ $device == host ]] && needs=() && only=streams
[[ $only == streams ]] || needs+=(nvcc python3)
for needed in "${needs[@]}"; do
  command -v "$needed" >/dev/null || { report "SKIP all: $needed is not installed"; exit 77; }
done
report "date $(date -u +%FT%TZ)"
if [[ $device == host ]]; then report "no GPU (--device host): streams on host memory"; else report "gpu $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"; fi
if [[ $only != nccl ]]; then run_streams; fi
if [[ $only == streams ]]; then
  if ((failed)); then report "FAILED, $SECONDS s"; else report "passed, $SECONDS s"; fi
  exit "$failed"
fi
nccl=$(python3 -c 'import os, nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null || true)
report "nvcc $(nvcc --version | sed -n 's/.*release \([^,]*\),.*/\1/p')"
report "sluice $("$sluice" --version | head -1)"
[[ -n $nccl ]] || { report "SKIP nccl: no NCCL library; install the Python wheel nvidia-nccl"; exit $((failed ? 1 : 77)); }

step compile 120 nvcc -std=c++17 -O2 -o "$work/nccl_job" tests/gpu/nccl_job.cu -I"$nccl/include" -L"$nccl/lib" -l:libnccl.so.2 \
  -Xlinker -rpath -Xlinker "$nccl/lib" || exit 1
job=$work/nccl_job

reducers=()
for ((i = 0; i < ranks; i++)); do
  "$sluice" reducer --listen 127.0.0.1:0 --port-file "$work/port$i" >"$out/reducer$i.log" 2>&1 &
  pids+=($!)
done
for ((i = 0; i < ranks; i++)); do
  for _ in $(seq 100); do [[ -s $work/port$i ]] && break; sleep 0.1; done
  reducers+=("127.0.0.1:$(cat "$work/port$i")")
done
pool=$(IFS=,; echo "${reducers[*]}")

common=(NCCL_SOCKET_IFNAME=lo NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_RAS_ENABLE=0 NCCL_DEBUG=INFO "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING")
offload=("${common[@]}" "NCCL_NET_PLUGIN=$PWD/$plugin" NCCL_NET_PLUGIN_REF_COUNT=1 NCCL_COLLNET_ENABLE=1 SLUICE_NET=always SLUICE_IFNAME=lo "SLUICE_REDUCERS=$pool")
[[ $plugin == /* ]] && offload[6]="NCCL_NET_PLUGIN=$plugin"
forced=("${offload[@]}" "NCCL_ALGO=allreduce:collnetchain")

# Prints the bytes that the reducers have received so far.
bytes_received() { "$sluice" status --reducers "$pool" | python3 -c 'import json, sys; print(sum(r["status"]["data"]["bytes_in"] for r in json.load(sys.stdin)))'; }
# step_with_offload NAME SECONDS COMMAND...: a step during which the reducers must receive data.
step_with_offload() {
  local before after
  before=$(bytes_received)
  step "$@"
  after=$(bytes_received)
  report "  reducers received $(((after - before) / 1000000)) MB"
  ((after - before > 1000000)) || { failed=1; report "FAIL $1: the reducers received no data"; }
}

step check-plugin 30 env "${offload[@]}" "$sluice" check plugin "$plugin"
step_with_offload allreduce 120 env "${forced[@]}" "$job" check $ranks
step_with_offload allreduce-16-channels 60 env "${forced[@]}" NCCL_MIN_NCHANNELS=16 "$job" large $ranks
step allreduce-colocated 90 env "${forced[@]}" SLUICE_REDUCERS=none "$job" check $ranks
step_with_offload tuner-chooses 60 env "${offload[@]}" "$job" large $ranks
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
  step_with_offload ddp-sluice 60 env "${offload[@]}" python3 tests/gpu/ddp_train.py --ranks $ranks --losses "$work/offloaded"
  step ddp-losses 10 python3 tests/gpu/compare_losses.py "$work/plain" "$work/offloaded"
  cat "$out/ddp-losses.log" >>"$results"
  step groups 60 env "${offload[@]}" python3 tests/gpu/ddp_train.py --groups --steps 20 --ranks $ranks --losses "$work/groups"
  step groups-shared 60 env "${offload[@]}" NCCL_COMM_SPLIT_SHARE_RESOURCES=1 python3 tests/gpu/ddp_train.py --groups --steps 20 --ranks $ranks --losses "$work/shared"
  step_with_offload python 90 env PYTHONPATH="$PWD/gpu_client/python/src" SLUICE_LIBRARY="$(realpath "$library")" \
    python3 tests/gpu/python_ranks.py --ranks $ranks --reducers "$pool" --losses "$work/python"
  cat "$out/python.log" >>"$results"
  step python-losses 10 python3 tests/gpu/compare_losses.py "$work/python/gloo" "$work/python/f32"
  cat "$out/python-losses.log" >>"$results"
  step_with_offload fsdp 120 env "${common[@]}" NCCL_DEBUG=WARN NCCL_NET=Socket PYTHONPATH="$PWD/gpu_client/python/src" SLUICE_LIBRARY="$(realpath "$library")" \
    SLUICE_REDUCERS="$pool" python3 tests/gpu/fsdp_ranks.py --losses "$work/fsdp"
  cat "$out/fsdp.log" >>"$results"
  for name in f32 bf16 mxfp8; do step "fsdp-losses-$name" 10 python3 tests/gpu/compare_losses.py "$work/fsdp/fsdp" "$work/fsdp/fsdp-$name"; done
  for name in copies-f32 copies-bf16 copies-int8 hsdp-bf16; do step "$name-losses" 10 python3 tests/gpu/compare_losses.py "$work/fsdp/hsdp" "$work/fsdp/$name"; done
  step_with_offload backend 90 env PYTHONPATH="$PWD/gpu_client/python/src" SLUICE_LIBRARY="$(realpath "$library")" \
    python3 tests/gpu/backend_ranks.py --ranks $ranks --reducers "$pool" --losses "$work/backend"
  cat "$out/backend.log" >>"$results"
  step backend-losses 10 python3 tests/gpu/compare_losses.py "$work/backend/gloo" "$work/backend/ddp"
  cat "$out/backend-losses.log" >>"$results"
  for group in nccl gloo; do # within a host, between which rails are
    step_with_offload "rails-$group" 90 env "${common[@]}" NCCL_DEBUG=WARN NCCL_NET=Socket PYTHONPATH="$PWD/gpu_client/python/src" \
      SLUICE_LIBRARY="$(realpath "$library")" python3 tests/gpu/rails_ranks.py --reducers "$pool" --losses "$work/rails" --group "$group"
    cat "$out/rails-$group.log" >>"$results"
    step "rails-$group-losses" 10 python3 tests/gpu/compare_losses.py "$work/rails/plain" "$work/rails/$group"
  done
else
  report "SKIP ddp: PyTorch is not installed or finds no GPU"
fi
grep -hoE 'NET/SLUICE: offload.*|Connected Collnet Chains.*|[0-9]+ coll channels.*' "$out"/*.log | sort | uniq -c | sort -rn | head -20 >>"$results"
if ((failed)); then report "FAILED, $SECONDS s"; else report "passed, $SECONDS s"; fi
exit "$failed"
