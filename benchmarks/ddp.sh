#!/usr/bin/env bash
# Measures what DistributedDataParallel costs and gains on this machine: with ranks as threads, with processes beside
# PyTorch's, and on hosts with a limited link between them. `./dev bench ddp` builds and calls this script. Tables go to
# stdout. PyTorch is measured if $PYTHON (default python3) imports torch. Hosts are network namespaces, if the system
# allows these.
# usage: ddp.sh BUILD_FOLDER [--rounds N] [--link RATE]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
bin=$(cd "${1:?the build folder is missing}" && pwd -P)/bin
shift
rounds=3
link=1gbit
python=${PYTHON:-python3}

say() { printf '==> %s\n' "$*" >&2; }
die() {
  printf 'bench ddp: %s\n' "$*" >&2
  exit 2
}

while (($#)); do
  case $1 in
    --rounds | --link) [[ -n ${2:-} ]] || die "$1: a value must follow" ;;&
    --rounds) rounds=$2 ;;
    --link) link=$2 ;;
    *) die "unknown argument '$1'; there are --rounds N and --link RATE (as tc says it: 1gbit)" ;;
  esac
  shift 2
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "--rounds: expected a whole number from 1, got '$rounds'"

while read -r name; do # unset variables that make a peer slower (or faster) than users find it
  case $name in
    OPENBLAS_* | GOTO_* | OMP_* | KMP_* | MKL_* | BLIS_* | ATEN_* | MALLOC_* | LD_PRELOAD) unset "$name" ;;
  esac
done < <(compgen -e)
tuned=(MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592) # glibc keeps freed memory

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
median() { sort -g "$1" | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2}'; }

large=(--model 784-512-512-10 --batch 128 --optimizer adam)
small=(--model 128-256-128-10 --batch 8 --optimizer sgd)
printf -v chain '8-%.0s' {1..500}

say "ranks as threads"
printf '## Two threads\n\n'
"$bin/ddp_bench" "${large[@]}" 2>/dev/null
printf '\n## Two threads, a small model\n\n'
"$bin/ddp_bench" "${small[@]}" 2>/dev/null
printf '\n## One rank, 1000 parameters of 8 x 8 and 8: what the reducer costs\n\n'
"$bin/ddp_bench" --ranks 1 --model "${chain}8" --batch 8 --optimizer sgd 2>/dev/null | grep -v '^8-8'

processes() { "$bin/tandem" run -n 2 -- "$bin/ddp_bench" "${large[@]}" 2>/dev/null | sed 's/^\[0\] \?//'; }

# pytorch SETTING VARIABLES...: prints microseconds per step.
pytorch() {
  local rank port=$((20000 + RANDOM % 10000))
  for rank in 1 0; do
    env OMP_NUM_THREADS=1 RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${@:2}" \
      "$python" "$here/peers/pytorch_ddp.py" "${large[@]}" --setting "$1" >"$work/pytorch$rank" 2>"$work/stderr$rank" &
  done
  wait
  sed -n 's/.*"us_per_step": \([0-9.]*\).*/\1/p' "$work/pytorch0" | grep . || die "PyTorch failed: $(tail -n 1 "$work/stderr0")"
}

printf '\n## Two processes\n\n'
say "ranks as processes"
processes | tee "$work/table"
if "$python" -c 'import torch' 2>/dev/null; then
  for ((round = 1; round <= rounds; ++round)); do
    say "round $round of $rounds: beside PyTorch"
    processes | awk '$1 == "ddp" && $2 == 256 {print $3}' >>"$work/ours"
    pytorch default >>"$work/default"
    pytorch tuned "${tuned[@]}" >>"$work/tuned"
  done
  paste "$work/ours" "$work/default" | awk '{print $1 / $2}' >"$work/of_default"
  paste "$work/ours" "$work/tuned" | awk '{print $1 / $2}' >"$work/of_tuned"
  printf '\nPyTorch %s, DistributedDataParallel over Gloo, one thread per rank; medians of %d rounds in turn:\n' \
    "$("$python" -c 'import torch; print(torch.__version__)')" "$rounds"
  printf 'tandem %.0f us per step, PyTorch %.0f (ratio %.2f), with a malloc that keeps memory and a fused Adam %.0f (%.2f)\n' \
    "$(median "$work/ours")" "$(median "$work/default")" "$(median "$work/of_default")" "$(median "$work/tuned")" \
    "$(median "$work/of_tuned")"
else
  say "no PyTorch: $python does not import torch (PYTHON=... names another)"
fi

say "hosts, a link of $link"
printf '\n## Two hosts, a link of %s, eight gradients of 4 MiB\n\n' "$link"
status=0
TANDEM_NUM_THREADS=1 TANDEM_JOB_TOKEN=$(openssl rand -hex 32) "$here/../tests/hosts/hosts.sh" 2 "$link" "$work" none \
  "$bin/ddp_bench" --model 1024-1024-1024-1024-1024-1024-1024-1024-1024 --loss mse --batch 896 --optimizer sgd --rounds 9 \
  2>"$work/reason" || status=$?
if [[ $status == 77 ]]; then
  say "skipped: $(tail -n 1 "$work/reason")"
else
  cat "$work/rank0"
fi
