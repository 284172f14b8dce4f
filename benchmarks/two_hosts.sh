#!/usr/bin/env bash
# A program on two hosts: two network namespaces of this machine, joined by a veth pair. While it trains, the
# second host is lost and another one joins. Needs root, iproute2 and Ray.
#
#     bash benchmarks/two_hosts.sh [OPTION OF retrax launch ...]
set -euo pipefail
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token # which Ray 2.52 and newer have
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN
work=$(mktemp -d /tmp/two-XXXX) # a short name, for Ray's sockets
hosts=()
cleanup() {
  for host in "${hosts[@]}"; do kill -KILL -- "-$host" 2>/dev/null || true; done
  ip netns pids retrax-a | xargs -r kill -KILL || true
  ip netns pids retrax-b | xargs -r kill -KILL || true
  ip netns delete retrax-a
  ip netns delete retrax-b
  rm -rf "$work"
}
ip netns add retrax-a
ip netns add retrax-b
trap cleanup EXIT
ip link add retrax-a netns retrax-a type veth peer name retrax-b netns retrax-b
for name in a:1 b:2; do
  inside="ip -n retrax-${name%:*}"
  $inside address add "10.99.0.${name#*:}/24" dev "retrax-${name%:*}"
  $inside link set "retrax-${name%:*}" up
  $inside link set lo up
done

host() { # NAMESPACE ADDRESS OPTION ...; the second host has files of its own
  setsid ip netns exec "$1" sh -c 'test "$0" = retrax-a || mount -t tmpfs tmpfs "$1"; shift; exec "$@"' "$1" "$work" \
    ray start --block --node-ip-address="$2" --num-cpus=1 --object-store-memory=83886080 "${@:3}" >>"$work/ray.log" 2>&1 &
  hosts+=($!)
}
within() { # SECONDS COMMAND ...
  for _ in $(seq "$1"); do
    if "${@:2}"; then return; fi
    sleep 1
  done
  echo "not within $1 s: ${*:2}"
  cat "$work/ray.log"
  exit 1
}
answers() { ip netns exec retrax-a python -c 'import socket; socket.create_connection(("10.99.0.1", 6379), 1)' 2>"$work/answer"; }
runs_in_b() { ip netns pids retrax-b | xargs -I{} cat /proc/{}/cmdline 2>"$work/answer" | grep -q 'ray::Host'; }
learns() { grep -q '"phase": "learning"' "$work/run/status.json" 2>"$work/answer"; }

host retrax-a 10.99.0.1 --head --port=6379 --include-dashboard=false --temp-dir="$work/ray"
within 60 answers
host retrax-b 10.99.0.2 --address=10.99.0.1:6379
sleep 10
ip netns exec retrax-a python -m retrax.launchpad_programs reactor --environment catch --num-actors 2 --steps 8000 --plain \
  --run-directory "$work/run" --engine ray --ray-address 10.99.0.1:6379 --listen-everywhere "$@" &
program=$!
within 240 learns
within 10 runs_in_b
echo "The second host is lost, and another one joins."
kill -KILL -- "-${hosts[1]}"
ip netns pids retrax-b | xargs -r kill -KILL || true
host retrax-b 10.99.0.2 --address=10.99.0.1:6379
status=0
wait "$program" || status=$?
echo "exit status $status; steps $(tail -1 "$work/run/metrics.csv" | cut -d, -f1); actors' states: $(ls "$work/run/actors")"
exit "$status"
