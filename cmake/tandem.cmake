# One declarative block per layer. Each layer is an object library; together they form libtandem.

set(TANDEM_INCLUDE_DIR "${PROJECT_BINARY_DIR}/include")
file(MAKE_DIRECTORY "${TANDEM_INCLUDE_DIR}/tandem")
foreach(header tandem.h extend.h)
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${header}" "${TANDEM_INCLUDE_DIR}/tandem/${header}" SYMBOLIC)
endforeach()

set_property(GLOBAL PROPERTY TANDEM_LAYERS "")
set_property(GLOBAL PROPERTY TANDEM_PUBLIC_HEADERS "tandem.h" "extend.h")

# tandem_compile_options(<target>): sets the compile options of all our targets.
function(tandem_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
    # GCC 12 and 13 wrongly report overlapping copies in std::string concatenation (GCC bug 105651).
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
    # In a batch of sources, names of one source's anonymous namespace meet the local names of the next.
    $<$<AND:$<BOOL:${CMAKE_UNITY_BUILD}>,$<COMPILE_LANGUAGE:CXX>>:-Wno-shadow>
    $<$<AND:$<BOOL:${CMAKE_UNITY_BUILD}>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:-Wno-subobject-linkage>
    # No fast-math. sqrt must not set errno, or loops with it do not vectorise. Contraction is off so that the same
    # source gives the same bits with and without FMA on the target; kernels that want FMA write it.
    $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno -ffp-contract=off>
    $<$<AND:$<BOOL:${TANDEM_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>
    # CMake before 3.25.2 does not pass the standard to nvcc. -Xptxas -v writes registers and spills to the build log.
    # Line numbers, for profilers and compute-sanitizer, are two thirds of a kernel's code. -diag_suppress 186: formulas
    # for every type compare unsigned numbers with 0.
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr -Xptxas=-v
      $<$<NOT:$<CONFIG:Release>>:-lineinfo> -Xcudafe=--diag_suppress=186
      -Xcompiler=-Wall,-Wextra,-fPIC,-fvisibility=hidden ${TANDEM_CUDA_COMPRESS}>
    $<$<AND:$<BOOL:${TANDEM_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:-Werror=all-warnings>)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
endfunction()

# tandem_layer(<name> SOURCES ... PUBLIC_HEADERS ... [FAMILIES ...] [BRIDGE_HEADERS ...] [LINK ...] [HEADER_ONLY ...])
# FAMILIES are kernel families: <family>.h is public, cpu/<family>.cpp is the half for CPUs, and cuda/<family>.cu the half
# for GPUs, or cuda/<family>.cpp if that is host code.
# PUBLIC_HEADERS are installed, compile alone and include no third-party header. All other headers are internal.
# BRIDGE_HEADERS are installed, too, and may include the library that they lead to. Nothing else includes them.
# LINK lists libraries that a program must link, too, if it links us statically. HEADER_ONLY libraries are needed only
# to build us.
function(tandem_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC_HEADERS;FAMILIES;BRIDGE_HEADERS;LINK;HEADER_ONLY" ${ARGN})
  list(APPEND ARG_PUBLIC_HEADERS ${ARG_BRIDGE_HEADERS})
  set_property(GLOBAL APPEND PROPERTY TANDEM_FAMILIES ${ARG_FAMILIES})
  set(cuda_families ${ARG_FAMILIES})
  foreach(family ${ARG_FAMILIES})
    list(APPEND ARG_SOURCES cpu/${family}.cpp)
    list(APPEND ARG_PUBLIC_HEADERS ${family}.h)
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/cuda/${family}.cpp")
      list(REMOVE_ITEM cuda_families ${family})
      list(APPEND ARG_SOURCES $<$<BOOL:${TANDEM_CUDA_ENABLED}>:cuda/${family}.cpp>)
    endif()
  endforeach()
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${TANDEM_INCLUDE_DIR}/tandem/${name}" SYMBOLIC)
  add_library(tandem_${name} OBJECT ${ARG_SOURCES} ${ARG_PUBLIC_HEADERS})
  target_include_directories(tandem_${name} PUBLIC "${TANDEM_INCLUDE_DIR}")
  target_link_libraries(tandem_${name} PRIVATE ${ARG_LINK} ${ARG_HEADER_ONLY})
  tandem_compile_options(tandem_${name})
  list(TRANSFORM cuda_families REPLACE "(.+)" "cuda/\\1.cu")
  tandem_cuda_sources(tandem_${name} ${cuda_families})
  list(TRANSFORM ARG_PUBLIC_HEADERS PREPEND "${name}/")
  set_property(GLOBAL APPEND PROPERTY TANDEM_PUBLIC_HEADERS ${ARG_PUBLIC_HEADERS})
  set_property(GLOBAL APPEND PROPERTY TANDEM_LAYERS ${name})
  set_property(GLOBAL APPEND PROPERTY TANDEM_PRIVATE_LINKS ${ARG_LINK})
endfunction()

# tandem_family_sources(<list> <name>): the sources of families that this folder has; {} in <name> stands for a family.
# A new family is named in kernels/CMakeLists.txt alone: its op and its tests are found by their names.
function(tandem_family_sources list name)
  get_property(families GLOBAL PROPERTY TANDEM_FAMILIES)
  set(found "")
  foreach(family ${families})
    string(REPLACE "{}" "${family}" source "${name}")
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
      list(APPEND found ${source})
    endif()
  endforeach()
  set(${list} ${found} PARENT_SCOPE)
endfunction()

# The instruction sets that hot loops are compiled for, and their options. core/isa.h chooses among them at run time.
set(TANDEM_ISAS baseline)
set(TANDEM_ISA_OPTIONS_baseline "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND TANDEM_ISAS avx2 avx512)
  set(TANDEM_ISA_OPTIONS_avx2 -mavx2 -mfma -mf16c)
  # Tuned generically: for Zen 5, GCC 12 would choose Zen 3's schedule, which makes a product four times slower.
  set(TANDEM_ISA_OPTIONS_avx512 -march=x86-64-v4 -mtune=generic -mprefer-vector-width=512)
  set(TANDEM_ISA_OPTIONS_avx512_bf16 ${TANDEM_ISA_OPTIONS_avx512} -mavx512bf16)
  set(TANDEM_ISA_OPTIONS_avx512_amx ${TANDEM_ISA_OPTIONS_avx512_bf16} -mamx-tile -mamx-bf16)
endif()

set(TANDEM_HAS_AVX512 OFF)  # this machine
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo cpu_flags REGEX "^flags.* avx512f" LIMIT_COUNT 1)
  if(cpu_flags)
    set(TANDEM_HAS_AVX512 ON)
  endif()
endif()

# tandem_isa_sources(<layer> <sources...>): compiles sources once for each instruction set, in the namespace TANDEM_ISA.
function(tandem_isa_sources layer)
  foreach(isa ${TANDEM_ISAS})
    tandem_sources_for_isa(${layer} ${isa} ${ARGN})
  endforeach()
endfunction()

# tandem_sources_for_isa(<layer> <isa> <sources...>): the same for one. Eigen is renamed, too: otherwise the linker would
# keep one copy of its functions for all of them.
function(tandem_sources_for_isa layer isa)
  set(target tandem_${layer}_${isa})
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE "${TANDEM_INCLUDE_DIR}")
  target_link_libraries(${target} PRIVATE Eigen3::Eigen)
  tandem_compile_options(${target})
  target_compile_definitions(${target} PRIVATE TANDEM_ISA=${isa} Eigen=Eigen_${isa})
  # Always optimised: a function of the standard library that is not inlined would be shared with other code and may
  # use instructions that the machine does not have. GCC 12 warns inside its own intrinsics (GCC bug 105593). No loop
  # here looks at the floating-point flags, so a result that is not chosen may be computed: without -fno-trapping-math
  # GCC makes a branch of every selection between two results, and does not vectorise the loop.
  target_compile_options(${target} PRIVATE ${TANDEM_ISA_OPTIONS_${isa}} $<$<CONFIG:Debug>:-O2> -fno-trapping-math
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-uninitialized>)
  if(TANDEM_SANITIZE AND isa MATCHES "^avx512" AND NOT TANDEM_HAS_AVX512)
    # These loops cannot run here, and clang takes three minutes for their checks.
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
  endif()
  set_property(GLOBAL APPEND PROPERTY TANDEM_ISA_LIBRARIES ${target})
endfunction()

# tandem_library(<target> [STATIC|SHARED]): all layers as one library.
function(tandem_library target)
  get_property(layers GLOBAL PROPERTY TANDEM_LAYERS)
  get_property(links GLOBAL PROPERTY TANDEM_PRIVATE_LINKS)
  list(REMOVE_DUPLICATES links)
  add_library(${target} ${ARGN})
  foreach(layer ${layers})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:tandem_${layer}>)
  endforeach()
  get_property(isa_libraries GLOBAL PROPERTY TANDEM_ISA_LIBRARIES)
  foreach(library ${isa_libraries})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
  endforeach()
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${TANDEM_INCLUDE_DIR}>")
  target_link_libraries(${target} PRIVATE ${links})
  target_compile_features(${target} PUBLIC cxx_std_20)
  # The ABI is not stable before 1.0: each minor version has its own soname.
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINKER_LANGUAGE CXX)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    if(NOT TANDEM_SANITIZE)
      # Undefined symbols are errors, so that no upward call between layers hides behind lazy binding.
      target_link_options(${target} PRIVATE -Wl,-z,defs)
    endif()
    if(TANDEM_CUDA_ENABLED)
      # Our CUDA runtime stays hidden, because a program may bring its own.
      target_link_options(${target} PRIVATE -Wl,--exclude-libs,libcudart_static.a)
    endif()
  endif()
endfunction()

# tandem_program(<name> <sources...> [LINK ...]): a program in <build>/bin.
function(tandem_program name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE tandem ${ARG_LINK})
  tandem_compile_options(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  tandem_in_one(${name})
endfunction()

# tandem_in_one(<target>): compiles all sources of a program together: the headers that each includes, CLI11's above all,
# take most of the time. So names in their anonymous namespaces differ.
function(tandem_in_one target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
endfunction()
