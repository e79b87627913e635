# linnet::linnet, which programs link: the libraries that src/api/cpp stands on, and the public headers
# (cmake/public_headers.cmake). Installs them with the files that make find_package(linnet) work, examples, guides and
# license. Included after all folders of src: every library must be known.
include(CMakePackageConfigHelpers)

# The targets of the folders that `target` links, itself included.
function(linnet_closure target out)
  set(found ${${out}})
  get_target_property(alias ${target} ALIASED_TARGET)
  if(alias)
    set(target ${alias})
  endif()
  if(NOT target IN_LIST found)
    list(APPEND found ${target})
    get_target_property(links ${target} LINK_LIBRARIES)
    foreach(link ${links})
      if(link MATCHES "^linnet::" AND TARGET ${link})
        set(${out} ${found})
        linnet_closure(${link} ${out})
        set(found ${${out}})
      endif()
    endforeach()
  endif()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

set(installed_libraries "")
linnet_closure(linnet_library installed_libraries)

set(public_includes $<BUILD_INTERFACE:${LINNET_PUBLIC_INCLUDE}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
if(BUILD_SHARED_LIBS)
  # Of the objects of all folders, and of what these link besides each other.
  set(objects "")
  set(outside "")
  foreach(library ${installed_libraries})
    get_property(parts TARGET ${library} PROPERTY LINNET_PARTS)  # linnet_part(): TARGET_OBJECTS has a target's own alone
    foreach(part ${library} ${parts})
      list(APPEND objects $<TARGET_OBJECTS:${part}>)
    endforeach()
    get_target_property(links ${library} LINK_LIBRARIES)
    list(FILTER links EXCLUDE REGEX "^(linnet::|links-NOTFOUND)")
    list(APPEND outside ${links})
  endforeach()
  list(REMOVE_DUPLICATES outside)
  foreach(link ${outside})  # the folders have found them for themselves alone
    if(link MATCHES "(^|:)([A-Za-z0-9_]+)::[A-Za-z0-9_]")
      find_package(${CMAKE_MATCH_2} REQUIRED)
    endif()
  endforeach()
  add_library(linnet_shared SHARED ${objects})
  target_link_libraries(linnet_shared PRIVATE ${outside})
  if(NOT LINNET_SANITIZE)
    target_link_options(linnet_shared PRIVATE LINKER:--no-undefined)
  endif()
  target_include_directories(linnet_shared PUBLIC ${public_includes})
  target_compile_features(linnet_shared PUBLIC cxx_std_20)
  set_target_properties(linnet_shared PROPERTIES OUTPUT_NAME linnet EXPORT_NAME linnet LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  add_library(linnet::linnet ALIAS linnet_shared)
  set(installed_targets linnet_shared)
else()
  add_library(linnet_everything INTERFACE)
  add_library(linnet::linnet ALIAS linnet_everything)
  target_include_directories(linnet_everything INTERFACE ${public_includes})
  target_link_libraries(linnet_everything INTERFACE linnet_library)
  target_link_options(linnet_everything INTERFACE LINKER:--gc-sections)  # a program has the functions that it calls
  # A shared object that a program makes exports none of our symbols.
  set(archives "")
  foreach(library ${installed_libraries})
    list(APPEND archives lib${library}.a)
  endforeach()
  list(JOIN archives ":" archives)
  target_link_options(linnet_everything INTERFACE LINKER:--exclude-libs,${archives})
  # Nor what the compiler makes of our templates and inline functions in the program's sources. A linker takes one such
  # script: a program with its own sets the target property LINNET_EXPORTS_BY_PROGRAM.
  set(script $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cmake/linnet-hidden.map>)
  string(APPEND script $<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/cmake/linnet/linnet-hidden.map>)
  set(is_shared $<IN_LIST:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY$<SEMICOLON>MODULE_LIBRARY>)
  set(hides $<AND:${is_shared},$<NOT:$<BOOL:$<TARGET_PROPERTY:LINNET_EXPORTS_BY_PROGRAM>>>>)
  target_link_options(linnet_everything INTERFACE $<${hides}:LINKER:--version-script=${script}>)
  install(FILES cmake/linnet-hidden.map DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/linnet)
  set_target_properties(linnet_everything PROPERTIES EXPORT_NAME linnet)
  set(installed_targets ${installed_libraries} linnet_everything)
endif()

# The packages behind the imported targets that the libraries name, such as ZLIB::ZLIB: whoever links a static library
# has to find them again.
set(packages "")
foreach(library ${installed_libraries})
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

install(TARGETS ${installed_targets} EXPORT linnet-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT linnet-targets NAMESPACE linnet:: DESTINATION ${config_folder})
install(DIRECTORY include/linnet ${LINNET_PUBLIC_INCLUDE}/linnet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE README.md CHANGELOG.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY bench/results DESTINATION ${CMAKE_INSTALL_DOCDIR}/bench FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md"
  PATTERN "add_a*.md" EXCLUDE PATTERN "architecture.md" EXCLUDE)  # of the sources, which are not installed
install(DIRECTORY examples/library/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(CODE "execute_process(COMMAND \${CMAKE_COMMAND}
  -D FOLDER=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR} -P ${PROJECT_SOURCE_DIR}/cmake/installed_links.cmake
  COMMAND_ERROR_IS_FATAL ANY)")

# A sanitized library would force its flags on the consumer.
if(LINNET_TESTS AND NOT LINNET_SANITIZE AND NOT BUILD_SHARED_LIBS)
  add_test(NAME installed_library COMMAND ${CMAKE_COMMAND}
    -D BUILD_FOLDER=${PROJECT_BINARY_DIR} -D SOURCE=${PROJECT_SOURCE_DIR}
    -D COMPILER=${CMAKE_CXX_COMPILER} -D BUILD_TYPE=${CMAKE_BUILD_TYPE}
    -P ${PROJECT_SOURCE_DIR}/tests/installed_library/run.cmake)
  set_tests_properties(installed_library PROPERTIES LABELS slow TIMEOUT 1500)
endif()
