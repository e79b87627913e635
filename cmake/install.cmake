# Installs all libraries, their headers and the files that make find_package(linnet) work, and tests that with a project
# of its own. Included last: every library must be known.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY LINNET_LIBRARIES)
add_library(linnet_everything INTERFACE)  # for users: target_link_libraries(program linnet::linnet)
add_library(linnet::linnet ALIAS linnet_everything)
target_link_libraries(linnet_everything INTERFACE ${libraries})
set_target_properties(linnet_everything PROPERTIES EXPORT_NAME linnet)

# The packages behind the imported targets that the libraries name, such as ZLIB::ZLIB: whoever links a static library
# has to find them again.
set(packages "")
foreach(library ${libraries})
  get_target_property(links ${library} LINK_LIBRARIES)
  foreach(link ${links})
    if(link MATCHES "^([A-Za-z0-9_]+)::" AND NOT CMAKE_MATCH_1 STREQUAL "linnet")
      list(APPEND packages ${CMAKE_MATCH_1})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES packages)
set(LINNET_FIND_DEPENDENCIES "")
foreach(package ${packages})
  string(APPEND LINNET_FIND_DEPENDENCIES "find_dependency(${package})\n")
endforeach()

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/linnet)
configure_package_config_file(cmake/linnet-config.cmake.in ${PROJECT_BINARY_DIR}/linnet-config.cmake
  INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/linnet-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/linnet-config.cmake ${PROJECT_BINARY_DIR}/linnet-config-version.cmake
  DESTINATION ${config_folder})

install(TARGETS ${libraries} linnet_everything EXPORT linnet-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT linnet-targets NAMESPACE linnet:: DESTINATION ${config_folder})
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/linnet FILES_MATCHING PATTERN "*.h"
  PATTERN "*-inl.h" EXCLUDE PATTERN "*_testing.h" EXCLUDE)

# A sanitized library would force its flags on the consumer.
if(LINNET_TESTS AND NOT LINNET_SANITIZE)
  add_test(NAME installed_consumer COMMAND ${CMAKE_COMMAND}
    -D BUILD_FOLDER=${PROJECT_BINARY_DIR} -D CONSUMER=${PROJECT_SOURCE_DIR}/tests/installed_consumer
    -D COMPILER=${CMAKE_CXX_COMPILER} -D BUILD_TYPE=${CMAKE_BUILD_TYPE}
    -P ${PROJECT_SOURCE_DIR}/tests/installed_consumer/run.cmake)
  set_tests_properties(installed_consumer PROPERTIES LABELS fast TIMEOUT 300)
endif()
