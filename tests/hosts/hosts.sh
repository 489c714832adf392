#!/usr/bin/env bash
# Hosts on one machine: network namespaces joined by a bridge, each link limited to RATE (as tc says it: 1gbit; none: no
# limit). Or two hosts with a wire (the program WIRE) on which packets take a while (delay@MILLISECONDS), or packets of
# more bytes are lost (lose@BYTES). RANKS_PER_HOST ranks of a job run on each (1 if the variable is not set). Host h has
# the address 10.77.0.<h + 1> on its interface eth0.
#
#     hosts.sh N RATE FOLDER EVENT PROGRAM ARGUMENTS...
#
# EVENT is one of: none; cut@SECONDS, after which the last host's link is down; flap@SECONDS, which takes it down for
# one second. The seconds count from the moment when all ranks have printed "joined" on stderr or one has ended. Stderr
# goes to FOLDER/stderr<r>, rank r's stdout to FOLDER/rank<r>, its exit code to FOLDER/code<r>, and the time when the
# link went down to FOLDER/event (ns since the epoch). Everything runs in its own namespaces, including processes, so
# nothing outlasts the script. Exit code 77: the system does not allow this; the reason is on stderr.
set -euo pipefail

cannot() {
  printf '%s\n' "$1" >&2
  exit 77
}

if [[ ${TANDEM_INSIDE_HOSTS:-} != 1 ]]; then
  command -v ip >/dev/null || cannot "there is no ip command (apt-get install iproute2)"
  export TANDEM_INSIDE_HOSTS=1
  for user in "" --map-root-user; do
    options=(--net --mount --pid --fork --kill-child --mount-proc $user)
    if unshare "${options[@]}" true 2>/dev/null; then
      exec unshare "${options[@]}" bash "$0" "$@"
    fi
  done
  cannot "the system allows no network namespaces here"
fi

hosts=$1 rate=$2 folder=$3 event=$4
per_host=${RANKS_PER_HOST:-1}
ranks=$((hosts * per_host))
shift 4
mount -t tmpfs tmpfs /run
if [[ $rate == delay@* || $rate == lose@* ]]; then
  ip netns add host0 || cannot "ip netns add fails"
  ip netns add host1
  how=("${rate#*@}")
  if [[ $rate == lose@* ]]; then how=(0 "${how[0]}"); fi
  "$WIRE" /run/netns/host0 /run/netns/host1 "${how[@]}" >"$folder/wire" 2>&1 &
  wire=$!
  until [[ -s $folder/wire ]]; do sleep 0.01; done
  grep -q ready "$folder/wire" || cannot "$(<"$folder/wire")"
  bridged=0
else
  ip netns add switch || cannot "ip netns add fails"
  ip -n switch link add bridge type bridge || cannot "this kernel has no bridges"
  ip -n switch link set bridge up
  bridged=$hosts
fi
for ((i = 0; i < bridged; i++)); do
  ip netns add "host$i"
  ip -n switch link add "port$i" type veth peer name eth0 netns "host$i" || cannot "this kernel has no veth"
  ip -n switch link set "port$i" master bridge up
  ip -n "host$i" addr add "10.77.0.$((i + 1))/24" dev eth0
  ip -n "host$i" link set eth0 up
  ip -n "host$i" link set lo up
  if [[ $rate != none ]]; then
    tc -n switch qdisc replace dev "port$i" root tbf rate "$rate" burst 256kb latency 100ms || cannot "this kernel has no tbf"
    tc -n "host$i" qdisc replace dev eth0 root tbf rate "$rate" burst 256kb latency 100ms
  fi
done

jobs=()
for ((r = 0; r < ranks; r++)); do
  (
    code=0
    host=$((r / per_host))
    RANK=$r WORLD_SIZE=$ranks LOCAL_RANK=$((r % per_host)) LOCAL_WORLD_SIZE=$per_host GROUP_RANK=$host \
      MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
      ip netns exec "host$host" "$@" >"$folder/rank$r" 2>"$folder/stderr$r" || code=$?
    printf '%d\n' "$code" >"$folder/code$r"
  ) &
  jobs+=($!)
done

last=$((hosts - 1))
case $event in
  cut@* | flap@*)
    until (($(cat "$folder"/stderr* 2>/dev/null | grep -c '^joined$') == ranks)) || compgen -G "$folder/code*" >/dev/null; do
      sleep 0.05
    done
    sleep "${event#*@}"
    ip -n switch link set "port$last" down
    date +%s%N >"$folder/event"
    if [[ $event == flap@* ]]; then
      sleep 1
      ip -n switch link set "port$last" up
    fi
    ;;
esac
wait "${jobs[@]}"
if ((!bridged)); then
  kill "$wire"
fi
