# Everything comes from the system: nothing is downloaded at configure time. `./dev setup` installs it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "tandem needs GCC 12 or newer; ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}. "
    "Install a newer one and choose it with CXX=g++-12 in a fresh build folder.")
endif()

# Repeated builds come out of ccache where it is installed; -DCMAKE_CXX_COMPILER_LAUNCHER= turns that off.
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
