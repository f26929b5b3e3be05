# The transport's contract: loopback and simulated here; on corosync it is run by tests/cluster (test_net.py).
add_executable(net_member ${CMAKE_CURRENT_SOURCE_DIR}/net_member.c)
target_link_libraries(net_member PRIVATE coterie_net coterie_base)
add_test(NAME contract.net.loop COMMAND net_member loop 1 2000)
add_executable(net_simulated ${CMAKE_CURRENT_SOURCE_DIR}/net_simulated.c ${CMAKE_SOURCE_DIR}/tests/sim/simnet.c)
target_include_directories(net_simulated PRIVATE ${CMAKE_SOURCE_DIR}/tests/sim ${CMAKE_SOURCE_DIR}/src/repl)
target_link_libraries(net_simulated PRIVATE coterie_net coterie_repl coterie_store coterie_fs coterie_simdisk PkgConfig::GLIB)
add_test(NAME contract.net.simulated COMMAND net_simulated 50 200)
set_tests_properties(contract.net.loop contract.net.simulated PROPERTIES LABELS quick TIMEOUT 120)
