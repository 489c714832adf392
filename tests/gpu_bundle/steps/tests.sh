# shellcheck shell=bash disable=SC2154 # the variables of ../run
# run tests: every suite in a process of its own, so that a suite that loses the GPU does not disturb the others.

# suite NAME: runs one suite, as a job of xargs.
suite() {
  local name=$1 file status=0 began=$SECONDS ended
  file=$(file_of "$name")
  if (($(left) < 1)); then
    status="no time left"
  else
    TANDEM_TEST_DEVICE=cuda:0 TANDEM_GOLDEN=$here/golden within "$limit" "$program" tests --gtest_filter="$name.*" \
      --gtest_output="xml:$work/$file.xml" >"$logs/$file.log" 2>&1 || status=$?
  fi
  ended=$(ending "$status" $((SECONDS - began)))
  [[ $ended != passed || -s $work/$file.xml ]] || ended="failed: ended before its last test"
  printf '%s\t%s\t%s\n' "$name" "$ended" $((SECONDS - began)) >>"$work/suites.tsv"
}

# attribute NAME FILE: a number of the suite in GoogleTest's file: tests, failures, skipped.
attribute() {
  { [[ ! -s $2 ]] || sed -n "s/.*<testsuite .*\b$1=\"\([0-9]*\)\".*/\1/p" "$2"; } | awk '{n += $1} END {print n + 0}'
}

# Writes the JUnit file of all suites to $out/tests.xml, and a table of them to $out/tests.md.
write_results() {
  local name ended seconds file numbers
  {
    echo '<?xml version="1.0" encoding="UTF-8"?>'
    echo '<testsuites name="tandem_gpu">'
    while IFS=$'\t' read -r name ended seconds; do
      file=$work/$(file_of "$name").xml
      if [[ -s $file ]]; then
        sed '/<?xml/d; /<testsuites /d; /<\/testsuites>/d' "$file"
      else
        echo "<testsuite name=\"$name\" tests=\"1\" errors=\"1\"><testcase name=\"the whole suite\"" \
          "classname=\"$name\"><error message=\"$ended\"/></testcase></testsuite>"
      fi
    done <"$work/sorted"
    echo '</testsuites>'
  } >"$out/tests.xml"
  {
    printf '%s\n\n| suite | tests | failed | skipped | s | |\n|---|---:|---:|---:|---:|---|\n' "$gpu"
    while IFS=$'\t' read -r name ended seconds; do
      file=$work/$(file_of "$name").xml
      numbers="| $(attribute tests "$file") | $(attribute failures "$file") | $(attribute skipped "$file") "
      printf '| %s %s| %s | %s |\n' "$name" "$numbers" "$seconds" "$ended"
    done <"$work/sorted"
  } >"$out/tests.md"
}

tests() {
  local limit=90 jobs=4 filter='*' name ended seconds failed
  read_options "out budget limit jobs filter" "$@"
  begin
  suites_of "$filter" >"$work/suites" || die "no test is called $filter"
  say "$(wc -l <"$work/suites") suites, $jobs at a time, $limit s at most for each"
  # A suite that fills the memory of the GPU runs alone.
  { grep -x 'CudaAllocator' "$work/suites" || true; } | xargs -I '{}' "$here/run" suite '{}'
  { grep -vx 'CudaAllocator' "$work/suites" || true; } | xargs -P "$jobs" -I '{}' "$here/run" suite '{}'
  sort "$work/suites.tsv" >"$work/sorted"
  write_results
  failed=$(cut -f 2 "$work/sorted" | grep -cvx passed || true)
  while IFS=$'\t' read -r name ended seconds; do
    [[ $ended == passed ]] && continue
    printf '\n===== %s: %s =====\n' "$name" "$ended"
    tail -n 40 "$logs/$(file_of "$name").log" 2>/dev/null || true
  done <"$work/sorted"
  # Once more without output in between, for who sees only the end.
  ((failed == 0)) || awk -F '\t' 'BEGIN { print "" } $2 != "passed" { printf "%s: %s\n", $1, $2 }' "$work/sorted"
  awk -F ' *[|] *' -v gpu="$gpu" -v failed="$failed" -v seconds="$SECONDS" -v budget="$budget" -v file="$out/tests.md" '
    NR > 4 { suites++; tests += $3; failures += $4; skipped += $5 }
    END { printf "\n%s: %d tests, %d failed, %d skipped; %d of %d suites failed; %d s of %d; %s\n", gpu, tests, failures,
      skipped, failed, suites, seconds, budget, file }' "$out/tests.md"
  ((failed == 0))
}
