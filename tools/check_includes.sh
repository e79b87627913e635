#!/usr/bin/env bash
# A folder of src/ includes only itself and the folders above it
# in LINNET_FOLDERS (the root CMakeLists.txt); tests are free to look down. Headers that others include keep fmt, spdlog, TOML, JSON and Highway out of their sight.
# Prints every violation as file:line and ends with 1 when there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folders=$(sed -n 's/^set(LINNET_FOLDERS \(.*\))$/\1/p' CMakeLists.txt)
[[ -n $folders ]] || {
  echo "check_includes: CMakeLists.txt has no line set(LINNET_FOLDERS ...)" >&2
  exit 1
}

find src -mindepth 2 \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) ! -name '*_test.cpp' -print0 | sort -z |
  xargs -0 awk -v folders="$folders" '
    BEGIN { for (n = split(folders, list, " "); n > 0; n--) place[list[n]] = n }
    function report(problem) { print FILENAME ":" FNR ": " problem; bad = 1 }
    FNR == 1 {
      split(FILENAME, part, "/")
      own = part[2]
      if (!(own in place)) report("src/" own " is not in LINNET_FOLDERS")
      public = FILENAME ~ /\.h$/ && FILENAME !~ /-inl\.h$/
    }
    /^[ \t]*#[ \t]*include[ \t]*"[^"]*\// {
      match($0, /"[^"]*"/)
      path = substr($0, RSTART + 1, RLENGTH - 2)
      split(path, target, "/")
      if (target[1] in place) {
        if (place[target[1]] > place[own]) report("src/" own " must not include \"" path "\", which stands below it")
      } else if (path ~ /^linnet\//) {
        if (own != "library") report("only src/library includes the public headers of include/linnet")
      } else if (path ~ /^\.\.?\// || path !~ /^(hwy|cuda_emulation)\//) {
        report("\"" path "\" is not below a folder of src/")
      }
    }
    public && /^[ \t]*#[ \t]*include[ \t]*[<"](fmt|spdlog|toml\+\+|nlohmann|hwy|CLI|Random123)\// {
      report("a public header includes " $NF)
    }
    END { exit bad }' || exit 1
