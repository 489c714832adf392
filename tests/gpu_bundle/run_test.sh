#!/usr/bin/env bash
# Tests the `run` script of an emulated build's bundle in a folder of its own, not its speed.
# usage: run_test.sh CMAKE BUILD_FOLDER CXX_COMPILER
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" --install "$2" --component gpu_bundle --prefix "$work/bundle" >/dev/null
compiler=$3
cd "$work"
unset TANDEM_GOLDEN TANDEM_TEST_DEVICE TANDEM_GPU_TIMEOUT CUDAToolkit_ROOT CUDA_HOME
export PYTHON=false

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
# expect_text FILE TEXT: the file has a line with this text.
expect_text() { grep -qF -- "$2" "$1" || fail "$1 lacks: $2"; }
# expect_files FOLDER NAMES: these files and no others.
expect_files() { [[ $(cd "$1" && echo *) == "$2" ]] || fail "$1 has $(cd "$1" && echo *) instead of $2"; }
# script FILE: stdin becomes a program.
script() { cat >"$1" && chmod +x "$1"; }

# ---- tests ----

expect 0 bundle/run tests --out tests --jobs 2 --filter 'GpuCumSum.*:*/activation_f32:ClipGradNorm*'
grep -q ': [1-9][0-9]* tests, 0 failed, [0-9]* skipped; 0 of 3 suites failed' output || fail "no such summary"
expect_text tests/tests.xml '<testcase name="EqualPyTorch/activation_f32"'
grep -q '^| GpuCumSum | [1-9][0-9]* | 0 | 0 | [0-9]* | passed |' tests/tests.md || fail "no such row"
expect_files tests "logs.tar.gz tests.md tests.xml"
tar -xzOf tests/logs.tar.gz logs/GpuCumSum.log | grep -q '  PASSED  ' || fail "no log of GpuCumSum"

# A suite that crashes is a failure, and the other suites run.
EMULATED_GPU_MEMORY=64k expect 1 bundle/run tests --out tests --filter 'GpuCumSum.*'
expect_text output 'suites failed'
# A suite for which no time was left is a failure, too.
expect 1 bundle/run tests --out tests --filter 'GpuCumSum.*' --budget 0
expect_text tests/tests.xml '<error message="no time left"/>'

# A program whose suite GpuCumSum hangs, and whose other suites end at once.
mv bundle/bin/tandem_gpu bundle/bin/real
script bundle/bin/tandem_gpu <<'E2'
#!/usr/bin/env bash
case " $* " in
  *" --gtest_filter=GpuCumSum.* "*)
    echo "limit $TANDEM_GPU_TIMEOUT"
    exec sleep 60
    ;;
  *" --gtest_output="*) echo '<testsuites/>' >"${3#--gtest_output=xml:}" ;;
  *) exec "${0%/*}/real" "$@" ;;
esac
E2
expect 1 bundle/run tests --out hang --limit 3 --filter 'GpuCumSum.*:ClipGradNorm.*'
expect_text output 'GpuCumSum: hung: ended after '
grep -q '^| ClipGradNorm .* passed |' hang/tests.md || fail "the other suite did not run"
expect_text hang/tests.xml '<error message="hung: ended after '
grep -q '1 of 2 suites failed' output || fail "no such summary"
tar -xzOf hang/logs.tar.gz logs/GpuCumSum.log | grep -qx 'limit 1' || fail "the library has no limit"
mv bundle/bin/real bundle/bin/tandem_gpu

# ---- benchmarks ----

expect 0 bundle/run bench --out results --smoke --rounds 1 --workloads "W1 host"
expect_text output '==> no PyTorch: false does not import'
expect_text results/bench.md '| W1 | 12-16-12-10 batch 4 f32 | tandem captured |'
expect_text results/bench.json '"case": "add 16 x 16"'
expect_files results "bench.json bench.md logs.tar.gz"

EMULATED_GPU_COUNT=0 expect 77 bundle/run tests
grep -q '^run: no GPU: ' output || fail "nothing says that there is no GPU"
EMULATED_GPU_COUNT=0 expect 77 bundle/run bench
expect 2 bundle/run test
expect 2 bundle/run bench --budget ten
expect_text output "run: --budget: expected a whole number, got 'ten'"

# ---- tools ----

expect 77 bundle/run sanitize
expect_text output 'there is no compute-sanitizer in PATH'
expect 77 bundle/run profile
expect_text output 'there is no ncu in PATH'

# A tool that finds a hazard in one suite by racecheck, and only warns of another one.
mkdir -p toolkit/bin
script toolkit/bin/compute-sanitizer <<'E2'
#!/usr/bin/env bash
tool=$2
while [[ $1 != tests ]]; do shift; done
case $tool-$* in
  racecheck-*=GpuSum.*)
    echo "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)"
    exit 99
    ;;
  racecheck-*) echo "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)" ;;
  *) echo "========= ERROR SUMMARY: 0 errors" ;;
esac
E2
CUDAToolkit_ROOT=$work/toolkit expect 1 bundle/run sanitize --out sanitized --tools "racecheck memcheck" \
  --suites 'GpuSum.*:GpuExtreme.*'
