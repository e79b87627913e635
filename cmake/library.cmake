# One static library per folder of src/, and beside it one test program from the folder's *_test.cpp files.
#
#   linnet_library(ops SOURCES attention/attention.cpp ... DEPENDS ir kernels TESTS attention/attention_test.cpp
#                  TEST_DEPENDS exec)
#
# SOURCES are the library; DEPENDS are folders below (by name) or imported targets; TESTS may look further up through
# TEST_DEPENDS, because a test of an op wants the interpreter. TOGETHER compiles a few sources at a time.
function(linnet_library name)
  cmake_parse_arguments(ARG "TOGETHER" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS;TESTS;TEST_DEPENDS" ${ARGN})
  add_library(linnet_${name} STATIC ${ARG_SOURCES})
  add_library(linnet::${name} ALIAS linnet_${name})
  set_target_properties(linnet_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(linnet_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(linnet_${name} PUBLIC cxx_std_20)
  target_link_libraries(linnet_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
  set_property(GLOBAL APPEND PROPERTY LINNET_LIBRARIES linnet_${name})
  if(ARG_TOGETHER)
    linnet_together(linnet_${name})
  endif()
  if(LINNET_TESTS AND ARG_TESTS)
    linnet_test(${name}_test SOURCES ${ARG_TESTS} DEPENDS linnet::${name} ${ARG_TEST_DEPENDS})
  endif()
endfunction()

# A few sources are compiled as one, which reads their common headers once. Sources with options of their own are not.
function(linnet_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LINNET_UNITY} UNITY_BUILD_BATCH_SIZE 6)
endfunction()

# g++ 12 warns of variants that it has not inlined.
set(LINNET_NO_FALSE_WARNINGS $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)

# Pages and scripts are files of their own, which their programs and editors understand. Adds a C++ file to the list
# `linnet_into` with the string `name`, the contents of the files that follow.
function(linnet_embed linnet_into name)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT ${out} VERBATIM
    COMMAND ${CMAKE_COMMAND} -D NAME=${name} -D OUT=${out} "-D FILES=${files}" -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
  set(${linnet_into} ${${linnet_into}} ${out} PARENT_SCOPE)
endfunction()

# For code that is compiled more often than it runs: tests, commands, configuration. What they call is optimized.
function(linnet_quick_to_compile target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1> ${LINNET_NO_FALSE_WARNINGS})
endfunction()

# For tests that only start programs: half the time to compile.
function(linnet_not_optimized target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0> $<$<CONFIG:Release>:-U_FORTIFY_SOURCE>)
endfunction()

# UBSan is to check the library, not its tests, which compile in half the time without it.
function(linnet_test_options target)
  linnet_quick_to_compile(${target})
  if(LINNET_SANITIZE)
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# Each function gets a section of its own, so that programs and libraries leave out those that they do not call.
function(linnet_sections target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections> $<$<COMPILE_LANGUAGE:CXX>:-fdata-sections>)
endfunction()

# Sources of `target` with options of their own become an object library of this name, so that they, too, are compiled a few
# at a time and share precompiled headers.
function(linnet_part target name)
  cmake_parse_arguments(ARG "" "" "SOURCES;OPTIONS" ${ARGN})
  get_target_property(sources ${target} SOURCES)
  get_target_property(together ${target} UNITY_BUILD)
  foreach(list ARG_SOURCES sources)
    set(absolute "")
    foreach(source ${${list}})
      if(NOT source MATCHES "^\\$")
        cmake_path(ABSOLUTE_PATH source)
      endif()
      list(APPEND absolute ${source})
    endforeach()
    set(${list} ${absolute})
  endforeach()
  list(REMOVE_ITEM sources ${ARG_SOURCES})
  set_property(TARGET ${target} PROPERTY SOURCES ${sources} $<TARGET_OBJECTS:${name}>)
  add_library(${name} OBJECT ${ARG_SOURCES})
  foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS)
    set_property(TARGET ${name} PROPERTY ${property} $<TARGET_PROPERTY:${target},${property}>)
  endforeach()
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  set_property(GLOBAL APPEND PROPERTY LINNET_LIBRARIES ${name})
  set_property(TARGET ${target} APPEND PROPERTY LINNET_PARTS ${name})
  if(together)
    linnet_together(${name})
  endif()
endfunction()

# For code that does little beside what it calls, in libraries that programs link: small rather than fast, half the bytes.
set(LINNET_SMALL $<$<CONFIG:Release>:-Os> ${LINNET_NO_FALSE_WARNINGS})

# Compiles a target so, but for the sources named FAST, whose loops are long.
function(linnet_small target)
  cmake_parse_arguments(ARG "" "" "FAST" ${ARGN})
  if(ARG_FAST)
    linnet_part(${target} ${target}_fast SOURCES ${ARG_FAST})
    linnet_sections(${target}_fast)
  endif()
  target_compile_options(${target} PRIVATE ${LINNET_SMALL})
  linnet_sections(${target})
endfunction()

# Compiles only the named sources of a target so.
function(linnet_small_sources target)
  linnet_part(${target} ${target}_small SOURCES ${ARGN} OPTIONS ${LINNET_SMALL})
  linnet_sections(${target}_small)
endfunction()

# A GoogleTest program whose cases ctest runs one by one. LABELS slow keeps it out of `ctest -L fast`.
function(linnet_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(CMAKE_CROSSCOMPILING)  # qemu takes 10 to 40 times as long
    math(EXPR ARG_TIMEOUT "20 * ${ARG_TIMEOUT}")
  elseif(LINNET_SANITIZE)  # kernels without vectors take up to two minutes for a test
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_property(GLOBAL APPEND PROPERTY LINNET_TEST_PROGRAMS ${name})
  linnet_test_options(${name})
  if("linnet_integration" IN_LIST ARG_DEPENDS)
    linnet_not_optimized(${name})
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest_main)
  # The first start of a large program may wait for the disk.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endfunction()

# Files written with Google Highway, compiled once per instruction set and chosen at run time. They are optimised in
# every build type (at -O0 they are some 35 times slower). Tracking variables for the debugger takes minutes on them.
# On x86-64 the least instruction set is SSE4.2: code without vector instructions took longer to compile than all others
# together. Elsewhere g++ 12's 128-bit fallback is switched on. Kernels call each other by the row, and have buffers on the
# stack that they index by constants: no stack protector (cmake/hardening.cmake).
function(linnet_simd_sources)
  set(unprotected "")
  if(LINNET_HARDENING)
    set(unprotected "-fno-stack-protector;")
  endif()
  set(floor -DHWY_BROKEN_EMU128=0)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(floor -msse4.2 -DHWY_DISABLE_PCLMUL_AES=1)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "${unprotected}-O2;-fno-var-tracking;${floor};-fno-math-errno;-fno-trapping-math;-Wno-psabi")
endfunction()
