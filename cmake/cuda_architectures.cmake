# The GPUs that kernels are compiled for.
set(TANDEM_CUDA_ARCHITECTURES "AUTO" CACHE STRING
  "GPUs to compile for: AUTO (those of this machine; where there is none, ALL), ALL, or compute capabilities as of \
CMAKE_CUDA_ARCHITECTURES; one without -real also stays as PTX")

# tandem_choose_gpus(<variable> <wanted>): the value for CMAKE_CUDA_ARCHITECTURES; says what it chose.
function(tandem_choose_gpus variable wanted)
  string(TOUPPER "${wanted}" wanted_upper)
  set(chosen "${wanted}")
  if(wanted_upper STREQUAL "AUTO")
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE found RESULT_VARIABLE failed ERROR_QUIET TIMEOUT 20)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" found "${found}")
    list(FILTER found EXCLUDE REGEX "^([0-6]\\.|7\\.[0-4])")  # older than what CUDA 13 compiles for
    if(NOT failed AND found)
      list(REMOVE_DUPLICATES found)
      list(TRANSFORM found REPLACE "\\." "")
      list(TRANSFORM found APPEND "-real")
      set(chosen "${found}")
      message(STATUS "CUDA: compiling for this machine's GPUs, ${chosen} (-DTANDEM_CUDA_ARCHITECTURES=ALL: for all)")
    else()
      set(wanted_upper ALL)
      message(STATUS "CUDA: this machine has no GPU, so kernels are compiled for 7 kinds, which takes ten minutes and "
        "more. -DTANDEM_CUDA=OFF builds for CPUs only, -DTANDEM_CUDA_ARCHITECTURES=90-real for one kind (H100)")
    endif()
  endif()
  if(wanted_upper STREQUAL "ALL")
    set(chosen "75-real;80-real;86-real;89-real;90-real;100-real;120")
  endif()
  set(${variable} "${chosen}" PARENT_SCOPE)
endfunction()
