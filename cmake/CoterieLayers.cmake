# coterie_library(NAME [USES layer...] [LIBS target...]): src/NAME becomes the static library coterie_NAME. Its public headers are
# included as <NAME/x.h>; only the layers that it USES are on its include path, so a forbidden include does not compile.
# A folder without a source is an interface library: headers alone.
function(coterie_library name)
  cmake_parse_arguments(ARG "" "" "USES;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  if(sources)
    add_library(coterie_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(coterie_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(coterie_${name} ${scope} ${CMAKE_CURRENT_SOURCE_DIR}/include)
  foreach(layer ${ARG_USES})
    target_link_libraries(coterie_${name} ${scope} coterie_${layer})
  endforeach()
  target_link_libraries(coterie_${name} ${scope} ${ARG_LIBS})
endfunction()
