# Decides whether this build has CUDA. Sets TANDEM_CUDA_ENABLED and, if that is on, TANDEM_CUDA_LINK: the libraries that
# a layer with CUDA code links. C++ code sees TANDEM_WITH_CUDA, 0 or 1, from <tandem/build.h>.
#
# EMULATED is for tests on machines without a GPU. The same sources, including kernels, are compiled for the CPU against
# tests/emulated_gpu, which stands in for CUDA's libraries. Only the toolkit's headers are needed.

set(TANDEM_CUDA "AUTO" CACHE STRING "CUDA support: AUTO (when a toolkit is found), ON (required), OFF, or EMULATED")
set_property(CACHE TANDEM_CUDA PROPERTY STRINGS AUTO ON OFF EMULATED)
include(cmake/cuda_architectures.cmake)
set(TANDEM_CUDA_MINIMUM 12.6)
set(TANDEM_CUDA_EMULATED OFF)

set(TANDEM_CUDA_ENABLED OFF)
set(TANDEM_CUDA_LINK "")

string(TOUPPER "${TANDEM_CUDA}" tandem_cuda_wanted)
if(tandem_cuda_wanted STREQUAL "OFF")
  message(STATUS "CUDA: off (TANDEM_CUDA=OFF)")
elseif(NOT tandem_cuda_wanted MATCHES "^(AUTO|ON|EMULATED)$")
  message(FATAL_ERROR "TANDEM_CUDA='${TANDEM_CUDA}': expected AUTO, ON, OFF or EMULATED")
else()
  include(cmake/find_cuda.cmake)
  if(NOT CUDAToolkit_FOUND)
    set(tandem_cuda_problem "no CUDA toolkit was found")
  elseif(CUDAToolkit_VERSION VERSION_LESS TANDEM_CUDA_MINIMUM)
    string(CONCAT tandem_cuda_problem "the toolkit found (${CUDAToolkit_BIN_DIR}) has version ${CUDAToolkit_VERSION}, "
      "${TANDEM_CUDA_MINIMUM} or newer is needed")
  elseif(NOT (TARGET CUDA::cudart_static AND TARGET CUDA::cublasLt) AND NOT tandem_cuda_wanted STREQUAL "EMULATED")
    set(tandem_cuda_problem "the toolkit found (${CUDAToolkit_BIN_DIR}) has no libcudart_static.a or no libcublasLt")
  else()
    set(tandem_cuda_problem "")
  endif()

  if(tandem_cuda_problem STREQUAL "")
    set(TANDEM_CUDA_ENABLED ON)
    message(STATUS "CUDA: on (TANDEM_CUDA=${tandem_cuda_wanted}; "
      "toolkit ${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR})")
  elseif(tandem_cuda_wanted STREQUAL "AUTO")
    message(STATUS "CUDA: off (TANDEM_CUDA=AUTO; ${tandem_cuda_problem})")
  else()
    message(FATAL_ERROR "TANDEM_CUDA=ON, but ${tandem_cuda_problem}.\n"
      "Install NVIDIA's CUDA toolkit ${TANDEM_CUDA_MINIMUM} or newer (https://developer.nvidia.com/cuda-downloads), or "
      "point to it with -DCUDAToolkit_ROOT=/path/to/cuda, or configure with -DTANDEM_CUDA=OFF for a CPU-only build.")
  endif()
endif()

