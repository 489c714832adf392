# One declarative line per test program.

include(GoogleTest)

# tandem_test(<name> <sources...> [ON_GPU] [ON_GLOO] [APART] [LABELS ...] [LINK ...] [TIMEOUT <seconds>] [LOCK <name>])
# A GoogleTest program in <build>/tests, and normally one test of ctest's: a process for each of its tests would take longer than
# the tests do. GTEST_FILTER chooses among the tests; their results are in <build>/test-results, which `./dev test` counts.
# ON_GPU: a build with CUDA runs its tests once more as gpu/<test>, with their tensors on cuda:0.
# ON_GLOO: a build with Gloo runs it once more as gloo/<name>, with ranks connected by Gloo, and as gloo-tcp/<name>, where
# ranks share no memory.
# LOCK: no other program with the same lock runs beside this one. Such programs mostly wait, and start first. `processes`
# is the lock of tests that start a launcher, `hosts` that of other tests whose ranks are processes or hosts.
# Labels are the folders (`ctest -L core`) and LABELS; `threads` marks what the thread sanitizer should see. For each
# label there is a target that builds its programs: tests_core, tests_threads.
# Sources are compiled in batches of five: most of a test's compile time is templates that other tests use, too. So names
# in anonymous namespaces differ among the sources of a program. APART: each source alone.
# Tests may use internal headers; <tandem/...> and, for headers in tests/, "support/..." are on the include path.
function(tandem_test name)
  cmake_parse_arguments(ARG "ON_GPU;ON_GLOO;APART" "TIMEOUT;LOCK" "LABELS;LINK" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(TANDEM_SANITIZE)
    math(EXPR ARG_TIMEOUT "15 * ${ARG_TIMEOUT}")
  elseif(TANDEM_CUDA_EMULATED AND "cuda" IN_LIST ARG_LABELS)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  file(RELATIVE_PATH labels "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" ";" labels "${labels}")
  list(APPEND labels ${ARG_LABELS})

  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE tandem fmt::fmt nlohmann_json::nlohmann_json ${ARG_LINK} tandem_test_support
    GTest::gmock GTest::gtest_main)
  tandem_test_options(${name})
  target_precompile_headers(${name} REUSE_FROM tandem_test_support)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  if(ARG_APART)
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  else()
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 5)
  endif()
  foreach(label ${labels})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()

  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LOCK)
    list(APPEND properties RESOURCE_LOCK ${ARG_LOCK} COST 1000)
  endif()
  tandem_test_run(${name} "" "${labels}" "" "" ${properties})
  if(ARG_ON_GPU OR "cuda" IN_LIST ARG_LABELS)
    set_property(GLOBAL APPEND PROPERTY TANDEM_GPU_TESTS ${name})
  endif()
  if(ARG_ON_GPU AND TANDEM_CUDA_ENABLED)
    if(NOT TARGET tests_gpu)
      add_custom_target(tests_gpu)
    endif()
    add_dependencies(tests_gpu ${name})
    math(EXPR timeout "5 * ${ARG_TIMEOUT}")  # an emulated GPU is slow
    tandem_test_run(${name} gpu/ gpu TANDEM_TEST_DEVICE=cuda:0 "" TIMEOUT ${timeout})
  endif()
  if(ARG_ON_GLOO AND TANDEM_WITH_GLOO)
    foreach(carrier gloo gloo-tcp)
      # Tests that name their carrier themselves run once.
      tandem_test_run(${name} ${carrier}/ gloo TANDEM_TEST_BACKEND=${carrier} "-Nccl/*:*/LocalOfGpus:*/Staged:*/Nccl"
        ${properties})
    endforeach()
  endif()
endfunction()

# tandem_test_run(<program> <prefix> <labels> <environment> <filter> <properties...>): one run of a test program, or of
# those tests that a filter of GoogleTest's leaves. Each test on a GPU has a process of its own: some leave the GPU
# unusable, or its memory in pieces.
function(tandem_test_run program prefix labels environment filter)
  if(prefix STREQUAL "gpu/" OR (TANDEM_CUDA_ENABLED AND "cuda" IN_LIST labels))
    string(MAKE_C_IDENTIFIER "${prefix}${program}" list)
    gtest_discover_tests(${program} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX "${prefix}"
      TEST_FILTER "${filter}" TEST_LIST ${list} PROPERTIES ${ARGN} ENVIRONMENT "${environment}")
    # PROPERTIES flattens lists, so only the first label would arrive. Labels are set once the tests are known.
    set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${list}_labels.cmake")
    file(CONFIGURE OUTPUT "${labels_file}" @ONLY CONTENT [[
if(@list@)
  set_tests_properties(${@list@} PROPERTIES LABELS "@labels@")
endif()
]])
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
    return()
  endif()
  if(filter)
    set(filter "GTEST_FILTER=${filter}")
  endif()
  string(REPLACE "/" "-" result "${prefix}${program}")
  add_test(NAME ${prefix}${program} COMMAND ${program})
  set_tests_properties(${prefix}${program} PROPERTIES LABELS "${labels}" ENVIRONMENT
    "GTEST_BRIEF=1;GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test-results/${result}.xml;${environment};${filter}" ${ARGN})
endfunction()

# tandem_test_program(<name> <sources...>): a program in <build>/tests that tests start.
function(tandem_test_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE tandem fmt::fmt)
  tandem_test_options(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endfunction()

# tandem_test_options(<target>): how tests are compiled. Not optimised: a compiler takes longer to optimise a test than
# the test takes to run. For a GPU they are optimised for size: the bundle of them has to travel. All of them share one
# precompiled header (tests/CMakeLists.txt), so their options are equal.
function(tandem_test_options target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  tandem_compile_options(${target})
  # GCC 12 warns of fields that designated initialisers leave out; tests leave a kernel's fields out on purpose.
  if(TANDEM_CUDA_ENABLED AND NOT TANDEM_CUDA_EMULATED)
    set(optimisation -Os)
  else()
    set(optimisation -O0)
  endif()
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers ${optimisation}>)
  # With the compiler's own default, programs and object libraries are compiled alike: they share the header.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
endfunction()

# tandem_header_checks(<target>): every public header compiles alone, and twice, under strict warnings. A header that its
# own source includes before all else has shown that already.
function(tandem_header_checks target)
  get_property(headers GLOBAL PROPERTY TANDEM_PUBLIC_HEADERS)
  set(sources "")
  foreach(header ${headers})
    string(REGEX REPLACE "\\.h$" ".cpp" own_source "${PROJECT_SOURCE_DIR}/${header}")
    set(first_include "")
    if(EXISTS "${own_source}")
      file(STRINGS "${own_source}" first_include REGEX "^#include" LIMIT_COUNT 1)
    endif()
    if(first_include STREQUAL "#include <tandem/${header}>")
      continue()
    endif()
    string(MAKE_C_IDENTIFIER "${header}" stem)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/headers/${stem}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include <tandem/${header}>\n#include <tandem/${header}>\n" @ONLY)
    list(APPEND sources "${source}")
  endforeach()
  add_library(${target} OBJECT ${sources})
  target_include_directories(${target} PRIVATE "${TANDEM_INCLUDE_DIR}")
  target_link_libraries(${target} PRIVATE Eigen3::Eigen)  # for the bridge to it
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE -O0 -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Werror)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF UNITY_BUILD OFF)
endfunction()
