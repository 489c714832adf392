# One declarative line per test program.

include(GoogleTest)

# tandem_test(<name> <sources...> [ON_GPU] [ON_GLOO] [LABELS ...] [LINK ...] [TIMEOUT <seconds>] [LOCK <name>])
# LOCK: none of its tests runs beside another with the same lock.
# ON_GPU: in a build with CUDA each test is there a second time, as gpu/..., with its tensors on cuda:0.
# ON_GLOO: in a build with Gloo each test is there as gloo/..., too, with ranks connected by Gloo, and as gloo-tcp/...,
# where they share no memory.
# A GoogleTest program in <build>/tests; each of its tests is one of ctest's, found when ctest runs. The name of the
# folder is a label too (`ctest -L core`). Tests may use internal headers; <tandem/...> and, for what lies in tests/,
# "support/..." are on the include path. The label `threads` marks what the thread sanitizer should see. For each label
# there is a target that builds its programs: tests_core, tests_threads.
function(tandem_test name)
  cmake_parse_arguments(ARG "ON_GPU;ON_GLOO" "TIMEOUT;LOCK" "LABELS;LINK" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(TANDEM_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)

  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE tandem fmt::fmt nlohmann_json::nlohmann_json ${ARG_LINK} tandem_test_device
    GTest::gmock GTest::gtest_main)
  tandem_compile_options(${name})
  # GCC 12 counts what designated initialisers leave out on purpose: a kernel's fields that a test sets for each side.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
  if(TANDEM_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)  # to optimise all checks takes a compiler longer than running them
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  foreach(label ${folder} ${ARG_LABELS})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()

  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LOCK)
    list(APPEND properties RESOURCE_LOCK ${ARG_LOCK})
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_LIST tests PROPERTIES ${properties})
  if(ARG_ON_GPU OR "cuda" IN_LIST ARG_LABELS)
    set_property(GLOBAL APPEND PROPERTY TANDEM_GPU_TESTS ${name})
  endif()
  if(ARG_ON_GPU AND TANDEM_CUDA_ENABLED)
    if(NOT TARGET tests_gpu)
      add_custom_target(tests_gpu)
    endif()
    add_dependencies(tests_gpu ${name})
    math(EXPR timeout "3 * ${ARG_TIMEOUT}")  # an emulated one takes its time
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX gpu/ TEST_LIST gpu_tests
      PROPERTIES TIMEOUT ${timeout} ENVIRONMENT TANDEM_TEST_DEVICE=cuda:0 LABELS gpu)
  endif()
  if(ARG_ON_GLOO AND TANDEM_WITH_GLOO)
    foreach(carrier gloo gloo-tcp)
      # But for what names its carrier itself.
      gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX ${carrier}/
        TEST_FILTER "-Nccl/*:*/LocalOfGpus:*/Staged:*/Nccl"
        TEST_LIST ${carrier}_tests PROPERTIES ${properties} ENVIRONMENT TANDEM_TEST_BACKEND=${carrier} LABELS gloo)
    endforeach()
  endif()
  # PROPERTIES flattens lists, so that only the first label would arrive: they are set once the tests are known.
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
  file(CONFIGURE OUTPUT "${labels_file}" @ONLY CONTENT [[
if(tests)
  set_tests_properties(${tests} PROPERTIES LABELS "@folder@;@ARG_LABELS@")
  unset(tests)
endif()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
endfunction()

# tandem_header_checks(<target>): every public header compiles alone, and twice, under strict warnings.
function(tandem_header_checks target)
  get_property(headers GLOBAL PROPERTY TANDEM_PUBLIC_HEADERS)
  set(sources "")
  foreach(header ${headers})
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
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()
