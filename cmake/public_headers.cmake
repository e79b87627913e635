# The headers that programs include, as <linnet/NAME.h>. Those of classes that the library itself is made of are headers
# of src/: here they are copied, with their include lines changed, to what is installed. All others are in
# include/linnet.
#
# Two folders come of it: ${LINNET_PUBLIC_INCLUDE}/linnet has all public headers and nothing else; in
# ${LINNET_FORWARD_INCLUDE}/linnet headers of the same names include the originals, for sources of the library itself,
# which include both kinds.
set(LINNET_PUBLIC_INCLUDE ${PROJECT_BINARY_DIR}/public/include)
set(LINNET_FORWARD_INCLUDE ${PROJECT_BINARY_DIR}/public/forward)

# The header of src/ and its public name.
set(copied_headers
  base/error.h error.h
  engine/ir/source_line.h source_line.h
  engine/ir/tensor.h tensor.h
  engine/ir/tensor_type.h tensor_type.h
  models/nn/initializer.h initializer.h
  models/nn/layers.h layers.h
  models/nn/loss.h loss.h
  models/nn/low_rank.h low_rank.h
  models/nn/module.h module.h
  data/text/pretrained_tokenizer.h pretrained_tokenizer.h
  data/text/tokenizer.h tokenizer.h
  training/trainer/schedule.h schedule.h)
# Headers of ops that copied headers include: all of them are declared in linnet/ops.h.
set(op_headers conv2d/conv2d cross_entropy/cross_entropy embedding/embedding
  matmul/matmul movement/movement norm/norm pointwise/pointwise pool/pool reduce/reduce)

set(sources "")
set(names "")
list(LENGTH copied_headers count)
math(EXPR last "${count} - 1")
foreach(i RANGE 0 ${last} 2)
  math(EXPR next "${i} + 1")
  list(GET copied_headers ${i} source)
  list(GET copied_headers ${next} name)
  list(APPEND sources ${source})
  list(APPEND names ${name})
endforeach()

# Writes a file only where its text changes, so that nothing is compiled again without need.
function(linnet_write_header path text)
  if(EXISTS ${path})
    file(READ ${path} old)
    if(old STREQUAL text)
      return()
    endif()
  endif()
  file(WRITE ${path} "${text}")
endfunction()

foreach(source name IN ZIP_LISTS sources names)
  set(path ${PROJECT_SOURCE_DIR}/src/${source})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  foreach(other other_name IN ZIP_LISTS sources names)
    string(REPLACE "#include \"${other}\"" "#include \"linnet/${other_name}\"" text "${text}")
  endforeach()
  foreach(op ${op_headers})
    string(REPLACE "#include \"engine/ops/${op}.h\"" "#include \"linnet/ops.h\"" text "${text}")
  endforeach()
  if(text MATCHES "#include \"([a-z_]+)/([^\"]*)\"" AND NOT CMAKE_MATCH_1 STREQUAL "linnet")
    message(FATAL_ERROR "src/${source} is a public header and includes ${CMAKE_MATCH_1}/${CMAKE_MATCH_2}, which is not")
  endif()
  linnet_write_header(${LINNET_PUBLIC_INCLUDE}/linnet/${name} "${text}")
  linnet_write_header(${LINNET_FORWARD_INCLUDE}/linnet/${name} "#pragma once\n#include \"${source}\"\n")
endforeach()
set(forward "#pragma once\n#include \"linnet/math.h\"\n")
foreach(op ${op_headers})
  string(APPEND forward "#include \"engine/ops/${op}.h\"\n")
endforeach()
linnet_write_header(${LINNET_FORWARD_INCLUDE}/linnet/ops.h "${forward}")

# linnet.h includes all of them but the C interface, what stands on that, and what tests use.
file(GLOB written RELATIVE ${PROJECT_SOURCE_DIR}/include/linnet CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/include/linnet/*.h)
set(all ${written} ${names})
list(REMOVE_ITEM all linnet.h linnet_c.h packed_model.h testing.h)
list(SORT all)
set(text "// All of Linnet.\n#pragma once\n")
foreach(name ${all})
  string(APPEND text "#include \"linnet/${name}\"  // IWYU pragma: export\n")
endforeach()
linnet_write_header(${LINNET_PUBLIC_INCLUDE}/linnet/linnet.h "${text}")

# What an earlier configuration has written and this one does not.
foreach(folder ${LINNET_PUBLIC_INCLUDE} ${LINNET_FORWARD_INCLUDE})
  file(GLOB old RELATIVE ${folder}/linnet ${folder}/linnet/*.h)
  list(REMOVE_ITEM old ${names} linnet.h ops.h)
  foreach(name ${old})
    file(REMOVE ${folder}/linnet/${name})
  endforeach()
endforeach()
