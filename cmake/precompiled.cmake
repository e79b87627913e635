# The standard library's headers are compiled once for each set of options, not once for each file, which takes half of a small
# file's time. Projects that take Linnet into their build do not have this, so a file must include what it uses:
# tools/check_standard_headers.py and tests/source_project check it.
option(LINNET_PRECOMPILED "Precompile the headers of the standard library" ${PROJECT_IS_TOP_LEVEL})

set(LINNET_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional>
  <map> <memory> <mutex> <numeric> <optional> <random> <span> <sstream> <string> <string_view> <thread> <unordered_map> <utility>
  <variant> <vector>)

# A target whose only product is the compiled headers. Its options must be those of the targets that use them.
function(linnet_common_headers name)
  cmake_parse_arguments(ARG "" "" "HEADERS;OPTIONS;DEPENDS" ${ARGN})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_link_libraries(${name} PRIVATE Threads::Threads ${ARG_DEPENDS})
  target_precompile_headers(${name} PRIVATE ${LINNET_COMMON_HEADERS} ${ARG_HEADERS})
endfunction()

# g++ forgets that precompiled headers are the system's, and would warn about code that it inlines from them.
function(linnet_use_headers target headers)
  target_precompile_headers(${target} REUSE_FROM ${headers})
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-dangling-else>)
endfunction()

find_package(Threads REQUIRED)
# Called when all targets have their options. Sources with options of their own read the headers as they are.
function(linnet_precompile)
  linnet_common_headers(linnet_headers)
  linnet_common_headers(linnet_quick_headers)
  linnet_quick_to_compile(linnet_quick_headers)
  linnet_common_headers(linnet_small_headers)
  linnet_small(linnet_small_headers)
  get_property(libraries GLOBAL PROPERTY LINNET_LIBRARIES)
  foreach(library ${libraries})
    get_target_property(type ${library} TYPE)
    get_target_property(options ${library} COMPILE_OPTIONS)
    if(type STREQUAL "INTERFACE_LIBRARY")
      continue()
    elseif(options MATCHES "-Os")
      linnet_use_headers(${library} linnet_small_headers)
    elseif(options MATCHES "-O1")
      linnet_use_headers(${library} linnet_quick_headers)
    else()
      linnet_use_headers(${library} linnet_headers)
    endif()
  endforeach()
  get_property(tests GLOBAL PROPERTY LINNET_TEST_PROGRAMS)
  if(tests)
    linnet_common_headers(linnet_test_headers HEADERS <gtest/gtest.h> OPTIONS -fPIE DEPENDS GTest::gtest)
    linnet_common_headers(linnet_json_test_headers HEADERS <gtest/gtest.h> ${PROJECT_SOURCE_DIR}/tests/parsed_json.h OPTIONS -fPIE
      DEPENDS GTest::gtest linnet::parsed_json)
    linnet_common_headers(linnet_integration_headers HEADERS <gtest/gtest.h> ${PROJECT_SOURCE_DIR}/tests/parsed_json.h OPTIONS -fPIE
      DEPENDS GTest::gtest linnet::parsed_json)
    foreach(headers linnet_test_headers linnet_json_test_headers linnet_integration_headers)
      # Programs are compiled with -fPIE, which an object library has to ask for.
      set_target_properties(${headers} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      linnet_test_options(${headers})
    endforeach()
    linnet_not_optimized(linnet_integration_headers)
    foreach(test ${tests})
      get_target_property(linked ${test} LINK_LIBRARIES)
      if(linked MATCHES "linnet_integration")
        linnet_use_headers(${test} linnet_integration_headers)
      elseif(linked MATCHES "parsed_json")
        linnet_use_headers(${test} linnet_json_test_headers)
      else()
        linnet_use_headers(${test} linnet_test_headers)
      endif()
    endforeach()
    target_precompile_headers(linnet_op_tests PRIVATE ${LINNET_COMMON_HEADERS} <gtest/gtest.h>)
    target_compile_options(linnet_op_tests PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-dangling-else>)
  endif()
endfunction()
