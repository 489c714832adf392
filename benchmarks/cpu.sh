#!/usr/bin/env bash
# Measures the cost of a training step on this machine's CPU, beside its floor, PyTorch, libtorch, JAX and dlib, and that
# of a forward pass beside ONNX Runtime. `./dev bench cpu` builds and calls this script.
# usage: cpu.sh BUILD_FOLDER [--out FOLDER] [--rounds N] [--cases "NAME ..."] [--threads "N ..."] [--blocks N]
# PyTorch and JAX are measured if $PYTHON (default python3) imports torch or jax; libtorch and dlib, if benchmarks/peers
# was built with them (peers/CMakeLists.txt). MKL takes slow kernels on AMD's processors, so that PyTorch is measured a
# second time there, with a library that lets MKL take its fast ones.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
build=$(cd "${1:?the build folder is missing}" && pwd -P)
shift
out=$build/../bench
rounds=3
names="linear small mnist large lenet resnet20 resnet18 pinn"
counts="1 2"
blocks=30
python=${PYTHON:-python3}

say() { printf '==> %s\n' "$*" >&2; }
die() {
  printf 'bench cpu: %s\n' "$*" >&2
  exit 2
}

while (($#)); do
  case $1 in
    --out | --rounds | --cases | --threads | --blocks) [[ -n ${2:-} ]] || die "$1: a value must follow" ;;&
    --out) out=$2 ;;
    --rounds) rounds=$2 ;;
    --cases) names=$2 ;;
    --threads) counts=$2 ;;
    --blocks) blocks=$2 ;;
    *) die "unknown argument '$1'; there are --out FOLDER, --rounds N, --blocks N, --cases \"linear small mnist large lenet resnet20 resnet18 pinn\" and --threads \"1 2\"" ;;
  esac
  shift 2
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "--rounds: expected a whole number from 1, got '$rounds'"

flags_of() {
  case $1 in
    linear) echo "--model 10-1 --loss mse --batch 32 --optimizer sgd" ;;
    small) echo "--model 128-256-128-10 --loss ce --batch 16 --optimizer sgd" ;;
    mnist) echo "--model 784-512-512-10 --loss ce --batch 128 --optimizer adam" ;;
    large) echo "--model 1024-4096-4096-1000 --loss ce --batch 256 --optimizer sgd --momentum 0.9" ;;
    lenet) echo "--model lenet --batch 64 --optimizer sgd --momentum 0.9" ;;
    resnet20) echo "--model resnet20 --batch 32 --optimizer sgd --momentum 0.9 --check-steps 3" ;;
    resnet18) echo "--model resnet18 --batch 8 --optimizer sgd --momentum 0.9 --check-steps 3" ;;
    pinn) echo "--model pinn --batch 4096 --optimizer adam --lr 1e-3" ;;
    *) die "--cases: there is no case '$1'; they are linear small mnist large lenet resnet20 resnet18 pinn" ;;
  esac
}
for name in $names; do flags_of "$name" >/dev/null; done

# Unset variables that make a peer slower (or faster) than users find it: OPENBLAS_CORETYPE=Haswell halves OpenBLAS's
# speed.
while read -r name; do
  case $name in
    OPENBLAS_* | GOTO_* | OMP_* | KMP_* | MKL_* | BLIS_* | ATEN_* | MALLOC_* | LD_PRELOAD)
      say "unset $name (was '${!name}')"
      unset "$name"
      ;;
  esac
done < <(compgen -e)
tuned=(MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592) # glibc keeps freed memory

has_pytorch=
if "$python" -c 'import numpy, torch' 2>/dev/null; then
  has_pytorch=1
  say "PyTorch $("$python" -c 'import torch; print(torch.__version__)')"
else
  say "no PyTorch: $python does not import torch and numpy (PYTHON=... names another)"
fi
if "$python" -c 'import numpy, jax' 2>/dev/null; then
  has_jax=1
  say "JAX $("$python" -c 'import jax; print(jax.__version__)')"
else
  has_jax=
  say "no JAX: $python does not import jax and numpy"
fi
libtorch=$build/peers/libtorch_step
dlib=$build/peers/dlib_step
for peer in "$libtorch" "$dlib"; do
  [[ -x $peer ]] || say "no ${peer##*/}: its library was not found, or it cannot be built (build/release/peers.log)"
done

