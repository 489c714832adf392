# Decides whether this build has CUDA. Sets TANDEM_CUDA_ENABLED and, where it is on, TANDEM_CUDA_LINK: what a layer
# with CUDA code links. C++ code sees the macro TANDEM_CUDA=1 in the layers that define it, and nowhere else.

set(TANDEM_CUDA "AUTO" CACHE STRING "CUDA support: AUTO (when a toolkit is found), ON (required) or OFF")
set_property(CACHE TANDEM_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TANDEM_CUDA_MINIMUM 12.6)

set(TANDEM_CUDA_ENABLED OFF)
set(TANDEM_CUDA_LINK "")

string(TOUPPER "${TANDEM_CUDA}" tandem_cuda_wanted)
if(tandem_cuda_wanted STREQUAL "OFF")
  message(STATUS "CUDA: off (TANDEM_CUDA=OFF)")
elseif(NOT tandem_cuda_wanted MATCHES "^(AUTO|ON)$")
  message(FATAL_ERROR "TANDEM_CUDA='${TANDEM_CUDA}': expected AUTO, ON or OFF")
else()
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND)
    set(tandem_cuda_problem "no CUDA toolkit was found")
  elseif(CUDAToolkit_VERSION VERSION_LESS TANDEM_CUDA_MINIMUM)
    string(CONCAT tandem_cuda_problem "the toolkit found (${CUDAToolkit_BIN_DIR}) has version ${CUDAToolkit_VERSION}, "
      "${TANDEM_CUDA_MINIMUM} or newer is needed")
  elseif(NOT TARGET CUDA::cudart_static)
    set(tandem_cuda_problem "the toolkit found (${CUDAToolkit_BIN_DIR}) has no libcudart_static.a")
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

if(TANDEM_CUDA_ENABLED)
  set(TANDEM_CUDA_LINK CUDA::cudart_static)
endif()
