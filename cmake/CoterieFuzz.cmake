# coterie_fuzz(NAME SOURCE LAYER...): SOURCE defines LLVMFuzzerTestOneInput over the LAYERs.
#   Always: replay_NAME, and the test fuzz.NAME, which feeds it every file of tests/fuzz/corpus/NAME and every beginning of each.
#   With COTERIE_FUZZ=ON (clang): fuzz_NAME, the libFuzzer program, and the test fuzz.run.NAME, which runs it COTERIE_FUZZ_RUNS times
#   from that corpus. What it finds stays in the corpus: copy it there under a name that says what it broke.
set(COTERIE_FUZZ_RUNS 20000 CACHE STRING "inputs that the test fuzz.run.NAME tries")
function(coterie_fuzz name source)
  set(corpus ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
  list(TRANSFORM ARGN PREPEND coterie_)
  add_executable(replay_${name} ${source} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.c)
  target_link_libraries(replay_${name} PRIVATE ${ARGN})
  add_test(NAME fuzz.${name} COMMAND replay_${name} ${corpus})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS quick)
  if(COTERIE_FUZZ)
    add_executable(fuzz_${name} ${source})
    target_link_libraries(fuzz_${name} PRIVATE ${ARGN})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    # New inputs go to the build directory; the corpus of the repository is read.
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz/${name})
    add_test(NAME fuzz.run.${name} COMMAND fuzz_${name} -runs=${COTERIE_FUZZ_RUNS} -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
      -artifact_prefix=${CMAKE_BINARY_DIR}/fuzz/${name}- ${CMAKE_BINARY_DIR}/fuzz/${name} ${corpus})
    set_tests_properties(fuzz.run.${name} PROPERTIES LABELS fuzz)
  endif()
endfunction()
