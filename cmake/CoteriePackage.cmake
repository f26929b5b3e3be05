# Packages: tools/package.sh configures for /usr and runs `cpack -G DEB`, which makes
#   coteried      the daemon, mount.coterie, units, an example of a configuration
#   coterie       the command, its completions
#   coterie-doc   the documents
# and coteried-dbgsym, coterie-dbgsym. `cpack --config CPackSourceConfig.cmake -G TGZ` makes the source tarball.
set(CPACK_PACKAGE_NAME coterie)
set(CPACK_PACKAGE_VENDOR "The Coterie developers")
set(CPACK_PACKAGE_CONTACT "The Coterie developers <maintainers@coterie.example>" CACHE STRING "maintainer of the packages")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "cluster configuration filesystem")
set(CPACK_SET_DESTDIR ON)
set(CPACK_COMPONENTS_ALL daemon cli doc)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_DEBUGINFO_PACKAGE ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(common "Coterie is a mounted directory that every node of a cluster sees
alike: a FUSE daemon serves it from memory, keeps it in one SQLite
database per node behind a log of operations, and replicates it through
corosync.
.
")
set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME coteried)
set(CPACK_DEBIAN_DAEMON_PACKAGE_DEPENDS fuse3)
set(CPACK_DEBIAN_DAEMON_PACKAGE_RECOMMENDS "coterie (= ${PROJECT_VERSION}-1), corosync (>= 3)")
set(CPACK_DEBIAN_DAEMON_PACKAGE_SUGGESTS coterie-doc)
set(CPACK_DEBIAN_DAEMON_DESCRIPTION "${common}This is the daemon and the helper of mount.")
set(CPACK_DEBIAN_CLI_PACKAGE_NAME coterie)
set(CPACK_DEBIAN_CLI_PACKAGE_RECOMMENDS coteried)
set(CPACK_DEBIAN_CLI_DESCRIPTION "${common}This is the command that looks after it.")
set(CPACK_DEBIAN_DOC_PACKAGE_NAME coterie-doc)
set(CPACK_DEBIAN_DOC_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DOC_PACKAGE_SECTION doc)
set(CPACK_DEBIAN_DOC_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DOC_DEBUGINFO_PACKAGE OFF)
set(CPACK_DEBIAN_DOC_DESCRIPTION "${common}These are its documents.")
foreach(script postinst prerm postrm conffiles)
  list(APPEND CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/cmake/package/${script})
endforeach()

# What Debian wants in /usr/share/doc/PACKAGE.
string(TIMESTAMP package_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${CMAKE_SOURCE_DIR}/cmake/package/changelog.in ${CMAKE_BINARY_DIR}/package/changelog @ONLY)
execute_process(COMMAND gzip -9nf ${CMAKE_BINARY_DIR}/package/changelog)
foreach(pair daemon=coteried cli=coterie doc=coterie-doc)
  string(REGEX MATCH "^[^=]*" component ${pair})
  string(REGEX MATCH "[^=]*$" package ${pair})
  install(FILES ${CMAKE_BINARY_DIR}/package/changelog.gz DESTINATION share/doc/${package} RENAME changelog.Debian.gz COMPONENT ${component})
  install(FILES ${CMAKE_SOURCE_DIR}/cmake/package/copyright DESTINATION share/doc/${package} COMPONENT ${component})
endforeach()
file(GLOB documents ${CMAKE_SOURCE_DIR}/docs/*.md)
install(FILES ${documents} ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/NEWS.md DESTINATION share/doc/coterie-doc COMPONENT doc)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/decisions DESTINATION share/doc/coterie-doc COMPONENT doc)
# A configuration that is there already stays.
install(CODE "if(NOT EXISTS \"\$ENV{DESTDIR}${CMAKE_INSTALL_FULL_SYSCONFDIR}/coterie/coterie.conf\")
  file(INSTALL DESTINATION \"${CMAKE_INSTALL_FULL_SYSCONFDIR}/coterie\" TYPE FILE FILES \"${CMAKE_SOURCE_DIR}/cmake/package/coterie.conf\")
endif()" COMPONENT daemon)

set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_PACKAGE_FILE_NAME coterie-${PROJECT_VERSION})
set(CPACK_SOURCE_IGNORE_FILES /\\.git/ /build /__pycache__/ /mnt/ /var/ \\.swp$)
include(CPack)
