#!/usr/bin/env bash
# Installs the packages of dist/ in fresh systems, as root, and has them do what a first user does (work.sh); all answers
# must be those of the release build here. Then two ranks train, README's C++ program is compiled with the libraries (in the
# release of Debian that they are made for), and the wheel, where there is one, is installed without an index.
#
#   tools/packages/check.sh [SUITE...]
#
# SUITE is a release of Debian: bookworm (the default), trixie, bullseye. A system is made with debootstrap in
# build/roots/SUITE, once, and each trial is made in a copy. Exits with 3 where no system can be made: without root, Debian's
# archive, or the right to mount.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
  echo "packages: $*" >&2
  exit 1
}

no_system() {
  echo "packages: no fresh system can be made: $*" >&2
  exit 3
}
((EUID == 0)) || no_system "that takes root"

work=$(mktemp -d)
root=
leave_root() {
  [[ $root ]] || return 0
  ! mountpoint -q "$root/proc" || umount "$root/proc"
  rm -rf --one-file-system "$root"
}
trap 'leave_root; rm -rf "$work"' EXIT
(cd dist && sha256sum --check --quiet SHA256SUMS)
if command -v lintian >/dev/null; then
  lintian --fail-on error dist/*.deb >"$work/lintian" 2>&1 || fail "lintian finds errors:"$'\n'"$(grep '^E:' "$work/lintian")"
fi

# Nothing from outside but libc's own and the compiler's. (That the program is hardened, a test of the build checks.)
tar -C "$work" -xzf dist/linnet-*-linux.tar.gz
unpacked=$(echo "$work"/linnet-*)
outside=$(ldd "$unpacked/libexec/linnet" | grep -vE "$work|/(ld-linux[-a-z0-9]*|libc|libm|libstdc\+\+|libgcc_s)\.so|linux-vdso" || true)
[[ -z $outside ]] || fail "the tarball needs libraries that it does not bring:"$'\n'"$outside"
mkdir "$work/here"
(cd "$work/here" && PATH=$OLDPWD/build/release/bin:$PATH "$OLDPWD/tools/packages/work.sh" 2>/dev/null >"$work/expected")

in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -c "cd /root && $*"; }

# try NAME COMMAND...: what COMMAND puts on PATH must answer as the build here does.
try() {
  in_root "rm -rf work && mkdir work && cd work && ${*:2} && ../work.sh 2>errors || { cat errors >&2; exit 1; }" >"$work/answers" ||
    fail "$suite: the $1 does not work"
  diff "$work/expected" "$work/answers" >"$work/difference" || { cat "$work/difference"; fail "$suite: the $1 answers otherwise"; }
  echo "packages: $suite: the $1 gives the answers of the build here"
}

# run WHAT COMMAND...: in the root, in silence; WHAT is said if it fails.
run() {
  in_root "${*:2}" >"$work/log" 2>&1 || { tail -n 5 "$work/log"; fail "$suite: $1"; }
}

# The first program of README, by both ways of finding the library.
libraries() {
  run "apt cannot install the libraries" "apt-get install -y -q --no-install-recommends ./liblinnet-dev_*.deb g++ cmake make pkg-config"
  mkdir -p "$root/root/program"
  sed -n '/^```cpp$/,/^```$/{/^```/d;p}' README.md >"$root/root/program/program.cpp"
  cat >"$root/root/program/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.25)
project(program LANGUAGES CXX)
find_package(linnet REQUIRED)
add_executable(program program.cpp)
target_link_libraries(program PRIVATE linnet::linnet)
TEXT
  run "README's program does not build with pkg-config" \
    'cd program && g++ program.cpp $(pkg-config --cflags --libs linnet) -o shared && ./shared'
  run "README's program does not build with CMake" 'cd program && cmake -B build && cmake --build build && build/program'
  echo "packages: $suite: the libraries build README's program"
}

# The packages that the wheel needs are fetched here; the system gets nothing but files.
wheel() {
  run "apt cannot install Python" "apt-get install -y -q --no-install-recommends python3-venv"
  local version
  version=$(in_root "python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'")
  if ! python3 -m pip download -q --only-binary=:all: --python-version "$version" -d "$root/root/wheels" dist/linnet-*.whl >"$work/log" 2>&1; then
    echo "packages: $suite: the wheel is not tried: $(tail -n 1 "$work/log")"
    return
  fi
  run "pip cannot install the wheel" "python3 -m venv python && python/bin/pip install -q --no-index --find-links wheels linnet"
  in_root "python/bin/python -c 'import linnet; print(linnet.load(\"work/demo\").translate(\"12. Mai 2031\"))'" >"$work/answer"
  diff <(sed -n 2p "$work/expected") "$work/answer" || fail "$suite: the wheel answers otherwise"
  echo "packages: $suite: Python $version gives the answer of the build here"
}

for suite in "${@:-bookworm}"; do
  leave_root
  fresh=build/roots/$suite
  mkdir -p build/roots
  if [[ ! -x $fresh/bin/bash ]]; then
    debootstrap --variant=minbase "$suite" "$fresh" >"$fresh.log" 2>&1 || no_system "debootstrap failed; see $fresh.log"
  fi
  root=build/roots/tried
  [[ ! -e $root ]] || leave_root  # of a run that was killed
  cp -a "$fresh" "$root"
  cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
  for file in /etc/apt/apt.conf.d/*; do cp -n "$file" "$root/etc/apt/apt.conf.d/" 2>/dev/null || true; done
  mountpoint -q "$root/proc" || mount -t proc proc "$root/proc" ||  # a program finds its own folder there
    no_system "nothing can be mounted"
  cp dist/*.deb dist/*-linux.tar.gz tools/packages/work.sh "$root/root/"

  in_root "tar xzf linnet-*-linux.tar.gz" || fail "$suite: the tarball cannot be unpacked"
  if ! in_root "linnet-*/bin/linnet --version" >"$work/version" 2>&1; then
    grep -q 'needs glibc' "$work/version" && (($(wc -l <"$work/version") == 1)) || fail "$suite: $(cat "$work/version")"
    echo "packages: $suite: the tarball says: $(cat "$work/version")"
    continue
  fi
  try tarball 'export PATH=$(echo ../linnet-*/bin):$PATH'

  in_root "apt-get update -q" >"$work/log" 2>&1 || no_system "$(tail -n 1 "$work/log")"
  run "apt cannot install the package" "apt-get install -y -q --no-install-recommends ./linnet_*.deb"
  try "Debian package" true
  run "apt cannot install linnet-mpi" "apt-get install -y -q --no-install-recommends ./linnet-mpi_*.deb"
  run "two ranks do not train" "linnet train dates --run ranks --ranks 2 --set max_steps=2"
  echo "packages: $suite: two ranks train"
  [[ ! -e $(echo dist/linnet-*.whl) ]] || wheel
  [[ $suite != "$(. /etc/os-release && echo "$VERSION_CODENAME")" ]] || libraries
  in_root "apt-get purge -y -q \$(dpkg-query -W -f '\${Package} ' '*linnet*') && ! ls /usr/lib/linnet 2>/dev/null" >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log"; fail "$suite: the package leaves files behind"; }
done