# cuDNN is an alternative to some of our kernels. A build needs only its headers (9.0 or newer). Programs look for the
# library at its first use and start without it.
set(CUDNN_ROOT "" CACHE PATH "Where cuDNN is, if not in the CUDA toolkit or beside it")
set(TANDEM_CUDNN_ENABLED OFF)
if(TANDEM_CUDA_ENABLED)
  # pip installs cuDNN beside the toolkit: nvidia/cu13 and nvidia/cudnn.
  find_path(TANDEM_CUDNN_INCLUDE cudnn_graph.h HINTS "${CUDNN_ROOT}" ENV CUDNN_ROOT
    ${CUDAToolkit_INCLUDE_DIRS} PATHS "${CUDAToolkit_BIN_DIR}/../../cudnn" PATH_SUFFIXES include)
  mark_as_advanced(TANDEM_CUDNN_INCLUDE)
  if(TANDEM_CUDNN_INCLUDE)
    set(TANDEM_CUDNN_ENABLED ON)
    find_file(TANDEM_CUDNN_FILE libcudnn.so.9 HINTS "${TANDEM_CUDNN_INCLUDE}/.." PATH_SUFFIXES lib lib64)
    mark_as_advanced(TANDEM_CUDNN_FILE)
    message(STATUS "cuDNN: can be chosen (headers in ${TANDEM_CUDNN_INCLUDE})")
  else()
    message(STATUS "cuDNN: not used (no cudnn_graph.h; CUDNN_ROOT says where to look)")
  endif()
endif()

# NCCL, which carries data between GPUs, is optional in the same way.
set(NCCL_ROOT "" CACHE PATH "Where NCCL is, if not in the CUDA toolkit or beside it")
set(TANDEM_NCCL_ENABLED OFF)
if(TANDEM_CUDA_ENABLED)
  find_path(TANDEM_NCCL_INCLUDE nccl.h HINTS "${NCCL_ROOT}" ENV NCCL_ROOT
    ${CUDAToolkit_INCLUDE_DIRS} PATHS "${CUDAToolkit_BIN_DIR}/../../nccl" PATH_SUFFIXES include)
  mark_as_advanced(TANDEM_NCCL_INCLUDE)
  if(TANDEM_NCCL_INCLUDE)
    set(TANDEM_NCCL_ENABLED ON)
    find_file(TANDEM_NCCL_FILE libnccl.so.2 HINTS "${TANDEM_NCCL_INCLUDE}/.." PATH_SUFFIXES lib lib64)
    mark_as_advanced(TANDEM_NCCL_FILE)
    message(STATUS "NCCL: can be chosen (header in ${TANDEM_NCCL_INCLUDE})")
  else()
    message(STATUS "NCCL: not used (no nccl.h; NCCL_ROOT says where to look)")
  endif()
endif()

if(TANDEM_CUDA_ENABLED AND tandem_cuda_wanted STREQUAL "EMULATED")
  set(TANDEM_CUDA_EMULATED ON)
  message(STATUS "CUDA: emulated, for tests: kernels run on the CPU")
  add_subdirectory(tests/emulated_gpu)
  set(TANDEM_CUDA_LINK tandem_emulated_gpu tandem_emulated_cublaslt)
  if(TANDEM_CUDNN_ENABLED)
    list(APPEND TANDEM_CUDA_LINK tandem_emulated_cudnn)
  endif()
  if(TANDEM_NCCL_ENABLED)
    list(APPEND TANDEM_CUDA_LINK tandem_emulated_nccl)
  endif()
elseif(TANDEM_CUDA_ENABLED)
  set(TANDEM_CUDA_LINK CUDA::cudart_static CUDA::cublasLt)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
  endif()
  tandem_choose_gpus(CMAKE_CUDA_ARCHITECTURES "${TANDEM_CUDA_ARCHITECTURES}")
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # linked explicitly, like every other library
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
  enable_language(CUDA)
  # Compression reduces the size to a tenth. It needs a driver from CUDA 12.4 on, and code of CUDA 13 needs a newer one
  # anyway.
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    set(TANDEM_CUDA_COMPRESS --compress-mode=size)
  endif()
endif()

# Settings of this build that C++ code can query.
set(TANDEM_WITH_CUDA 0)
if(TANDEM_CUDA_ENABLED)
  set(TANDEM_WITH_CUDA 1)
endif()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/include/tandem/build.h" @ONLY CONTENT [[
#pragma once

/// 1 where tandem was built with CUDA, else 0.
#define TANDEM_WITH_CUDA @TANDEM_WITH_CUDA@
]])

