# Targets for a person and for CI: `lint` (fast, must be quiet) and `tidy` (clang-tidy, slow); `format` lays out the .c files as
# `lint` wants them.
foreach(what lint tidy format)
  add_custom_target(${what} COMMAND ${CMAKE_SOURCE_DIR}/cmake/lint.sh ${what} ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} VERBATIM)
endforeach()
