#!/usr/bin/env bash
# Tests the `run` script of an emulated build's bundle in a folder of its own, not its speed.
# usage: run_test.sh CMAKE BUILD_FOLDER
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" --install "$2" --component gpu_bundle --prefix "$work/bundle" >/dev/null
cd "$work"
unset TANDEM_GOLDEN TANDEM_TEST_DEVICE

fail() {
  printf 'run_test: %s\n' "$*"
  cat "$work/output"
  exit 1
}
# expect STATUS COMMAND...
expect() {
  local wanted=$1 status=0
  "${@:2}" >"$work/output" 2>&1 || status=$?
  [[ $status == "$wanted" ]] || fail "${*:2}: expected $wanted, got $status"
}

expect 0 bundle/run tests --out tests --jobs 2 --filter 'GpuCumSum.*:*/activation_f32:ClipGradNorm*'
grep -q ': [1-9][0-9]* tests, 0 failed, [0-9]* skipped; 0 of 3 suites failed' output || fail "no such summary"
grep -q '<testcase name="EqualPyTorch/activation_f32"' tests/tests.xml || fail "tests.xml lacks a test"

# A suite that crashes is a failure, and the other suites run.
EMULATED_GPU_MEMORY=64k expect 1 bundle/run tests --out tests --filter 'GpuCumSum.*'
grep -q 'suites failed' output || fail "no summary"
# A suite for which no time was left is a failure, too.
expect 1 bundle/run tests --out tests --filter 'GpuCumSum.*' --budget 0
grep -q '<error message="ended with no time left"/>' tests/tests.xml || fail "nothing says that there was no time"

PYTHON=false expect 0 bundle/run bench --out results/today --smoke --rounds 2 --workloads "W1 host"
grep -q '^==> no PyTorch: false does not import' output || fail "no word on PyTorch"
grep -q '^| W1 | 12-16-12-10 batch 4 f32 | tandem captured |' results/today.md || fail "no such row"
grep -q '"case": "add 16 x 16"' results/today.json || fail "no such measurement"

EMULATED_GPU_COUNT=0 expect 77 bundle/run tests
grep -q '^run: no GPU: ' output || fail "nothing says that there is no GPU"
EMULATED_GPU_COUNT=0 expect 77 bundle/run bench
expect 2 bundle/run test
