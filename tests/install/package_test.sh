#!/usr/bin/env bash
# Tests the installed package as users see it. usage: package_test.sh CASE. The environment gives SOURCE and BUILD
# (tandem's sources and a build folder), WORK (a folder to write in), CXX, NVCC, and BUILD's options: LIBDIR, SHARED and CUDA.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
prefix=$WORK/prefix
output=$WORK/${1:?which case?}.log

fail() {
  printf 'package_test: %s\n' "$*" >&2
  exit 1
}

# Runs a command and shows its output only if it fails.
quietly() { "$@" >"$output" 2>&1 || { cat "$output" && fail "failed: $*"; }; }

# consumer WAY OPTIONS...: configures, builds and runs the project in that folder.
consumer() {
  local way=$1 folder=$WORK/$1
  rm -rf "$folder"
  cmake -S "$here/$way" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" "${@:2}"
  cmake --build "$folder"
  "$folder/consumer"
}

# Installs, then moves the installation: no file in it may know its old place.
case_install() {
  local staged=$WORK/staged
  rm -rf "$WORK"
  mkdir -p "$WORK"
  quietly cmake --install "$BUILD" --prefix "$staged"
  mv "$staged" "$prefix"
  if [[ -x $BUILD/bin/tandem ]]; then
    quietly "$prefix/bin/tandem" info
  fi
  if [[ -x $BUILD/bin/regression ]]; then  # with its data set
    (cd / && quietly "$prefix/libexec/tandem/regression" --epochs 1 --quiet --out "$WORK/run")
  fi
  [[ -s $prefix/share/doc/tandem/docs/distributed.md && -s $prefix/share/doc/tandem/examples/mlp/main.cpp ]] ||
    fail "the docs or the samples are not installed"
  ! grep -rIl -e "$staged" -e "$BUILD" -e "$SOURCE" "$prefix" || fail "the files above name folders of this machine"
}

# The sample, as a user who has nothing but the package would build it. With CUDA its other half is compiled, too.
case_own_kernel() {
  local folder=$WORK/own_kernel options=()
  rm -rf "$folder"
  if [[ $CUDA == ON ]]; then
    options=(-DCMAKE_CUDA_ARCHITECTURES=90 -DCMAKE_CUDA_COMPILER="$NVCC")
  fi
  quietly cmake -S "$prefix/share/doc/tandem/examples/own_kernel" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" \
    -DCMAKE_PREFIX_PATH="$prefix" "${options[@]}"
  quietly cmake --build "$folder"
  [[ $CUDA != ON ]] || nm -C "$folder/own_kernel" | grep "run<float>(tandem::v0::kernels::OnCuda" >"$output" ||
    fail "own_kernel has no half for GPUs"
  LD_LIBRARY_PATH=$prefix/$LIBDIR "$folder/own_kernel"
  if [[ $CUDA == ON ]] && nvidia-smi >/dev/null 2>&1; then
    LD_LIBRARY_PATH=$prefix/$LIBDIR "$folder/own_kernel" cuda:0
  fi
}

# The package must not ask for libraries that only tandem's own build needs.
case_find_package() {
  consumer find_package -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
}

# Before 1.0 a minor version may break promises of the previous one.
case_version() {
  local wanted=$WORK/version
  mkdir -p "$wanted"
  cat >"$wanted/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.24)
project(version LANGUAGES CXX)
find_package(tandem ${WANTED} CONFIG REQUIRED)
CMAKE
  quietly cmake -S "$wanted" -B "$wanted/0.1" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DWANTED=0.1
  for version in 0.0 0.2 1.0; do
    ! cmake -S "$wanted" -B "$wanted/$version" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DWANTED=$version >"$output" 2>&1 ||
      fail "find_package(tandem $version) took another version"
    grep -q "considered but not accepted" "$output" || { cat "$output" && fail "another error"; }
  done
}

case_pkg_config() {
  local flags
  export PKG_CONFIG_PATH=$prefix/$LIBDIR/pkgconfig:${PKG_CONFIG_PATH:-}
  flags=$(pkg-config --cflags --libs tandem)
  # shellcheck disable=SC2086  # they are several words
  "$CXX" -std=c++20 "$here/main.cpp" -o "$WORK/pkg_config" $flags
  LD_LIBRARY_PATH=$prefix/$LIBDIR "$WORK/pkg_config"
  if [[ $SHARED == ON && $flags == *fmt* ]]; then
    fail "a program needs only libtandem.so, but pkg-config says: $flags"
  fi
}

# compile OPTIONS...: compiles a source from stdin, with headers from the installed tree only.
compile() {
  "$CXX" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I "$prefix/include" "$@" -x c++ -
}

# That each header compiles alone is a test of the build (tests/CMakeLists.txt); that all are installed is one here.
case_headers() {
  local headers
  headers=$(cd "$prefix/include" && find tandem -name '*.h' ! -path tandem/tensor/eigen.h ! -path tandem/kernels/cuda/cuda_queue.h)
  (($(wc -l <<<"$headers") > 40)) || fail "few headers were installed: $headers"
  sed 's/.*/#include <&>/' <<<"$headers" | compile || fail "the installed headers do not compile"
  # The bridge to Eigen is for programs that have Eigen. No other header includes it.
  local eigen
  eigen=$(pkg-config --cflags-only-I eigen3 | sed 's/^-I//; s/ *$//')
  compile -isystem "$eigen" <<<'#include <tandem/tensor/eigen.h>' || fail "<tandem/tensor/eigen.h> does not compile"
}

# whole WAY OPTIONS...: builds a consumer together with tandem's sources, in batches and without optimisation: only
# compiling and linking is tested. With ccache, only the first of these cases compiles all sources.
whole() {
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$SOURCE CCACHE_NOHASHDIR=1
  fi
  consumer "$1" -DTANDEM_SOURCE="$SOURCE" -DTANDEM_CUDA="$CUDA" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
    -DCMAKE_UNITY_BUILD=ON \
    "${@:2}"
}

case_add_subdirectory() { whole add_subdirectory; }

case_fetch_content() { whole fetch_content -DBUILD_SHARED_LIBS=ON; }

"case_$1"
