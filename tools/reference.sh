#!/bin/sh
# Makes the reference of the public headers, REFERENCE/html, with Doxygen. A public name without a description is an
# error. BUILD is a configured build folder, which has the headers that CMake writes.
#
#   tools/reference.sh BUILD REFERENCE
set -eu
command -v doxygen >/dev/null || {
  echo "skipped: doxygen is not installed"
  exit 0
}
mkdir -p "$2"
LINNET_PUBLIC_INCLUDE=$(cd "$1" && pwd)/public/include
LINNET_REFERENCE=$(cd "$2" && pwd)
export LINNET_PUBLIC_INCLUDE LINNET_REFERENCE
cd "$(dirname "$0")/.."
exec doxygen docs/Doxyfile