# tandem_use_cudnn(<sources...>): marks sources that use cuDNN. They see TANDEM_WITH_CUDNN, 0 or 1, and in a build with
# cuDNN its headers.
function(tandem_use_cudnn)
  set(definitions TANDEM_WITH_CUDNN=0)
  if(TANDEM_CUDNN_ENABLED)
    set(definitions TANDEM_WITH_CUDNN=1)
    set_property(SOURCE ${ARGN} APPEND PROPERTY INCLUDE_DIRECTORIES "${TANDEM_CUDNN_INCLUDE}")
    if(TANDEM_CUDA_EMULATED)
      list(APPEND definitions TANDEM_CUDNN_LINKED=1)
    elseif(TANDEM_CUDNN_FILE)
      list(APPEND definitions "TANDEM_CUDNN_FILE=\"${TANDEM_CUDNN_FILE}\"")
    endif()
  endif()
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS ${definitions})
endfunction()

# tandem_use_nccl(<sources...>): marks sources that use NCCL, in a build that has its header.
function(tandem_use_nccl)
  set_property(SOURCE ${ARGN} APPEND PROPERTY INCLUDE_DIRECTORIES "${TANDEM_NCCL_INCLUDE}")
  if(TANDEM_CUDA_EMULATED)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS TANDEM_NCCL_LINKED=1)
  elseif(TANDEM_NCCL_FILE)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS "TANDEM_NCCL_FILE=\"${TANDEM_NCCL_FILE}\"")
  endif()
endfunction()

# tandem_cuda_sources(<target> <sources...>): compiles .cu files of a target, for the chosen GPUs or for the emulated
# one.
function(tandem_cuda_sources target)
  if(NOT TANDEM_CUDA_ENABLED)
    return()
  endif()
  target_sources(${target} PRIVATE ${ARGN})
  if(TANDEM_CUDA_EMULATED)
    # Built without -Wconversion: computing in 32 bits on purpose, as kernels do, would need casts everywhere. Variables
    # that one loop sets and the next reads under the same condition look uninitialised to GCC.
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
      "-x;c++;-include;${PROJECT_SOURCE_DIR}/tests/emulated_gpu/device.h;${TANDEM_EMULATED_GPU_DEVICE_OPTIONS};-Wno-conversion;-Wno-uninitialized;-Wno-maybe-uninitialized;-Wno-pedantic;-Wno-unknown-pragmas")
  endif()
endfunction()

# tandem_for_types(<list> <stem> <header> <declaration> <types...>): explicit instantiations of a template that takes too
# long to compile for all types at once, in sources that are written into the build folder (cuda/<stem>_<types>.cu) and
# appended to <list>. <types> are dtypes: f32 has a source of its own, f32_f64 share one. {} in <declaration>, which is
# of tandem::kernels::gpu, stands for the type.
function(tandem_for_types list stem header declaration)
  set(type_of_f32 float)
  set(type_of_f64 double)
  set(type_of_f16 Float16)
  set(type_of_bf16 BFloat16)
  set(type_of_i64 std::int64_t)
  set(type_of_i32 std::int32_t)
  set(type_of_u8 std::uint8_t)
  set(type_of_bool bool)
  foreach(types ${ARGN})
    set(instances "")
    string(REPLACE "_" ";" dtypes "${types}")
    foreach(dtype ${dtypes})
      string(REPLACE "{}" "${type_of_${dtype}}" instance "${declaration}")
      string(APPEND instances "template ${instance};\n")
    endforeach()
    set(source "${CMAKE_CURRENT_BINARY_DIR}/cuda/${stem}_${types}.cu")
    file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT [[
// Written by tandem_for_types() in cmake/cuda.cmake.
#include <tandem/@header@>

namespace tandem::inline v0::kernels::gpu {
@instances@}
]])
    list(APPEND ${list} "${source}")
  endforeach()
  set(${list} "${${list}}" PARENT_SCOPE)
endfunction()
