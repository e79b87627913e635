# What release builds do so that a fault in memory is harder to use: addresses of functions are bound before main() and
# read-only afterwards, programs lie at random addresses, overwritten stacks and overlong copies end the process.
# Sanitizers check the same and more, and define the functions that _FORTIFY_SOURCE replaces.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)
if(LINNET_HARDENING AND NOT LINNET_SANITIZE)
  set(hardened "$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:C,CXX>>")
  # Some compilers define _FORTIFY_SOURCE by themselves, with another value.
  add_compile_options("$<${hardened}:-fstack-protector-strong;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|i.86")
    add_compile_options("$<${hardened}:-fcf-protection>")
  endif()
  add_link_options("$<$<CONFIG:Release>:LINKER:-z,relro,-z,now>")
endif()
