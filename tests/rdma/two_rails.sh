#!/bin/bash
# two_rails.sh BUILD: runs a reducer on each of two rails, restricted to the device of its rail by --ib-hca, in a guest of guest.sh. A job with
# both reducers uses both devices and produces the same bits as over TCP. A reducer whose --ib-hca excludes its rail serves over TCP.
set -eu
sluice=$1/bin/sluice
out=$(mktemp -d)
reducers=()
trap 'kill "${reducers[@]}"; wait; rm -rf "$out"' EXIT

rail0='' rail1='' excluded='' # the reducers' addresses, set by start()
start() { # NAME ADDRESS DEVICE
  "$sluice" reducer --listen "$2:0" --insecure --ib-hca "$3" --lanes 1 --port-file "$out/$1.port" 2>"$out/$1.log" &
  reducers+=($!)
  until [[ -s $out/$1.port ]]; do kill -0 "${reducers[-1]}"; done
  declare -g "$1=$2:$(cat "$out/$1.port")"
}
start rail0 10.77.0.2 =rxe0
start rail1 10.77.1.2 =rxe1
start excluded 10.77.1.2 =rxe0

digits() { # TRANSPORT REDUCERS: prints the hash of the weights
  "$sluice" demo digits --workers 2 --epochs 2 --connect "$2" --transport "$1" --json "$out/digits" >"$out/demo" 2>&1 || {
    tail -n 20 "$out/demo" "$out"/*.log >&2
    exit 1
  }
  sed -n 's/.*"weights_hash": *"\(.*\)".*/\1/p' "$out/digits"
}
check() { # REDUCER CONDITION: a Python expression on j, the status of the reducer
  "$sluice" status --reducers "$1" >"$out/status"
  python3 -c 'import json, sys; j = json.load(open(sys.argv[1]))[0]["status"]; assert eval(sys.argv[2]), (sys.argv[2], j["rdma"])' "$out/status" "$2"
}

over_rdma=$(digits rdma "$rail0,$rail1")
for rail in 0 1; do
  name=rail$rail
  check "${!name}" "j['rdma']['paired'] == 2 and j['rdma']['on_tcp'] == 0"
  check "${!name}" "[d['device'] for d in j['rdma']['devices'] if d['bytes_in'] > 0 and d['bytes_out'] > 0] == ['rxe$rail']"
done
over_tcp=$(digits tcp "$rail0,$rail1")
[[ -n $over_rdma && $over_rdma == "$over_tcp" ]]
[[ $(digits auto "$rail0,$excluded") == "$over_tcp" ]]
check "$excluded" "j['rdma']['paired'] == 0 and j['rdma']['on_tcp'] == 2"
check "$rail0" "j['rdma']['paired'] == 4"
echo "two rails: hash $over_rdma over RDMA, over TCP, and over one rail of each"
