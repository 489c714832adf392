#!/usr/bin/env bash
# Times the collectives of process groups between hosts beside Gloo's own: 2 and 4 hosts, with links of 1 Gbit/s and
# without a limit. Hosts are network namespaces (tests/hosts/hosts.sh). `./dev bench hosts` builds and calls this
# script. Tables go to stdout; it takes about five minutes. Exit code 77: the system allows no namespaces.
# usage: hosts.sh BUILD_FOLDER [ROUNDS]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
bin=$(cd "${1:?the build folder is missing}" && pwd -P)/bin
rounds=${2:-9}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { printf "bench hosts: expected a number of rounds from 1, got '%s'\n" "$rounds" >&2 && exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for rate in 1gbit none; do
  for hosts in 2 4; do
    printf '==> %d hosts, link limit %s\n' "$hosts" "$rate" >&2
    folder=$work/$hosts-$rate
    mkdir "$folder"
    load=$(cut -d ' ' -f 1 /proc/loadavg)
    GLOO_SOCKET_IFNAME=eth0 TANDEM_NUM_THREADS=1 "$here/../tests/hosts/hosts.sh" "$hosts" "$rate" "$folder" none \
      "$bin/comm_bench" --backend gloo "$rounds" "$folder/meet"
    if cat "$folder"/code* | grep -qv '^0$'; then
      cat "$folder"/stderr* >&2
      exit 1
    fi
    printf '## %d hosts, link limit: %s; load average before: %s\n\n' "$hosts" "$rate" "$load"
    cat "$folder/rank0"
    printf '\n'
  done
done
