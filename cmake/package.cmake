# Defines the files that `cmake --install` installs: the library, its public headers as <tandem/layer/file.h>, a CMake
# package (find_package(tandem) gives tandem::tandem), tandem.pc, and the texts of docs/, with the reference if it was
# built. tools/ and examples/ add the programs that were built. The prefix can be moved afterwards.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

target_include_directories(tandem PUBLIC "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
install(TARGETS tandem EXPORT tandem-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")

get_property(headers GLOBAL PROPERTY TANDEM_PUBLIC_HEADERS)
foreach(header ${headers})
  get_filename_component(folder "tandem/${header}" DIRECTORY)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${folder}")
endforeach()
install(FILES "${TANDEM_INCLUDE_DIR}/tandem/build.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tandem")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
  FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png")
install(DIRECTORY "${PROJECT_BINARY_DIR}/docs/html" DESTINATION "${CMAKE_INSTALL_DOCDIR}/docs" OPTIONAL)

# The libraries that a program must link besides ours. A shared libtandem contains or names them itself.
set(TANDEM_FIND_DEPENDENCIES "")
set(TANDEM_PC_REQUIRES "")
set(TANDEM_PC_LIBS "")
if(NOT BUILD_SHARED_LIBS)
  get_property(links GLOBAL PROPERTY TANDEM_PRIVATE_LINKS)
  list(REMOVE_DUPLICATES links)
  foreach(link ${links})
    string(REGEX REPLACE "::.*" "" package "${link}")
    if(package STREQUAL "CUDA")
      set(package CUDAToolkit)
      get_target_property(file ${link} IMPORTED_LOCATION)
      get_filename_component(folder "${file}" DIRECTORY)
      get_filename_component(file "${file}" NAME)  # may be libcublasLt.so.13, without a plain name
      string(APPEND TANDEM_PC_LIBS " -L${folder} -l:${file} -ldl -lrt")
    elseif(package STREQUAL "Threads")
      string(APPEND TANDEM_PC_LIBS " -pthread")
    elseif(package MATCHES "^(fmt|ZLIB)$")
      string(TOLOWER " ${package}" module)
      string(APPEND TANDEM_PC_REQUIRES "${module}")
    elseif(package STREQUAL "gloo")  # the package has another name and no pkg-config file
      set(package Gloo)
      get_target_property(file gloo LOCATION)
      get_filename_component(folder "${file}" DIRECTORY)
      string(APPEND TANDEM_PC_LIBS " -L${folder} -lgloo")
    elseif(package STREQUAL "OpenSSL")
      string(APPEND TANDEM_PC_REQUIRES " openssl")
    else()
      message(FATAL_ERROR "cmake/package.cmake: say how pkg-config finds '${link}'")
    endif()
    if(package STREQUAL "CUDAToolkit" AND NOT TANDEM_FIND_DEPENDENCIES MATCHES "find_cuda")
      string(APPEND TANDEM_FIND_DEPENDENCIES "include(\"\${CMAKE_CURRENT_LIST_DIR}/find_cuda.cmake\")\n")
      install(FILES "${PROJECT_SOURCE_DIR}/cmake/find_cuda.cmake" DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/tandem")
    endif()
    string(APPEND TANDEM_FIND_DEPENDENCIES "find_dependency(${package})\n")
  endforeach()
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tandem")
set(generated "${PROJECT_BINARY_DIR}/package")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/tandem-config.cmake.in" "${generated}/tandem-config.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${generated}/tandem-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${generated}/tandem-config.cmake" "${generated}/tandem-config-version.cmake"
  DESTINATION "${package_dir}")
install(EXPORT tandem-targets NAMESPACE tandem:: DESTINATION "${package_dir}")

# Both paths are relative, so that tandem.pc finds the prefix from its own location.
file(RELATIVE_PATH TANDEM_PC_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" TANDEM_PC_PREFIX "${TANDEM_PC_PREFIX}")
file(RELATIVE_PATH TANDEM_PC_LIBDIR "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_LIBDIR}")
file(RELATIVE_PATH TANDEM_PC_INCLUDEDIR "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/tandem.pc.in" "${generated}/tandem.pc" @ONLY)
install(FILES "${generated}/tandem.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
