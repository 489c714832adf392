# All dependencies come from the system: configuring downloads nothing. `./dev setup` installs them.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "tandem needs GCC 12 or newer; ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}. "
    "Install a newer one and choose it with CXX=g++-12 in a fresh build folder.")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR "tandem needs clang 16 or newer (parentheses around an aggregate's members); ${CMAKE_CXX_COMPILER} is "
    "${CMAKE_CXX_COMPILER_VERSION}. Choose another with CXX=clang++-16 in a fresh build folder.")
endif()

# If ccache is installed, it serves repeated builds. -DCMAKE_CXX_COMPILER_LAUNCHER= turns that off.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TANDEM_CCACHE ccache)
  mark_as_advanced(TANDEM_CCACHE)
  if(TANDEM_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${TANDEM_CCACHE}")
  endif()
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(nlohmann_json 3 REQUIRED)
find_package(OpenSSL 3 REQUIRED)

# Gloo connects process groups of several processes. Without it, making such a group is an error that names the cause.
find_package(Gloo QUIET)
option(TANDEM_WITH_GLOO "Have process groups over Gloo (Debian: libgloo-dev)" ${Gloo_FOUND})
if(TANDEM_WITH_GLOO AND NOT Gloo_FOUND)
  message(FATAL_ERROR "TANDEM_WITH_GLOO is ON, and there is no Gloo: apt-get install libgloo-dev, or give "
    "-DGloo_DIR=FOLDER of a GlooConfig.cmake, or -DTANDEM_WITH_GLOO=OFF.")
endif()
if(NOT TANDEM_WITH_GLOO)
  message(STATUS "Without Gloo (apt-get install libgloo-dev): ranks are threads of one process")
endif()

# tandem_header_library(<name> <header> <package>): the target tandem_<name>, for a library without a CMake package of
# which we use only headers, and only to build tandem.
function(tandem_header_library name header package)
  string(TOUPPER "TANDEM_${name}_INCLUDE_DIR" folder)
  find_path(${folder} ${header} DOC "Folder of ${header} (Debian: ${package})")
  mark_as_advanced(${folder})
  if(NOT ${folder})
    message(FATAL_ERROR "tandem needs ${header} to be built, and found none: apt-get install ${package}, or "
      "-D${folder}=FOLDER.")
  endif()
  add_library(tandem_${name} INTERFACE)
  target_include_directories(tandem_${name} SYSTEM INTERFACE "${${folder}}")
endfunction()

tandem_header_library(xxhash xxhash.h libxxhash-dev)
tandem_header_library(fast_float fast_float/fast_float.h libfast-float-dev)
target_compile_definitions(tandem_fast_float INTERFACE fast_float=tandem_fast_float)  # as for Asio
tandem_header_library(asio asio.hpp libasio-dev)
# The namespace is renamed and symbols are hidden, so that a program that links us statically may use another version.
# Asio 1.22 doesn't know that clang has C++20's coroutines.
target_compile_definitions(tandem_asio INTERFACE ASIO_STANDALONE asio=tandem_asio ASIO_DISABLE_VISIBILITY
  ASIO_HAS_CO_AWAIT ASIO_HAS_STD_COROUTINE ASIO_NO_DEPRECATED)
if(TANDEM_SANITIZE STREQUAL "thread")
  target_compile_definitions(tandem_asio INTERFACE ASIO_DISABLE_FENCED_BLOCK)  # the sanitizer does not know fences; locks do
endif()

if(TANDEM_BUILD_TOOLS OR TANDEM_BUILD_EXAMPLES OR TANDEM_BUILD_BENCHMARKS)
  find_package(CLI11 REQUIRED)
endif()
if(TANDEM_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
if(TANDEM_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
