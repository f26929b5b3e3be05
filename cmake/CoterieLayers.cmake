# coterie_library(NAME [USES layer...] [LIBS target...]): src/NAME becomes the static library coterie_NAME. Its public headers are
# included as <NAME/x.h>; only the layers that it USES are on its include path, so a forbidden include does not compile.
function(coterie_library name)
  cmake_parse_arguments(ARG "" "" "USES;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  add_library(coterie_${name} STATIC ${sources})
  set_target_properties(coterie_${name} PROPERTIES LINKER_LANGUAGE C)
  target_include_directories(coterie_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include)
  foreach(layer ${ARG_USES})
    target_link_libraries(coterie_${name} PUBLIC coterie_${layer})
  endforeach()
  target_link_libraries(coterie_${name} PUBLIC ${ARG_LIBS})
endfunction()
