# shellcheck shell=bash disable=SC2154 # the variables of ../run
# run profile: the kernels of the table "Machine code" in docs/gpu.md under ncu, each case of gpu_bench called once.

profile() {
  local limit=540 smoke='' ncu status=0
  local kernels='cross_entropy|AdamStep|MasterStep|normalise|row_gradients'
  local metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
  metrics+=,launch__registers_per_thread,sm__warps_active.avg.pct_of_peak_sustained_active
  read_options "out budget limit smoke" "$@"
  begin
  ncu=$(find_tool ncu) || die "there is no ncu in PATH nor in CUDA's folders; CUDA's toolkit has it (Nsight Compute)" 77
  "$python" -c '' 2>/dev/null || die "$python does not start; it makes the table (PYTHON=... names another)" 77
  say "$ncu: $kernels"
  # --launch-count: Adam on 10,000 tensors has hundreds of launches.
  within "$limit" "$ncu" --csv --page raw --log-file "$logs/ncu.csv" --metrics "$metrics" --launch-count 300 \
    --kernel-name-base demangled --kernel-name "regex:$kernels" \
    "$program" bench --once --workloads W5,W7,W4 ${smoke:+--smoke} >"$logs/profile.log" 2>&1 || status=$?
  ! grep -qs ERR_NVGPUCTRPERM "$logs/ncu.csv" "$logs/profile.log" ||
    die "ncu may not read the GPU's counters here (ERR_NVGPUCTRPERM): an administrator must permit it" 77
  ((status == 0)) || tail -n 20 "$logs/profile.log" >&2
  ((status == 0)) || say "ncu: $(ending $status "$limit")"
  { printf '%s\n\n' "$gpu" && "$python" "$here/steps/profile_table.py" "$logs/ncu.csv"; } >"$work/profile.md" ||
    die "ncu has measured nothing"
  cp "$work/profile.md" "$out/profile.md"
  cat "$out/profile.md"
  say "$out/profile.md, after $SECONDS s of $budget"
  return $status
}
