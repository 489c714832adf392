# shellcheck shell=bash disable=SC2154 # the variables of ../run
# What all commands share: messages, options, CUDA's libraries and tools, the time that is left, and the log archive.

say() { printf '==> %s\n' "$*" >&2; }
# die TEXT [STATUS]
die() {
  printf 'run: %s\n' "$1" >&2
  exit "${2:-1}"
}

# read_options NAMES ARGUMENTS...: --NAME VALUE sets the variable NAME; --alone and --smoke have no value.
read_options() {
  local names=" $1 " name
  shift
  while (($#)); do
    name=${1#--}
    [[ $1 == --* && $names == *" $name "* ]] || die "unknown argument '$1'; expected some of${names// / --}" 2
    if [[ $name == alone || $name == smoke ]]; then
      printf -v "$name" 1
      shift
      continue
    fi
    [[ $# -ge 2 ]] || die "$1: a value must follow" 2
    [[ ! $name =~ ^(budget|limit|jobs|rounds)$ || $2 =~ ^[0-9]+$ ]] || die "$1: expected a whole number, got '$2'" 2
    printf -v "$name" '%s' "$2"
    shift 2
  done
}

# ---- CUDA's libraries and tools ----

# Prints the roots that may have CUDA's libraries and tools, the likeliest first.
cuda_roots() {
  local root site
  for root in "${CUDAToolkit_ROOT:-}" "${CUDA_HOME:-}"; do
    [[ -z $root ]] || printf '%s\n' "$root" "$root"/../{cudnn,nccl}
  done
  while read -r site; do
    printf '%s\n' "$site"/nvidia/{cu13,cudnn,nccl}
  done < <(
    [[ -z ${VIRTUAL_ENV:-} ]] || printf '%s\n' "$VIRTUAL_ENV"/lib/python3*/site-packages
    "$python" -c 'import sys; print("\n".join(filter(None, sys.path)))' 2>/dev/null || true
  )
  printf '%s\n' /usr/local/cuda /usr/local/cuda-13*
}

# Adds the first folder that has each library. Libraries found in none are left to the system's own search.
find_libraries() {
  local library root folder found=''
  for library in libcublasLt.so.13 libcudnn.so.9 libnvrtc.so.13 libnccl.so.2; do
    while read -r root; do
      for folder in "$root"/{lib64,lib}; do
        [[ -e $folder/$library ]] || continue
        [[ :$found: == *:$folder:* ]] || found+=${found:+:}$folder
        break 2
      done
    done < <(cuda_roots)
  done
  export LD_LIBRARY_PATH=$found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  # If the system's C++ library is older than the programs, use the bundled one.
  ! ldd "$program" 2>&1 | grep -q 'version .\(GLIBCXX\|CXXABI\).* not found' ||
    LD_LIBRARY_PATH+=${LD_LIBRARY_PATH:+:}$here/lib/gcc
}

# find_tool NAME: prints the path of one of CUDA's tools.
find_tool() {
  local root file
  command -v "$1" && return
  while read -r root; do
    for file in "$root"/{bin,compute-sanitizer}/"$1" "$root"/nsight-compute*/"$1"; do
      [[ ! -x $file ]] || { printf '%s\n' "$file" && return; }
    done
  done < <(cuda_roots && printf '%s\n' /opt/nvidia /opt/nvidia/nsight-compute/*)
  return 1
}

# Prints the GPU's name. Ends with 1 where a library is missing and with 77 where there is no GPU, and says so.
gpu_name() {
  local lacking status=0 name
  lacking=$(ldd "$program" 2>&1 | sed -n 's/^[[:space:]]*\([^ ]*\) => not found$/\1/p' | sort -u | tr '\n' ' ')
  [[ -z $lacking ]] || die "these libraries are missing: ${lacking% }. CUDA 13's toolkit has libcublasLt.so.13, and so \
has the Python package nvidia-cublas; CUDAToolkit_ROOT=FOLDER names the folder above its lib or lib64. Searched: \
$(cuda_roots | tr '\n' ' ')and the system's folders"
  lacking=$(ldd "$program" 2>&1 | sed -n "s/.*version .\(GLIBC_[0-9.]*\)' not found.*/\1/p" | sort -uV | tail -n 1)
  [[ -z $lacking ]] || die "this system's C library is too old: $lacking is needed. Make the bundle on an older system"
  name=$("$program" bench --name 2>&1) || status=$?
  case $status in
    0) printf '%s\n' "$name" ;;
    77) die "$name" 77 ;;
    *) die "$program ended with $status: $name" ;;
  esac
}

# ---- a run ----

# Checks the GPU and prepares the folders `out` (results) and `logs`, the time `deadline`, and, at the end, the archive
# of the logs. A command that is a part of another one shares all of these except the deadline.
begin() {
  gpu=$(gpu_name) || exit
  deadline=$(($(date +%s) + budget))
  mkdir -p "$out"
  out=$(cd "$out" && pwd -P)
  if [[ -z ${TANDEM_BUNDLE_WORK:-} ]]; then
    TANDEM_BUNDLE_WORK=$(mktemp -d)
    trap finish EXIT
    say "$gpu, CUDA's libraries from ${LD_LIBRARY_PATH:-the system}"
    ! command -v nvidia-smi >/dev/null || nvidia-smi \
      --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.limit --format=csv >&2 || true
  fi
  work=$TANDEM_BUNDLE_WORK
  logs=$work/logs
  mkdir -p "$logs"
  export TANDEM_BUNDLE_WORK LD_LIBRARY_PATH deadline work logs limit
}

finish() {
  [[ ! -d $work/logs ]] || tar -czf "$out/logs.tar.gz" -C "$work" logs
  rm -rf "$work"
}

left() { echo $((deadline - $(date +%s))); }

# within SECONDS COMMAND...: runs a command for so long at most, or for the time that is left. The library gives up a
# GPU that hangs after a third of the time, with a message about the kernel; the command is ended if that does not help.
within() {
  local seconds
  seconds=$(left)
  seconds=$((seconds < 1 ? 1 : seconds < $1 ? seconds : $1))  # 0 would be no limit
  TANDEM_GPU_TIMEOUT=${TANDEM_GPU_TIMEOUT:-$(((seconds + 2) / 3))} timeout -k 5 "$seconds" "${@:2}"
}

# ending STATUS SECONDS: a status in words.
ending() {
  case $1 in
    0) echo passed ;;
    1) echo failed ;;
    124 | 137) echo "hung: ended after $2 s" ;;
    129 | 1[3-9][0-9]) echo "crashed: signal $(kill -l $(($1 - 128)))" ;;
    [0-9]*) echo "failed: status $1" ;;
    *) echo "$1" ;;
  esac
}

# Prints the suites that a pattern of GoogleTest's selects.
suites_of() {
  "$program" tests --gtest_list_tests --gtest_filter="$1" | sed -n 's/^\([A-Za-z][^.]*\)\..*/\1/p' | grep -v '^Running '
}

# file_of SUITE: its name as the name of a file.
file_of() { tr -c 'A-Za-z0-9_\n' _ <<<"$1"; }
