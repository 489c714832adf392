# Extends find_package(CUDAToolkit) to toolkits from pip, in site-packages/nvidia/cu13, whose libraries have only
# versioned names (libcublasLt.so.13). Search order: CUDAToolkit_ROOT (or CUDACXX, or CMAKE_CUDA_COMPILER), the active
# virtual environment, python3's packages, then CMake's places: nvcc in PATH and /usr/local/cuda. Installed too, for
# programs that link us.

if(NOT CUDAToolkit_ROOT AND NOT DEFINED ENV{CUDAToolkit_ROOT} AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  file(GLOB tandem_sites "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages")
  find_program(TANDEM_PYTHON python3)
  mark_as_advanced(TANDEM_PYTHON)
  if(TANDEM_PYTHON)
    execute_process(COMMAND "${TANDEM_PYTHON}" -c "import sys; print(';'.join(filter(None, sys.path)))"
      OUTPUT_VARIABLE tandem_python_path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND tandem_sites ${tandem_python_path})
  endif()
  foreach(site ${tandem_sites})
    # Require the compiler: the libraries that PyTorch needs are often installed without it.
    if(EXISTS "${site}/nvidia/cu13/bin/nvcc" AND EXISTS "${site}/nvidia/cu13/include/cublasLt.h")
      set(CUDAToolkit_ROOT "${site}/nvidia/cu13" CACHE PATH "The CUDA toolkit")
      break()
    endif()
  endforeach()
endif()

# Look for libraries with versioned names where CMake would look for plain names.
set(tandem_roots "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}")
foreach(compiler "${CMAKE_CUDA_COMPILER}" "$ENV{CUDACXX}")
  if(compiler)
    get_filename_component(compiler "${compiler}" DIRECTORY)
    list(APPEND tandem_roots "${compiler}/..")
  endif()
endforeach()
foreach(root ${tandem_roots})
  foreach(library cudart cublasLt)
    file(GLOB versioned "${root}/lib/lib${library}.so.[0-9]*")
    if(versioned AND NOT EXISTS "${root}/lib/lib${library}.so")
      list(GET versioned 0 versioned)
      set(variable CUDA_${library}_LIBRARY)
      if(library STREQUAL "cudart")
        set(CUDA_CUDART "${versioned}" CACHE FILEPATH "CUDA's runtime")
      endif()
      set(${variable} "${versioned}" CACHE FILEPATH "A library of CUDA")
      mark_as_advanced(${variable} CUDA_CUDART)
    endif()
  endforeach()
endforeach()

find_package(CUDAToolkit QUIET)
