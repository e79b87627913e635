# Installs the build into its own stage folder, builds the consumer against that and runs it.
set(stage ${BUILD_FOLDER}/stage)
set(build ${BUILD_FOLDER}/installed_consumer)
file(REMOVE_RECURSE ${stage} ${build})

function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_FOLDER} --prefix ${stage})
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${build} -DCMAKE_PREFIX_PATH=${stage} -DCMAKE_CXX_COMPILER=${COMPILER}
  -DCMAKE_BUILD_TYPE=${BUILD_TYPE})
run(${CMAKE_COMMAND} --build ${build})
run(${build}/consumer)
message("${output}")
