# Writes OUT, a C++ file with the contents of FILES, joined, as the string NAME. Run while building:
#   cmake -D NAME=page_script -D OUT=... "-D FILES=a.js;b.js" -P embed.cmake
set(text "")
foreach(file ${FILES})
  file(READ ${file} part)
  string(APPEND text "${part}")
endforeach()
file(WRITE ${OUT} "namespace linnet {\n\nextern const char* const ${NAME};\nconst char* const ${NAME} = R\"linnet_page(${text})linnet_page\";\n\n}  // namespace linnet\n")
