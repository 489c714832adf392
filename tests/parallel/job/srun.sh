#!/usr/bin/env bash
# A job of Slurm, with a controller and a node of its own on this host. usage: srun.sh PROGRAM ARGUMENTS...
# Exits with 77 if Slurm is not there, or cannot run here.
set -euo pipefail

# skip REASON: exits with 77; where TANDEM_REQUIRE_LAUNCHERS is set, as in CI, with 1.
skip() {
  echo "skipped: $1"
  [[ -z ${TANDEM_REQUIRE_LAUNCHERS:-} ]] || exit 1
  exit 77
}

for tool in srun slurmctld slurmd munged; do
  if ! command -v "$tool" >/dev/null && [[ ! -x /usr/sbin/$tool ]]; then
    skip "there is no $tool (apt-get install slurm-wlm munge, or ./dev setup all)"
  fi
done
((EUID == 0)) || skip "a slurmd of our own needs root"
PATH=$PATH:/usr/sbin
folder=$(mktemp -d)
chmod 755 "$folder"
daemons=()
finish() {
  kill "${daemons[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT
cd "$folder"
mkdir state spool

# A port at which nobody listens.
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)) && (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}
head -c 1024 /dev/urandom >key
chmod 600 key
munged --force --foreground --key-file="$folder/key" --socket="$folder/munge" --pid-file="$folder/munged.pid" \
  --log-file="$folder/munged.log" --seed-file="$folder/seed" >munged.out 2>&1 &
daemons+=($!)
host=$(hostname -s)
cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$folder/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
SelectType=select/cons_tres
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=5 State=UP OverSubscribe=YES
CONF
export SLURM_CONF=$folder/slurm.conf
until [[ -S munge ]]; do
  kill -0 "${daemons[0]}" || { cat munged.* && skip "munged does not start here"; }
  sleep 0.05
done
slurmctld -D >slurmctld.log 2>&1 &
daemons+=($!)
slurmd -D -N "$host" >slurmd.log 2>&1 &
daemons+=($!)
for ((i = 0; ; i++)); do
  if sinfo -h -o %t 2>/dev/null | grep -qE 'idle|mix'; then break; fi
  if ((i == 200)) || ! kill -0 "${daemons[@]}" 2>/dev/null; then
    tail -n 5 ./*.log
    skip "Slurm does not start here"
  fi
  sleep 0.1
done
timeout 60 srun --overcommit -n 3 "$@"
