#!/usr/bin/env bash
# Two jobs of Open MPI on one host at the same time, as its users start them. usage: mpirun.sh PROGRAM ARGUMENTS...
# Exits with 77 if there is no mpirun.
set -euo pipefail

# skip REASON: exits with 77; where TANDEM_REQUIRE_LAUNCHERS is set, as in CI, with 1.
skip() {
  echo "skipped: $1"
  [[ -z ${TANDEM_REQUIRE_LAUNCHERS:-} ]] || exit 1
  exit 77
}

command -v mpirun >/dev/null || skip "there is no mpirun (apt-get install openmpi-bin, or ./dev setup all)"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
jobs=()
for job in 1 2; do
  # Open MPI fails if two of its jobs make their common folder at the same moment.
  mkdir "$job"
  TMPDIR=$folder/$job timeout 60 mpirun --oversubscribe -n 2 "$@" >"$job.log" 2>&1 &
  jobs+=($!)
done
status=0
for job in "${jobs[@]}"; do
  wait "$job" || status=$?
done
cat ./*.log
exit "$status"
