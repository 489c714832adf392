#!/usr/bin/env bash
# Mistakes that do not compile, and the first error that their authors read: compile_errors.sh COMPILER INCLUDE_FOLDER.
set -euo pipefail

compiler=$1 includes=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# mistake HEADER EXPECTED CODE: the first error of CODE, in a function with a Linear `fc`, contains EXPECTED.
mistake() {
  local header=$1 expected=$2 code=$3 first
  printf '%s\n' "#include <tandem/$header>" "#include <tandem/tensor/factories.h>" "using namespace tandem;" \
    "struct Changing : nn::Module<Changing> { Tensor forward(const Tensor& x) { return x; } };" \
    "struct Foreign : nn::Module<nn::Linear> {};" \
    "struct Batch { Tensor x, y; };" \
    "struct Taking : nn::Module<Taking> { Tensor forward(const Batch& batch) const { return batch.x; } };" \
    "template <class M> struct Copies : nn::Module<Copies<M>> { M inner{2, 2}; M outer = this->child(\"a\", inner); };" \
    "void make() { nn::Linear fc(2, 2); $code }" >"$work/mistake.cpp"
  if "$compiler" -std=c++20 -fsyntax-only -I "$includes" "$work/mistake.cpp" >"$work/errors" 2>&1; then
    first="it compiles"
  else
    first=$(grep -m1 'error: ' "$work/errors")
  fi
  if [[ $first != *"$expected"* ]]; then
    printf 'of: %s\nexpected: %s\ngot: %s\n' "$code" "$expected" "$first"
    failed=1
  fi
}

mistake nn/container.h 'a layer is moved in, not copied: nn::Sequential(std::move(fc1), nn::ReLU())' \
  'nn::Sequential net(fc, nn::ReLU());'
mistake nn/container.h 'a layer is moved in, not copied' 'nn::Sequential net; net.push_back(fc);'
mistake nn/container.h 'a module is moved in, not copied: layers.push_back(std::move(layer))' \
  'nn::ModuleList<nn::Linear> layers; layers.push_back(fc);'
mistake nn/container.h 'a module is moved in, not copied: child("fc1", std::move(fc1))' 'Copies<nn::Linear> net;'
mistake nn/container.h 'forward() must be const: Tensor forward(const Tensor& x) const' 'Changing net; net(ones({2}));'
mistake nn/container.h 'the module has no forward() that takes these arguments' 'fc(ones({2}), 3);'
mistake nn/container.h 'a module derives from nn::Module of itself: struct Net : nn::Module<Net>' \
  'nn::ModuleList<Foreign> list; list.push_back(Foreign());'
mistake tandem.h 'an argument is a struct with tensors that has no members()' \
  'Taking net; parallel::DataParallel dp(net); dp(Batch());'
# No assertion can be reached here. The compiler's own words name the type, and a note below them shows the advice.
mistake nn/container.h 'deleted' 'nn::Linear other = fc;'
grep -q 'a module is not copied: std::move() it' "$work/errors" || [[ $("$compiler" --version) == *clang* ]] ||
  { echo "no note says what to do about a copy"; failed=1; }
mistake tandem.h "SGD" 'optim::SGD sgd(fc.parameters(), {.learning_rate = 0.1});'
grep -q 'SGDOptions' "$work/errors" || { echo "no note names the options"; failed=1; }
exit $failed
