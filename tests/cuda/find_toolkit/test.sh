#!/usr/bin/env bash
# Finds a toolkit as installed by pip in the active virtual environment, whose libraries have versioned names only. The
# toolkit consists of links to this build's toolkit. usage: test.sh CMAKE TOOLKIT CXX
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cmake=$1
toolkit=$(cd "$2" && pwd -P)
export CXX=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pip=$work/venv/lib/python3.99/site-packages/nvidia/cu13
mkdir -p "$pip/lib"
for folder in bin include nvvm; do
  [[ ! -e $toolkit/$folder ]] || ln -s "$toolkit/$folder" "$pip/$folder"
done
for file in "$toolkit"/lib*/libcudart_static.a "$toolkit"/lib*/libcudadevrt.a \
  "$toolkit"/lib*/lib{cudart,cublas,cublasLt}.so.[0-9]*; do
  [[ ! -e $file ]] || ln -sf "$file" "$pip/lib/"
done

unset CUDAToolkit_ROOT CUDACXX CUDA_PATH LD_LIBRARY_PATH
VIRTUAL_ENV=$work/venv "$cmake" -S "$here" -B "$work/build" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
grep -F "toolkit: $pip/bin" "$work/log" || { cat "$work/log" && echo "expected the one in $pip" && exit 1; }
"$cmake" --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
"$work/build/versions"

# CUDAToolkit_ROOT takes precedence over the active environment.
VIRTUAL_ENV=$work/venv "$cmake" -S "$here" -B "$work/other" -DCUDAToolkit_ROOT="$toolkit" >"$work/log" 2>&1
grep -F "toolkit: $toolkit/bin" "$work/log" || { cat "$work/log" && echo "expected the one in $toolkit" && exit 1; }
