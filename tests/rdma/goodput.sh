#!/bin/bash
# goodput.sh BUILD: compares the throughput of ib_write_bw (perftest) and of `sluice bench allreduce` with one worker and one reducer on
# the same device. Runs in a guest of guest.sh. The hardware is emulated, so only the ratio has a meaning. Exit status 77: no perftest.
set -eu
sluice=$1/bin/sluice
command -v ib_write_bw >/dev/null || {
  echo "goodput.sh: ib_write_bw not found; install perftest" >&2
  exit 77
}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# The GID index of rail 0's first address.
index=$(grep -l '0000:0000:0000:0000:0000:ffff:0a4d:0001' /sys/class/infiniband/rxe0/ports/1/gids/* | head -n 1)
index=${index##*/}
common=(-d rxe0 -x "$index" -s 65536 -n 500)
ib_write_bw "${common[@]}" >"$out/server" 2>&1 &
server=$!
# Retries until the server listens.
for ((i = 0; i < 500; i++)); do
  ib_write_bw "${common[@]}" 10.77.0.1 >"$out/client" 2>&1 && break
  kill -0 "$server"
done
wait "$server"
perftest_rate=$(awk '$1 == 65536 {print $4}' "$out/client") # MiB/s, average

"$sluice" reducer --listen 10.77.0.2:0 --insecure --transport rdma --port-file "$out/port" 2>"$out/reducer" &
reducer=$!
until [[ -s $out/port ]]; do kill -0 "$reducer"; done
"$sluice" bench allreduce --workers 1 --connect "10.77.0.2:$(cat "$out/port")" --interface 10.77.0.1 --transport rdma \
  -b 4M -e 4M -n 5 -w 1 -c 1 --json "$out/sluice_rate" >"$out/bench" 2>&1 || {
  cat "$out/bench" "$out/reducer"
  exit 1
}
kill -TERM "$reducer"
wait "$reducer"
sluice_rate=$(python3 -c 'import json, sys; r = json.load(open(sys.argv[1]))["results"][0]; assert r["out_of_place"]["nwrong"] == 0; print(r["out_of_place"]["alg_bw"] * 1e9 / 2**20)' "$out/sluice_rate")
awk -v perftest_rate="$perftest_rate" -v sluice_rate="$sluice_rate" 'BEGIN {
  printf "64 KiB ib_write_bw %.1f MiB/s one way; allreduce of 4 MiB, one worker: %.1f MiB/s each way at once, %.2f of it\n", perftest_rate, sluice_rate, sluice_rate / perftest_rate
  exit !(perftest_rate > 0 && sluice_rate > 0)
}'
