#!/usr/bin/env bash
# A room of src/ includes only itself and the rooms that stand before it in LINNET_FOLDERS (the root CMakeLists.txt);
# tests may include any room. Headers that others include keep fmt, TOML, JSON and Highway out of their sight.
# Prints every violation as file:line and ends with 1 when there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folders=$(sed -n '/^set(LINNET_FOLDERS$/,/)$/p' CMakeLists.txt | tr -d ')' | tail -n +2 | tr '\n' ' ')
[[ -n $folders ]] || {
  echo "check_includes: CMakeLists.txt has no list set(LINNET_FOLDERS ...)" >&2
  exit 1
}

find src -mindepth 2 \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) ! -name '*_test.cpp' -print0 | sort -z |
  xargs -0 awk -v folders="$folders" '
    BEGIN { for (n = split(folders, list, " "); n > 0; n--) place[list[n]] = n }
    # The room of a path below src/: its first two folders, or its first.
    function room(path,  part) {
      split(path, part, "/")
      return (part[1] "/" part[2]) in place ? part[1] "/" part[2] : part[1]
    }
    function report(problem) { print FILENAME ":" FNR ": " problem; bad = 1 }
    FNR == 1 {
      own = room(substr(FILENAME, 5))
      if (!(own in place)) report("src/" own " is not in LINNET_FOLDERS")
      public = FILENAME ~ /\.h$/ && FILENAME !~ /-inl\.h$/
    }
    /^[ \t]*#[ \t]*include[ \t]*"[^"]*\// {
      match($0, /"[^"]*"/)
      path = substr($0, RSTART + 1, RLENGTH - 2)
      target = room(path)
      if (target in place) {
        if (place[target] > place[own]) report("src/" own " must not include \"" path "\", which stands after it")
      } else if (path ~ /^linnet\//) {
        if (own != "api/cpp") report("only src/api/cpp includes the public headers of include/linnet")
      } else if (path ~ /^\.\.?\// || path !~ /^(hwy|cuda_emulation)\//) {
        report("\"" path "\" is not below a room of src/")
      }
    }
    public && /^[ \t]*#[ \t]*include[ \t]*[<"](fmt|spdlog|toml\+\+|nlohmann|hwy|CLI|Random123)\// {
      report("a public header includes " $NF)
    }
    END { exit bad }' || exit 1
