#!/usr/bin/env bash
# usage: check.sh PROGRAM TABLE NVCC_VERSION CUDA_BIN OBJECTS...
# Compares the kernels in object files with the table. Exits 77 if there is no cuobjdump (NVIDIA's toolkit has it, and
# the Python packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm).
set -euo pipefail

program=$1 table=$2 version=$3
PATH=$PATH:$4
shift 4
if ! command -v cuobjdump >/dev/null || ! command -v nvdisasm >/dev/null; then
  echo "machine_code: SKIPPED: there is no cuobjdump, or no nvdisasm" >&2
  exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hot=$(sed -n 's/^sources //p' "$table") # their names, separated by "|"
for object in "$@"; do
  cuobjdump -res-usage "$object" >>"$work/resources"
  if [[ ${object##*/} =~ ^($hot) ]]; then
    cuobjdump -sass "$object" >>"$work/code"
  fi
done
"$program" "$table" "$version" "$work/resources" "$work/code"
