#!/usr/bin/env bash
# Streams of a real GPU, and real NCCL on it, in several processes that share it, each a node of its own to NCCL (NCCL_HOSTID). One command, no
# network but loopback, under nine minutes.
# usage: tests/gpu/run.sh [--out FOLDER] [--sluice FILE] [--plugin FILE] [--gpu-bench FILE] [--device-tests FILE] [--only streams|nccl] [--device host]
# Takes the built programs (-DSLUICE_CUDA=ON) and plugin, and compiles one test program with nvcc and the NCCL of the PyTorch wheel. Results are
# written as they come: FOLDER/results.txt says what passed, FOLDER/*.log hold everything. --device host tries the streams' steps without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

out=docs/gpu-results/$(date +%Y-%m-%d)
sluice=build/release/bin/sluice
plugin=build/release/lib/libnccl-net-sluice.so
gpu_bench=build/release/bin/sluice-gpu-bench
device_tests=build/release/tests/conformance/device/device_conformance_test
only=all
device=cuda
while (($# > 0)); do
  case $1 in
    --out) out=$2 && shift 2 ;;
    --sluice) sluice=$2 && shift 2 ;;
    --plugin) plugin=$2 && shift 2 ;;
    --gpu-bench) gpu_bench=$2 && shift 2 ;;
    --device-tests) device_tests=$2 && shift 2 ;;
    --only) only=$2 && shift 2 ;;
    --device) device=$2 && shift 2 ;;
    *)
      sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}"
      exit 64
      ;;
  esac
done
readonly ranks=3
readonly most_seconds=530
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
  ((limit <= most_seconds - SECONDS)) || limit=$((most_seconds - SECONDS))
  ((limit > 0)) || { failed=1; say "FAIL $name: no time was left"; return 1; }
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  ((code == 0)) || failed=1
  say "$([[ $code == 0 ]] && echo PASS || echo "FAIL ($code)") $name, $((SECONDS - begin)) s"
  return $code
}

# Allreduces on streams: right in every type, operator and form on the wire, bit by bit; then sizes, and whether the stages overlap.
readonly mark=1.15 # most that 256 MiB take end to end, over the slowest single stage
run_streams() {
  local -a bench=("$gpu_bench" --log-level warn --device "$device" --reducers 2)
  local name
  # Not "cuda_one_queue": a GPU has many. Calls of the tests' own would be those of the driver that is played.
  if [[ $device == cuda && -x $device_tests ]]; then
    step device-conformance 60 env SLUICE_TEST_GPU=1 LD_PRELOAD=libcuda.so.1 "$device_tests" --gtest_filter='*/cuda'
    say "  $(grep -E '^\[  (PASSED|FAILED)' "$out/device-conformance.log" | head -1)"
  elif [[ $device == cuda ]]; then
    say "SKIP device-conformance: no $device_tests"
  fi
  step streams-first 60 "${bench[@]}" --workers 1 -b 1K -e 1K -n 1 || { say "  $(tail -1 "$out/streams-first.log")"; return; }
  step streams-every-type 60 "${bench[@]}" --workers 2 -b 1M -e 1M -n 1 -d all -o all
  step streams-small-pieces 60 "${bench[@]}" --workers 3 -b 1001 -e 9000003 -f 29 -n 1 -d all --piece 64K --staging 256K
  for name in bf16 f16; do step "streams-as-$name" 60 "${bench[@]}" --workers 2 -b 1M -e 64M -f 8 -n 5 -o all --wire "$name"; done
  # One rank has the GPU for itself, two take turns with its engines.
  for name in 1 2; do
    step "streams-sizes-$name" 90 "${bench[@]}" --workers "$name" -b 1M -e 256M -f 4 -n 10 --json "$out/streams-sizes-$name.json" --csv "$out/streams-sizes-$name.csv"
  done
  step streams-sizes-bf16 90 "${bench[@]}" --workers 2 -b 1M -e 256M -f 4 -n 10 --wire bf16 --csv "$out/streams-sizes-bf16.csv"
  step streams-overlap 60 "${bench[@]}" --workers 2 -b 256M -e 256M -n 20 --max-ratio "$mark"
  for name in streams-sizes-1 streams-sizes-2 streams-sizes-bf16 streams-overlap; do
    { echo "$name"; grep -E '^ |^# (copy limits|End to end|device:)' "$out/$name.log"; } >>"$results"
  done
  say "  256 MiB, end to end over the slowest single stage: $(sed -n 's/^# End to end .* : //p' "$out/streams-overlap.log"), the mark is $mark"
}

needs=(nvidia-smi)
[[ $device == host ]] && needs=() && only=streams
[[ $only == streams ]] || needs+=(nvcc python3)
for needed in "${needs[@]}"; do
  command -v "$needed" >/dev/null || { say "no $needed here: nothing was run"; exit 77; }
done
say "date $(date -u +%FT%TZ)"
if [[ $device == host ]]; then say "no GPU was asked for: streams are the host's"; else say "gpu $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"; fi
if [[ $only != nccl ]]; then run_streams; fi
if [[ $only == streams ]]; then
  if ((failed)); then say "FAILED, $SECONDS s"; else say "passed, $SECONDS s"; fi
  exit "$failed"
fi
nccl=$(python3 -c 'import os, nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null || true)
say "nvcc $(nvcc --version | sed -n 's/.*release \([^,]*\),.*/\1/p')"
say "sluice $("$sluice" --version | head -1)"
[[ -n $nccl ]] || { say "no NCCL of a Python wheel here (nvidia-nccl)"; exit $((failed ? 1 : 77)); }

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
