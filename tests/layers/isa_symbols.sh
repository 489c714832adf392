#!/usr/bin/env bash
# Code that is compiled for an instruction set must not be what the linker takes for everybody: what such an object file
# offers to be shared (weak symbols: inline functions, templates) has to lie in that instruction set's own namespace.
# usage: isa_symbols.sh ISA OBJECTS...
set -euo pipefail

isa=$1
shift
shared=$(nm --defined-only "$@" | awk '$2 ~ /^[WVu]$/ {print $3}' | c++filt | sort -u |
  grep -Ev -e "::$isa::" -e "Eigen_$isa" -e '^DW\.ref\.__gxx_personality' || true)
if [[ -n $shared ]]; then
  printf 'compiled for %s, and shared with code for every machine (mark it always_inline, or write it without):\n%s\n' \
    "$isa" "$shared"
  exit 1
fi
