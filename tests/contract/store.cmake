# The store: one contract, two implementations; and what the real one owes when disks fail, fill, forget and rot.
add_library(coterie_store_rig STATIC store_rig.c)
target_include_directories(coterie_store_rig PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(coterie_store_rig PUBLIC coterie_store coterie_simdisk)

if(TARGET unit_store)
  target_link_libraries(unit_store PRIVATE coterie_store_rig)
endif()

# Writes the golden databases of tests/data/db (a person runs it, when a version is added).
add_executable(store_golden store_golden.c)
target_link_libraries(store_golden PRIVATE coterie_store_rig)

add_executable(contract_store contract_store.c)
target_link_libraries(contract_store PRIVATE coterie_store_rig PkgConfig::CHECK)
add_test(NAME store.contract COMMAND contract_store)
set_tests_properties(store.contract PROPERTIES LABELS quick)

foreach(kind powercut faults flip threads)
  add_executable(store_${kind} store_${kind}.c)
  target_link_libraries(store_${kind} PRIVATE coterie_store_rig)
  add_test(NAME store.${kind}-short COMMAND store_${kind} short)
  add_test(NAME store.${kind} COMMAND store_${kind} full)
  set_tests_properties(store.${kind}-short PROPERTIES LABELS quick TIMEOUT 120)
  set_tests_properties(store.${kind} PROPERTIES LABELS full TIMEOUT 2400)
endforeach()
