# shellcheck shell=bash disable=SC2154 # the variables of ../run
# run bench: our own numbers of all workloads first. Peers get the rest of the time in equal shares, and we run again
# beside them in each round, so that a ratio compares neighbours in time.

# keep ROUND: appends the whole lines of $work/part to the results.
keep() { { grep '^{.*}$' "$work/part" || true; } | sed "s/^{/{\"round\":$1,/" >>"$work/lines.jsonl"; }

# ours ROUND WORKLOAD SECONDS ARGUMENTS...
ours() {
  local status=0
  say "round $1: $2, $(left) s left"
  within "$3" "$program" bench --workloads "$2" ${smoke:+--smoke} "${@:4}" >"$work/part" \
    2> >(tee -a "$logs/bench.log" >&2) || status=$?
  keep "$1"
  ((status == 0)) || say "gpu_bench $2: $(ending $status "$3")"
  return $status
}

# peers ROUND WORKLOAD SECONDS. PyTorch has libraries of its own.
peers() {
  local status=0
  say "round $1: $2 by PyTorch, $3 s of $(left)"
  LD_LIBRARY_PATH=$given_library_path timeout -k 5 "$3" "$python" "$here/peers/torch_peers.py" \
    "$work/data/$2/cases.jsonl" --seconds $(($3 - $3 / 8)) ${smoke:+--smoke} >"$work/part" \
    2> >(tee -a "$logs/peers.log" >&2) || status=$?
  keep "$1"
  ((status == 0)) || say "PyTorch did not finish $2: $(ending $status "$3")"
}

# has_torch: whether there is a PyTorch to compare with.
has_torch() {
  local version
  if version=$("$python" -c 'import numpy, torch; print(torch.__version__)' 2>/dev/null); then
    say "PyTorch $version"
  else
    say "no PyTorch: $python does not import torch and numpy (PYTHON=... names another); peers are left out"
    return 1
  fi
}

bench() {
  local limit=120 rounds=2 workloads="W0 W1 W3 W8 W5 W4 host W7 W2" alone='' smoke='' name round share turns began status=0
  read_options "out budget limit rounds workloads alone smoke" "$@"
  begin
  [[ -n $alone ]] || has_torch || alone=1
  : >"$work/lines.jsonl"
  for name in $workloads; do
    mkdir -p "$work/data/$name"
    if (($(left) < 5)); then
      say "no time left for $name"
      status=1
    elif [[ -n $alone ]]; then
      ours 0 "$name" "$limit" || status=1
    else
      ours 0 "$name" "$limit" --export "$work/data/$name" || status=1
    fi
  done
  turns=$((rounds * $(wc -w <<<"$workloads")))
  for ((round = 1; round <= rounds; ++round)); do
    for name in $workloads; do
      share=$(($(left) / turns--))
      [[ -n $alone || -s $work/data/$name/cases.jsonl ]] || continue
      if ((share < 5)); then
        say "no time left for round $round of $name"
        continue
      fi
      began=$(left)
      ours "$round" "$name" "$share" || continue
      share=$((share - began + $(left)))
      [[ -n $alone ]] || ((share < 5)) || peers "$round" "$name" "$share"
    done
  done
  rm -rf "$work/data"
  [[ -s $work/lines.jsonl ]] || die "nothing was measured"
  "$program" bench --report "$work/lines.jsonl" --out "$out/bench" || status=1
  say "$out/bench.md and $out/bench.json, after $SECONDS s of $budget"
  return $status
}
