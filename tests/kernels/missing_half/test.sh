#!/usr/bin/env bash
# In a build with CUDA, a kernel without a CUDA half must not compile: it would run the CPU's loop on a GPU's memory.
# usage: test.sh COMPILER INCLUDE_DIR, in a folder that belongs to the test
set -euo pipefail

compiler=$1
include_dir=$2
kernel=$(dirname "$0")/kernel.cpp

# compiles WITH_CUDA [OPTIONS...]: succeeds if kernel.cpp compiles in a build with CUDA (1) or without (0). Its own
# <tandem/build.h> is found before the build's, so that every preset tests both.
compiles() {
  mkdir -p "cuda_$1/tandem"
  printf '#pragma once\n#define TANDEM_WITH_CUDA %s\n' "$1" >"cuda_$1/tandem/build.h"
  "$compiler" -std=c++20 -fsyntax-only -I "cuda_$1" -I "$include_dir" "${@:2}" "$kernel" 2>errors
}
fail() {
  printf '%s; the compiler says:\n' "$1"
  cat errors
  exit 1
}

compiles 0 || fail 'without CUDA, a kernel needs no CUDA half'
compiles 1 -DWITH_CUDA_HALF || fail 'with CUDA, a kernel that has both halves must compile'
if compiles 1; then fail 'with CUDA, a kernel without a CUDA half must not compile'; fi
grep -qF 'this kernel has no CUDA half: declare `void run(OnCuda, Context& context, const Kernel& kernel);`' errors ||
  fail 'the error must say what to write'
