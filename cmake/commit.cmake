# Writes OUT, a header with the commit of the sources in SOURCE, or "" where they are not in git. Run while building:
#   cmake -D SOURCE=... -D OUT=... -P commit.cmake
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=10 HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(WRITE ${OUT} "#pragma once\n#define LINNET_COMMIT \"${commit}\"\n")
