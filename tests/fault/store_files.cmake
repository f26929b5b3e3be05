# Log and content file under faults, and the long runs of the log's model.
add_executable(fault_store_files store_files.c ${CMAKE_CURRENT_SOURCE_DIR}/../unit/store/oplog_model.c)
target_include_directories(fault_store_files PRIVATE ${CMAKE_SOURCE_DIR}/src/store ${CMAKE_CURRENT_SOURCE_DIR}/../unit/store)
target_link_libraries(fault_store_files PRIVATE coterie_store coterie_simdisk)
add_test(NAME fault.store_files-short COMMAND fault_store_files 40)
add_test(NAME fault.store_files COMMAND fault_store_files 2000)
set_tests_properties(fault.store_files-short PROPERTIES LABELS quick TIMEOUT 300)
set_tests_properties(fault.store_files PROPERTIES LABELS full TIMEOUT 1800)
