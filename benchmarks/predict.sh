#!/usr/bin/env bash
# Checks `tandem predict`: three models on one host with one thread, their predicted steps on two hosts over links of
# 1 Gbit/s and 100 Mbit/s, and what two such hosts (network namespaces, tests/hosts/hosts.sh) then do. `./dev bench
# predict` builds and calls this script. A table goes to stdout; it takes a minute. Exit code 77: the system allows no
# namespaces.
# usage: predict.sh BUILD_FOLDER
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
bin=$(cd "${1:?the build folder is missing}" && pwd -P)/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TANDEM_NUM_THREADS=1

number() { sed -n "s/.*\"$1\": *\[*\([-+.e0-9]*\).*/\1/p" "$2"; }

printf '| hidden layers | batch | link | predicted, ms | measured, ms | predicted / measured |\n'
printf '| --- | --- | --- | --- | --- | --- |\n'
for model in "512,256 128" "1024,1024 256" "2048,1024 512"; do
  read -r hidden batch <<<"$model"
  options=(--hidden "$hidden" --batch-size "$batch" --epochs 3 --report)
  rm -rf "$work/one"
  "$bin/mlp" "${options[@]}" --quiet --out "$work/one" >"$work/log"
  for rate in 1gbit 100mbit; do
    rm -rf "$work/two" "$work/hosts"
    mkdir "$work/hosts"
    GLOO_SOCKET_IFNAME=eth0 TANDEM_INSECURE_RENDEZVOUS=1 "$here/../tests/hosts/hosts.sh" 2 "$rate" "$work/hosts" none \
      "$bin/mlp" --parallel ddp "${options[@]}" --out "$work/two" >"$work/log"
    "$bin/tandem" predict "$work/one" -n 2 --network "$rate" --json >"$work/json"
    awk -v predicted="$(number step_us "$work/json")" -v measured="$(number step_us "$work/two/steps.json")" \
      -v row="| $hidden | $batch | $rate |" \
      'BEGIN { printf "%s %.2f | %.2f | %.2f |\n", row, predicted / 1000, measured / 1000, predicted / measured }'
  done
done
