# Builds a program that takes Linnet's sources into its own build, and runs it:
#
#   cmake -D SOURCE=REPOSITORY -D BUILD=FOLDER -D COMPILER=g++ -D FETCH=ON|OFF -D SHARED=ON|OFF -P run.cmake
#
function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(result)
    string(LENGTH "${output}" length)
    if(length GREATER 6000)
      math(EXPR begin "${length} - 6000")
      string(SUBSTRING "${output}" ${begin} -1 output)
    endif()
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(settings -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${COMPILER} -DBUILD_SHARED_LIBS=${SHARED})
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/source_project/project -B ${BUILD} ${settings} -DLINNET_SOURCE=${SOURCE}
  -DFETCH=${FETCH})
run(${CMAKE_COMMAND} --build ${BUILD} -j 2 --target program)
run(${BUILD}/program)
message("${output}")
if(NOT output MATCHES "mean squared error")
  message(FATAL_ERROR "the program printed: ${output}")
endif()
if(SHARED)
  file(GLOB_RECURSE library ${BUILD}/*liblinnet.so)
  if(NOT library)
    message(FATAL_ERROR "there is no shared library in ${BUILD}")
  endif()
endif()
