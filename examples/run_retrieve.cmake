# Runs retrieve.c on golden models that get a vocabulary here; with VALGRIND=valgrind under Valgrind.
#
#   cmake -D PROGRAM=retrieve -D GOLDEN=tests/golden/pretrained -D WORK=FOLDER [-D VALGRIND=valgrind] -P run_retrieve.cmake
set(command ${PROGRAM})
if(VALGRIND)
  find_program(found NAMES ${VALGRIND})
  if(NOT found)
    message("skipped: valgrind is not installed")
    return()
  endif()
  set(command ${found} --quiet --leak-check=full --errors-for-leak-kinds=definite,indirect --error-exitcode=9 ${PROGRAM})
endif()
file(REMOVE_RECURSE ${WORK})
file(COPY ${GOLDEN}/bert_model ${GOLDEN}/gpt2 DESTINATION ${WORK})
set(words "")
foreach(i RANGE 5 89)
  string(APPEND words "w${i}\n")
endforeach()
file(WRITE ${WORK}/bert_model/vocab.txt "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n${words}")
file(WRITE ${WORK}/gpt2/vocab.txt "w0\nw1\nw2\n[UNK]\nw4\n${words}")
set(ENV{LINNET_LOG} off)
execute_process(COMMAND ${command} ${WORK}/bert_model ${WORK}/gpt2 "w7 w8 w9" "w20 w21" "w7 w8 w9 w10" "w30"
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
message("${output}${errors}")
if(NOT result EQUAL 0 OR NOT output MATCHES "answer: +w[0-9]+ .*from \\(0\\.[0-9]+\\): w" OR
    NOT output MATCHES "threads with another answer: 0 of 8")
  message(FATAL_ERROR "retrieve ends with ${result}")
endif()
file(REMOVE_RECURSE ${WORK})
