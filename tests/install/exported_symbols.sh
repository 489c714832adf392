#!/usr/bin/env bash
# Checks the symbols that the shared library exports. usage: exported_symbols.sh LIBTANDEM.SO
# Two kinds of symbols may be exported:
# - symbols in namespace tandem that are marked TANDEM_API (or are the names of types, which exceptions need),
# - weak and unique std:: symbols (W, V, u): templates of libstdc++ that our code instantiates. Its headers give the
#   namespace default visibility, which -fvisibility=hidden does not override. Any program has its own copy, too.
# Symbols of fmt, zlib, Eigen, JSON or CUDA, and of declarations in our internal headers, must not be exported.
set -euo pipefail

library=$1
failed=0

# names FLAG: prints lines "TYPE MANGLED-NAME".
names() { nm "$@" --defined-only "$library" | awk '{print $(NF - 1), $NF}'; }

# In a mangled name, a type's name, a guard or a qualifier may precede the namespace, which is 6tandem, or St and Sa,
# Ss, ... (P and F occur in functions that a std::function holds).
readonly ours='^[A-Za-z] _Z(T[VTISHW]|GV|GR|Z)*N?[VKRO]*6tandem'
readonly standard='^[WVu] _Z(T[VTIS]|GV|Z)*P?F?N?[VKRO]*S[tabsiod]'

exported=$(names -D)
everything=$(names -a | c++filt)

foreign=$(grep -Ev -e "$ours" -e "$standard" <<<"$exported" | c++filt || true)
if [[ -n $foreign ]]; then
  failed=1
  printf 'exported from outside namespace tandem (link it in without its symbols, or make it static):\n%s\n' "$foreign"
fi

# Internal names of several layers. Each must be in the library; otherwise this list is out of date.
for internal in kernels::cpu:: autograd::Node:: autograd::ClosureNode data::CsvScanner:: telemetry::Axis:: \
  nn::detail::ModuleState; do
  if [[ $everything != *"tandem::v0::$internal"* ]]; then
    failed=1
    printf 'there is no %s any more: name another internal in exported_symbols.sh\n' "$internal"
  fi
  # Exclude functions of other scopes that take or return the internal type.
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