mkdir -p "$out"
out=$(cd "$out" && pwd -P)
fast_mkl=
if [[ -n $has_pytorch ]] && grep -q AuthenticAMD /proc/cpuinfo &&
  "$python" -c 'import sys, torch; sys.exit(not torch.backends.mkl.is_available())' 2>/dev/null; then
  fast_mkl=$out/fast_mkl.so
  echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | "${CC:-cc}" -shared -fPIC -x c - -o "$fast_mkl" ||
    die "the library that lets MKL take its fast kernels was not built"
fi
lines=$out/cpu.jsonl
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
: >"$lines"

# measure PROGRAM ARGUMENTS...: adds a line to the results.
measure() { "$@" >>"$lines" || die "failed: $*"; }

for ((round = 1; round <= rounds; ++round)); do
  for name in $names; do
    for threads in $counts; do
      [[ $name != linear || $threads == 1 ]] || continue # too small to share
      read -r -a flags <<<"$(flags_of "$name") --threads $threads --blocks $blocks"
      say "round $round of $rounds: $name, $threads threads"
      for mode in eager captured fused; do
        # Only large weights are updated inside products.
        [[ $mode != fused || $name == large ]] || continue
        measure "$build/bin/step_bench" "${flags[@]}" --mode "$mode" --json --export "$data/$name" 2>/dev/null
      done
      if [[ $name == mnist || $name == large ]] && grep -q avx512_bf16 /proc/cpuinfo; then
        bf16=("${flags[@]}" --precision medium)
        for mode in captured fused; do
          [[ $mode != fused || $name == large ]] || continue
          measure "$build/bin/step_bench" "${bf16[@]}" --mode "$mode" --json 2>/dev/null
        done
        [[ -z $has_pytorch ]] || measure env "OMP_NUM_THREADS=$threads" "${tuned[@]}" "$python" \
          "$here/peers/pytorch_step.py" "${bf16[@]}" --data "$data/$name" --setting tuned --implementation fused
      fi
      if [[ -n $has_pytorch ]]; then
        peer=("$python" "$here/peers/pytorch_step.py" "${flags[@]}" --data "$data/$name")
        measure env "OMP_NUM_THREADS=$threads" "${peer[@]}" --setting default
        measure env "OMP_NUM_THREADS=$threads" "${tuned[@]}" "${peer[@]}" --setting tuned --implementation fused
        [[ -z $fast_mkl ]] || measure env "OMP_NUM_THREADS=$threads" "LD_PRELOAD=$fast_mkl" "${tuned[@]}" "${peer[@]}" \
          --setting "tuned, fast MKL" --implementation fused
        if [[ $name == pinn ]]; then
          measure env "OMP_NUM_THREADS=$threads" "${tuned[@]}" "${peer[@]}" --setting compiled --implementation fused \
            --compile
        elif [[ $name == *net* ]]; then
          for layout in "" --channels-last; do
            measure env "OMP_NUM_THREADS=$threads" ${fast_mkl:+"LD_PRELOAD=$fast_mkl"} "${tuned[@]}" "${peer[@]}" \
              --setting "compiled${layout:+, channels-last}" --implementation fused --compile $layout
          done
          measure env "OMP_NUM_THREADS=$threads" ${fast_mkl:+"LD_PRELOAD=$fast_mkl"} "${tuned[@]}" "${peer[@]}" \
            --setting channels-last --implementation fused --channels-last
        fi
      fi
      [[ -z $has_jax ]] || measure "$python" "$here/peers/jax_step.py" "${flags[@]}" --data "$data/$name"
      [[ $name != *net* && $name != pinn ]] || continue # the other peers have no such nets here
      if [[ -x $libtorch ]]; then
        peer=("$libtorch" "${flags[@]}" --data "$data/$name")
        measure env "OMP_NUM_THREADS=$threads" "${peer[@]}" --setting default
        measure env "OMP_NUM_THREADS=$threads" "${tuned[@]}" "${peer[@]}" --setting tuned
      fi
      [[ ! -x $dlib || $threads != 1 ]] ||
        measure env OPENBLAS_NUM_THREADS=1 "${tuned[@]}" "$dlib" "${flags[@]}" --data "$data/$name" --setting tuned
    done
  done
done
"$build/bin/bench_report" --lines "$lines" --out "$out"

say "a forward pass"
"$build/bin/inference_bench" --benchmark_out="$out/inference.json"
if "$python" -c 'import numpy, onnx, onnxruntime' 2>/dev/null; then
  for batch in 1 64; do "$python" "$here/peers/onnxruntime_inference.py" --batch $batch; done
else
  say "no ONNX Runtime: $python does not import numpy, onnx and onnxruntime"
fi
