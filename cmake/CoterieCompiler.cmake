# Language, warnings and sanitizers, for every target alike.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")

set(COTERIE_SANITIZE "" CACHE STRING "sanitizers, as -fsanitize= takes them (address,undefined or thread)")
option(COTERIE_WERROR "warnings are errors" ON)
option(COTERIE_FUZZ "build the libFuzzer programs (needs clang)" OFF)
if(COTERIE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "COTERIE_FUZZ needs clang")
  endif()
  # A sanitizer's runtime is also what the coverage calls of ordinary programs link with.
  if(NOT COTERIE_SANITIZE)
    set(COTERIE_SANITIZE address,undefined)
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

add_compile_definitions(_GNU_SOURCE _FILE_OFFSET_BITS=64)
add_compile_options(
  -Wall -Wextra -Wconversion -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wformat=2 -Wundef -Wpointer-arith -Wwrite-strings
  -Wno-sign-conversion -Wno-missing-field-initializers -fno-common -fstack-protector-strong
  -Werror=implicit-function-declaration -Werror=incompatible-pointer-types -Werror=int-conversion -Werror=return-type)
if(COTERIE_WERROR)
  add_compile_options(-Werror)
endif()
if(COTERIE_SANITIZE)
  add_compile_options(-fsanitize=${COTERIE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${COTERIE_SANITIZE})
endif()
