#!/usr/bin/env bash
# What the shared library shows to the world. usage: exported_symbols.sh LIBTANDEM.SO
# Exported may be
# - what lies in namespace tandem and is marked TANDEM_API (or is a type's name, which exceptions need),
# - weak and unique std:: symbols (W, V, u): templates of libstdc++ that our code instantiates. Its headers give the
#   namespace default visibility, which -fvisibility=hidden does not override; any program has its own copy, too.
# Nothing of fmt, zlib, Eigen, JSON or CUDA, and nothing that is declared in one of our internal headers.
set -euo pipefail

library=$1
failed=0

# names FLAG: lines "TYPE MANGLED-NAME".
names() { nm "$@" --defined-only "$library" | awk '{print $(NF - 1), $NF}'; }

# In mangled names a type's name, a guard or a qualifier may come before the namespace (P and F: of functions that a
# std::function holds): 6tandem, or St and Sa, Ss, ...
readonly ours='^[A-Za-z] _Z(T[VTISHW]|GV|GR|Z)*N?[VKRO]*6tandem'
readonly standard='^[WVu] _Z(T[VTIS]|GV|Z)*P?F?N?[VKRO]*S[tabsiod]'

exported=$(names -D)
everything=$(names -a | c++filt)

foreign=$(grep -Ev -e "$ours" -e "$standard" <<<"$exported" | c++filt || true)
if [[ -n $foreign ]]; then
  failed=1
  printf 'exported from outside namespace tandem (link it in without its symbols, or make it static):\n%s\n' "$foreign"
fi

# Internals of several layers. Each must be in the library, or this list is out of date.
for internal in kernels::cpu:: autograd::Node:: autograd::ClosureNode data::CsvScanner:: telemetry::Axis:: \
  nn::detail::ModuleState; do
  if [[ $everything != *"tandem::v0::$internal"* ]]; then
    failed=1
    printf 'there is no %s any more: name another internal in exported_symbols.sh\n' "$internal"
  fi
  # Functions that take or return it are not its own.
  shown=$(c++filt <<<"$exported" | grep -E "^[A-Za-z] ([a-z]+ )*(for )?tandem::v0::$internal" || true)
  if [[ -n $shown ]]; then
    failed=1
    printf 'internals of tandem::%s are exported (take TANDEM_API away):\n%s\n' "${internal%::}" "$shown"
  fi
done

if (($(wc -l <<<"$exported") < 100)); then
  failed=1
  echo "hardly anything is exported: is this libtandem.so?"
fi
exit $failed
