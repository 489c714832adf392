#!/usr/bin/env bash
# Tests tandem run on two hosts, which are network namespaces. usage: two_hosts.sh TANDEM RANK_PROGRAM
# Exits with 77 if this machine does not allow network namespaces.
set -euo pipefail
tandem=$1 rank_program=$2

if [[ ${inside:-} != yes ]]; then
  if ! command -v ip >/dev/null; then
    echo "skipped: there is no program ip (iproute2)"
    exit 77
  fi
  if ! why=$(unshare -Urnm true 2>&1); then
    echo "skipped: no network namespaces here: $why"
    exit 77
  fi
  inside=yes exec unshare -Urnm --kill-child --fork -p --mount-proc "$0" "$@"
fi

mount -t tmpfs none /run
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ip netns add a
ip netns add b
ip link add va netns a type veth peer name vb netns b
ip -n a addr add 10.77.9.1/24 dev va
ip -n b addr add 10.77.9.2/24 dev vb
link() { ip -n a link set va "$1"; }
link up
ip -n b link set vb up
ip -n a link set lo up  # node 0 is a client of its own store
TANDEM_JOB_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export TANDEM_JOB_TOKEN

# on HOST NODE FLAGS... PROGRAM...: runs the launcher of NODE on HOST.
on() {
  local host=$1 node=$2
  shift 2
  ip netns exec "$host" timeout 30 "$tandem" run -n 2 --nnodes 2 --node-rank "$node" --rdzv 10.77.9.1:29511 "$@"
}
fail() {
  echo "failed: $*"
  tail -n 50 "$folder"/*.log
  exit 1
}
# both NAME FLAGS... PROGRAM...: runs on both hosts and sets codes[] to their exit codes; `disturb` runs at the same
# time.
both() {
  local name=$1
  shift
  on b 1 "$@" >"$folder/$name-b.log" 2>&1 &
  local b=$!
  on a 0 "$@" >"$folder/$name-a.log" 2>&1 &
  local a=$!
  disturb
  codes=(0 0)
  wait "$a" || codes[0]=$?
  wait "$b" || codes[1]=$?
}

disturb() { :; }
both meet "$rank_program" meet all
[[ ${codes[*]} == "0 0" ]] || fail "ranks on two hosts meet: exit codes ${codes[*]}"
[[ $(grep -c "met 4 ranks of all" "$folder"/meet-{a,b}.log | cut -d: -f2 | xargs) == "2 2" ]] || fail "all ranks met"

# A link that is down for a second does not end the job.
disturb() { sleep 1; link down; sleep 1; link up; }
both flap --heartbeat-limit 5 sh -c "$rank_program meet before && sleep 4"
[[ ${codes[*]} == "0 0" ]] || fail "a flap of 1 s is survived: exit codes ${codes[*]}"

# A link that stays down ends both sides, each by its own limit.
disturb() {
  while (($(find "$folder" -name 'pid?' | wc -l) < 4)); do sleep 0.05; done
  link down
  cut=$EPOCHREALTIME
}
both cut --heartbeat-limit 2 --kill-timeout 1 "$rank_program" wait "$folder"
took=$(awk "BEGIN { print $EPOCHREALTIME - $cut }")
[[ ${codes[0]} != 0 && ${codes[1]} != 0 ]] || fail "a cut ends both sides: exit codes ${codes[*]}"
awk "BEGIN { exit !($took < 8) }" || fail "both sides end in time: $took s"
grep -q "rank [23] .* has sent no heartbeat\|the launcher of node 1 .* is gone" "$folder/cut-a.log" || fail "host a names who is missing"
grep -q "the rendezvous server at 10.77.9.1:29511 has not answered for 2000 ms" "$folder/cut-b.log" ||
  fail "host b says what is missing"
echo "met, survived a flap, ended $took s after a cut"
