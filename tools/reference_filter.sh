#!/bin/sh
# Turns the comments of a public header into those of Doxygen (docs/Doxyfile): "// Text" before a name, "; // text"
# behind one, and the same with the comments of C. The first lines describe the file. Lines that are indented by three
# spaces are an example or a list.
exec sed -E \
  -e '1s,^// ?(.*),/// @file\n/// \1,' -e '1s,^/\* ?(.*),/** @file\n * \1,' -e '/^#pragma once$/d' \
  -e 's, *// (NOLINT|IWYU).*,,' -e '/ = delete;/s,.*,,' -e '/^\} +\/\/ namespace/s,//.*,,' \
  -e 's,^( *)//   ,\1///     ,' -e 's,^( *)// ?([^/]|$),\1/// \2,' -e 's:([;,{})]|[A-Za-z0-9]) +// :\1 ///< :' \
  -e 's,^( *)/\* ,\1/** ,' -e 's:([;,{}]|[0-9]) +/\* :\1 /**< :' "$1"
