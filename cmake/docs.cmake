# The target `docs` writes the reference of the public headers to <build>/docs/html. Nothing else depends on Doxygen.
find_program(TANDEM_DOXYGEN doxygen)
mark_as_advanced(TANDEM_DOXYGEN)
if(NOT TANDEM_DOXYGEN)
  return()
endif()

get_property(headers GLOBAL PROPERTY TANDEM_PUBLIC_HEADERS)
# The headers of kernels are a contract between our own layers, installed only because others include them. Of these,
# only matmul_tuning.h is for users.
list(FILTER headers EXCLUDE REGEX "^kernels/")
list(APPEND headers kernels/matmul_tuning.h)
list(TRANSFORM headers PREPEND "${TANDEM_INCLUDE_DIR}/tandem/")
list(JOIN headers "\" \\\n  \"" TANDEM_DOCUMENTED)
set(TANDEM_DOCUMENTED "\"${TANDEM_DOCUMENTED}\"")
configure_file("${PROJECT_SOURCE_DIR}/docs/Doxyfile.in" "${PROJECT_BINARY_DIR}/docs/Doxyfile" @ONLY)
add_custom_target(docs COMMAND "${TANDEM_DOXYGEN}" "${PROJECT_BINARY_DIR}/docs/Doxyfile" VERBATIM)