expect_files sanitized "logs.tar.gz sanitize.md"
expect_text sanitized/sanitize.md '| racecheck | GpuSum | RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings) |'
expect_text sanitized/sanitize.md '| racecheck | GpuExtreme | RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning) |'
expect_text sanitized/sanitize.md '| memcheck | GpuSum | passed |'

script toolkit/bin/ncu <<'E2'
#!/usr/bin/env bash
[[ $* == *"bench --once --workloads W5,W7,W4"* ]] || exit 2
while [[ $1 != --log-file ]]; do shift; done
cat >"$2" <<'CSV'
==PROF== Connected to process 1
"ID","Kernel Name","Block Size","Grid Size","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","launch__registers_per_thread","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","%","ns","register/thread","%"
"0","void tandem::v0::gpu::(anonymous namespace)::cross_entropy<(bool)0, (int)512, tandem::v0::BFloat16>(Loss<float>, int)","(512, 1, 1)","(8192, 1, 1)","91.5","1,200","40","60.2"
"1","void tandem::v0::gpu::(anonymous namespace)::cross_entropy<(bool)0, (int)512, tandem::v0::BFloat16>(Loss<float>, int)","(512, 1, 1)","(8192, 1, 1)","93.5","1,400","40","60.2"
CSV
E2
PYTHON=python3 CUDAToolkit_ROOT=$work/toolkit expect 0 bundle/run profile --out profiled
expect_files profiled "logs.tar.gz profile.md"
expect_text profiled/profile.md \
  '| cross_entropy<(bool)0, (int)512, BFloat16> | (8192, 1, 1) (512, 1, 1) | 2 | 1.30 | 92.5 % | 40 | 60.2 % |'

# ---- order and time, with programs that do nothing ----

script bundle/bin/tandem_gpu <<'E2'
#!/usr/bin/env bash
case $* in
  "bench --name") echo "Some GPU" ;;
  "bench --report"*) touch "$5.json" "$5.md" ;;
  "bench "*)
    echo "tandem $3" >>calls
    while (($#)); do [[ $1 != --export ]] || echo case >"$2/cases.jsonl"; shift; done
    echo '{"us":1}'
    ;;
  "tests --gtest_list_tests"*) printf 'Some.\n  Test\n' ;;
  tests*)
    echo tests >>calls
    echo '<testsuites/>' >"${3#--gtest_output=xml:}"
    ;;
esac
E2
script python <<'E2'
#!/usr/bin/env bash
case $* in
  *"import numpy, torch"*) echo 2.11 ;;
  *torch_peers.py*)
    workload=$(basename "${2%/*}")
    echo "pytorch $workload" >>calls
    [[ $workload != "${hang:-}" ]] || exec sleep 60
    ;;
  *profile_table.py*) exec python3 "$@" ;;
esac
E2
# calls TEXT: what ran, in this order.
calls() {
  [[ $(tr '\n' ' ' <calls) == "$1 " ]] || fail "ran: $(tr '\n' ' ' <calls)"
  rm calls
}

# A peer that hangs takes its share of the time, and only after all of our own numbers.
PYTHON=$work/python hang=W1 expect 0 bundle/run bench --out order --rounds 1 --workloads "W1 W2" --budget 12
calls "tandem W1 tandem W2 tandem W1 pytorch W1 tandem W2 pytorch W2"
expect_text output 'PyTorch did not finish W1: hung: ended after'

PYTHON=$work/python expect 0 bundle/run bench --out order --rounds 1 --workloads "W1 W2" --alone
calls "tandem W1 tandem W2 tandem W1 tandem W2"

export CUDAToolkit_ROOT=$work/toolkit PYTHON=$work/python
expect 0 bundle/run first 1 --out first
calls "tests tandem W0 tandem W1 tandem W3 tandem W0 tandem W1 tandem W3"
expect_files first "bench.json bench.md logs.tar.gz tests.md tests.xml"
expect 1 bundle/run first 2 --out first2
calls "$(printf 'tandem %s ' W8 W5 W4 host W7 W2 W8 W5 W4 host W7 W2 | sed 's/ $//')"
expect_files first2 "bench.json bench.md logs.tar.gz sanitize.md"
expect 0 bundle/run first 3 --out first3
calls "tandem W8 tandem W1 tandem W2 tandem W5 $(printf 'tandem %s pytorch %s ' W8 W8 W1 W1 W2 W2 W5 W5 | sed 's/ $//')"
expect_files first3 "bench.json bench.md logs.tar.gz profile.md"
expect 2 bundle/run first

# ---- a program that lacks a library ----

echo 'int lost() { return 0; }' >lost.cpp
echo 'int lost(); int main() { return lost(); }' >user.cpp
"$compiler" -shared -fPIC -o liblost.so.13 lost.cpp
"$compiler" -o bundle/bin/tandem_gpu user.cpp liblost.so.13
rm liblost.so.13
for command in name tests "bench --alone" "first 1"; do
  # shellcheck disable=SC2086  # they are several words
  expect 1 bundle/run $command
  grep -q '^run: these libraries are missing: liblost.so.13. .*nvidia-cublas.*CUDAToolkit_ROOT=FOLDER.*toolkit' output ||
    fail "nothing says what is missing"
  ! grep -q 'error while loading' output || fail "the loader's error shows"
done
