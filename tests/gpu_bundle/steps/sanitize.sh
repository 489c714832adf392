# shellcheck shell=bash disable=SC2154 # the variables of ../run
# run sanitize: suites of small kernels under compute-sanitizer, which makes them many times slower.

# sanitize_suite TOOL SUITE: one job of xargs.
sanitize_suite() {
  local tool=$1 name=$2 log status=0 began=$SECONDS ended summary
  log=$logs/$tool-$(file_of "$name").log
  if (($(left) < 1)); then
    ended="no time left"
  else
    # Tests call CUDA with wrong arguments on purpose.
    TANDEM_TEST_DEVICE=cuda:0 TANDEM_GOLDEN=$here/golden within "$limit" "$sanitizer" --tool "$tool" \
      --report-api-errors no --error-exitcode 99 --print-limit 20 \
      "$program" tests --gtest_filter="$name.*" >"$log" 2>&1 || status=$?
    ended=$(ending "$status" $((SECONDS - began)))
    summary=$(sed -n 's/^=* *\([A-Z]* *SUMMARY: .*\)/\1/p' "$log" | tail -n 1)
    # Warnings of racecheck have no exit code of their own. A tool that does not know the GPU reports nothing.
    case $status:$summary in
      0:*SUMMARY:\ 0\ *) ;;
      0: | 99:) ended="failed: no report by the tool" ;;
      0:* | 99:*) ended=$summary ;;
    esac
  fi
  printf '%s\t%s\t%s\t%s\n' "$tool" "$name" "$ended" $((SECONDS - began)) >>"$work/sanitize.tsv"
}

sanitize() {
  local limit=120 jobs=4 tools="racecheck memcheck initcheck" tool failed
  # Most kernels, and one training step of each kind.
  local suites='CudaCrossEntropy.*:CudaSoftmax.*:GpuNorm*:GpuReduce*:GpuSum.*:GpuExtreme.*:GpuCumSum*:CudaOptimizer.*'
  suites+=':CudaGather.*:CudaScatterAdd*:CudaIndex*:CudaGradScale.*:CudaElementwiseLoss.*:CudaTraining.*'
  read_options "out budget limit jobs tools suites" "$@"
  begin
  sanitizer=$(find_tool compute-sanitizer) || die "there is no compute-sanitizer in PATH nor in CUDA's folders; CUDA's \
toolkit has it, and so has the Python package nvidia-cuda-sanitizer-api" 77
  export sanitizer
  suites_of "$suites" >"$work/sanitized" || die "no test is called $suites"
  say "$sanitizer: $tools on $(wc -l <"$work/sanitized") suites, $jobs at a time"
  for tool in $tools; do sed "s/^/$tool /" "$work/sanitized"; done |
    xargs -P "$jobs" -L 1 "$here/run" sanitize_suite
  {
    printf '%s\n\n| tool | suite | | s |\n|---|---|---|---:|\n' "$gpu"
    sort "$work/sanitize.tsv" | awk -F '\t' '{ printf "| %s | %s | %s | %s |\n", $1, $2, $3, $4 }'
  } >"$out/sanitize.md"
  failed=$(cut -f 3 "$work/sanitize.tsv" | grep -cvx passed || true)
  grep -v '| passed |' "$out/sanitize.md" || true
  say "$(wc -l <"$work/sanitize.tsv") runs, $failed not clean; $out/sanitize.md, after $SECONDS s of $budget"
  ((failed == 0))
}
