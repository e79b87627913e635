#!/usr/bin/env bash
# Makes dist/ of the release build: Debian packages of the program (linnet), its MPI module (linnet-mpi) and the libraries
# (liblinnet-dev), a tarball for other distributions, a list of what is in them (SPDX) and checksums. The same sources and
# compiler make the same bytes. docs/release.md says how they are checked.
#
#   tools/packages/make.sh [arm64]
#
# arm64 packs the program of build/arm64, without the libraries. The files of other architectures in dist/ stay.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

architecture=${1:-$(dpkg --print-architecture)}
readonly shared=build/shared
release=build/release
[[ $architecture == "$(dpkg --print-architecture)" ]] || release=build/$architecture
DEB_HOST_ARCH=$architecture  # for dpkg-shlibdeps
export DEB_HOST_ARCH
triplet=$(dpkg-architecture -a"$architecture" -qDEB_HOST_MULTIARCH 2>/dev/null)
machine=${triplet%%-*}
readonly maintainer="The Linnet authors <linnet@linnet.invalid>"
version=$(sed -n 's/^#define LINNET_VERSION_[MP][A-Z]* \([0-9]*\)$/\1/p' include/linnet/version.h | paste -sd.)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH
export XZ_DEFAULTS=-T1  # packages' blocks are cut by the number of threads

# What the program links and another distribution, or another release of Debian, may have in another version.
readonly brought='libfmt|libhwy|libsentencepiece'
# A tarball brings all but libc's own and the compiler's: Debian 12's libstdc++ needs a newer glibc (2.36) than the program (2.34).
readonly brought_elsewhere="$brought|libpcre2|libz"

# libraries_of FILE NAMES: those it loads and those that they load. (ldd starts programs, which an x86 cannot do for ARM.)
libraries_of() {
  local queue=("$1") name file
  local -A found=()
  while ((${#queue[@]})); do
    while read -r name; do
      file=/usr/lib/$triplet/$name
      [[ -e $file ]] || file=/lib/$triplet/$name
      [[ -e $file && ! ${found[$name]:-} ]] || continue
      found[$name]=$file
      queue+=("$file")
    done < <(readelf -d "${queue[0]}" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
    queue=("${queue[@]:1}")
  done
  for name in "${!found[@]}"; do
    [[ ! $name =~ ^($2) ]] || echo "${found[$name]}"
  done | sort
}
# dpkg knows some libraries by their place before /lib became a link to /usr/lib.
owner_of() {
  local file
  file=$(readlink -f "$1")
  { dpkg-query -S "$file" || dpkg-query -S "${file#/usr}"; } 2>/dev/null | cut -d: -f1
}

# into FOLDER COMPONENT [BUILD]: what `cmake --install` puts under FOLDER/usr, stripped, documents and pages compressed as Debian has them.
into() {
  cmake --install "${3:-$release}" --prefix "$1/usr" --component "$2" --strip >/dev/null
  find "$1" -path '*/man1/*.1' -exec gzip -9n {} +
}

# document FOLDER PACKAGE: license and changes where Debian looks for them.
document() {
  local folder=$1/usr/share/doc/$2
  mkdir -p "$folder"
  {
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: linnet\n\n'
    printf 'Files: *\nCopyright: 2026 The Linnet authors\nLicense: Apache-2.0\n On Debian systems the whole license is in /usr/share/common-licenses/Apache-2.0.\n'
  } >"$folder/copyright"
  {
    printf 'linnet (%s) unstable; urgency=medium\n\n  * The changes are listed in CHANGELOG.md of the sources.\n\n' "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n >"$folder/changelog.gz"
}

# package FOLDER NAME SECTION DEPENDS SUMMARY DESCRIPTION
package() {
  local folder=$1 name=$2
  document "$folder" "$name"
  mkdir -p "$folder/DEBIAN"
  (cd "$folder" && find usr -type f -printf '%P\n' | LC_ALL=C sort | sed 's|^|usr/|' | xargs -d '\n' md5sum >DEBIAN/md5sums)
  cat >"$folder/DEBIAN/control" <<TEXT
Package: $name
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: $3
Priority: optional
Installed-Size: $(du -k -s --apparent-size "$folder/usr" | cut -f1)
Depends: $4
Description: $5
$(fold -s -w 78 <<<"$6" | sed 's/ *$//; s/^/ /')
TEXT
  find "$folder" -type d -exec chmod 755 {} +
  find "$folder" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +  # dpkg-deb changes only times that are later
  dpkg-deb --root-owner-group -Zxz --build "$folder" "dist/${name}_${version}_$architecture.deb" >/dev/null
}

# The Debian packages of the libraries that FILE links, with versions, but for those it brings itself.
dependencies() {
  mkdir -p "$stage/debian"
  printf 'Source: linnet\n\nPackage: linnet\nArchitecture: any\n' >"$stage/debian/control"
  (cd "$stage" && dpkg-shlibdeps -O --warnings=0 "$@" 2>/dev/null) | sed 's/^shlibs:Depends=//' |
    tr ',' '\n' | sed 's/^ *//' | grep -vE "^($brought)" | paste -sd, | sed 's/,/, /g'
}

# documents FOLDER: README and docs, which the program's messages name, and what these link to.
documents() {
  cp -r LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs "$1"
  find src -name README.md -exec cp --parents -t "$1" {} +
  cp --parents -t "$1" bench/*.md bench/results/*.md bench/results/*.svg examples/*.toml examples/python/*.py \
    tools/packages/Containerfile
}

# What the package of the program and the tarball both have.
program_files() {
  local folder=$stage/files
  into "$folder" program
  mkdir -p "$folder/usr/lib/linnet" "$folder/usr/share/doc/linnet/licenses"
  local package
  for package in "${!contents[@]}"; do
    cp -L "/usr/share/doc/$package/copyright" "$folder/usr/share/doc/linnet/licenses/$package"
  done
  cp "dist/linnet-$version-$machine.spdx.json" "$folder/usr/share/doc/linnet/"
  libraries_of $release/bin/linnet "$brought" | xargs cp -L -t "$folder/usr/lib/linnet"
  chmod 644 "$folder"/usr/lib/linnet/*
}

program() {
  local folder=$stage/program
  cp -a "$stage/files" "$folder"
  documents "$folder/usr/share/doc/linnet"
  rm "$folder/usr/share/doc/linnet/LICENSE"  # Debian has it in common-licenses
  package "$folder" linnet science "$(dependencies "$folder/usr/bin/linnet" "$folder"/usr/lib/linnet/*)" \
    "trains and runs transformers and convolutional networks" \
    "Linnet trains, fine-tunes, quantizes and serves language models, encoders, translation models and image classifiers on CPUs, in little memory, which it plans and prints before the first step."
}

mpi_module() {
  [[ -f $release/bin/liblinnet_mpi.so ]] || { echo "package: no MPI was found when this was built: no linnet-mpi"; return; }
  local folder=$stage/mpi
  into "$folder" mpi
  # The library is libmpi.so.40 in all of them; its package changed its name.
  package "$folder" linnet-mpi science \
    "linnet (= $version), openmpi-bin, libopenmpi3 | libopenmpi3t64 | libopenmpi40, libc6, libstdc++6" \
    "training by several processes, for linnet" "The module that lets linnet train a model by several processes of MPI."
}

libraries() {
  local folder=$stage/dev
  into "$folder" dev
  into "$folder" runtime  # the C interface
  cmake --install $shared --prefix "$folder/shared" --component dev --strip >/dev/null
  cp -a "$folder"/shared/lib/liblinnet.so* "$folder/usr/lib/"
  rm -r "$folder/shared"
  mkdir -p "$folder/usr/lib/pkgconfig"
  cat >"$folder/usr/lib/pkgconfig/linnet.pc" <<TEXT
prefix=/usr
Name: Linnet
Description: Trains and runs transformers and convolutional networks
Version: $version
Cflags: -std=c++20 -I\${prefix}/include
Libs: -L\${prefix}/lib -llinnet
TEXT
  mv "$folder/usr/share/doc/linnet" "$folder/usr/share/doc/liblinnet-dev"
  mkdir -p "$folder/DEBIAN"
  echo "activate-noawait ldconfig" >"$folder/DEBIAN/triggers"
  local library
  for library in "$folder"/usr/lib/*.so.*.*.*; do
    objdump -p "$library" | sed -n 's/^ *SONAME *\(.*\)\.so\.\(.*\)$/\1 \2 liblinnet-dev (= '"$version"')/p'
  done >"$folder/DEBIAN/shlibs"
  package "$folder" liblinnet-dev libdevel \
    "libfmt-dev, libhwy-dev, libsentencepiece-dev, libpcre2-dev, libutf8proc-dev, zlib1g-dev, $(dependencies "$folder"/usr/lib/*.so.*.*)" \
    "C++ and C libraries of linnet" \
    "Headers, static and shared libraries, and the files by which CMake and pkg-config find them. Made for the release of Debian that it was built on."
}

# launcher MINOR: a script that starts the program where glibc is 2.MINOR or newer.
launcher() {
  cat <<TEXT
#!/bin/sh
# Where the C library is too old, the loader would name each symbol that is missing.
version=\$(getconf GNU_LIBC_VERSION 2>/dev/null)
minor=\${version#glibc 2.}
if [ "\$minor" != "\$version" ] && [ "\${minor%%.*}" -lt $1 ]; then
  echo "linnet: this program needs glibc 2.$1 or newer, and this system has \$version" >&2
  exit 2
fi
here=\$(readlink -f -- "\$0")
exec "\${here%/bin/*}/libexec/linnet" "\$@"
TEXT
}

tarball() {
  local name=linnet-$version-$machine-linux folder=$stage/tarball/linnet-$version
  mkdir -p "$stage/tarball"
  cp -a "$stage/files/usr" "$folder"
  libraries_of $release/bin/linnet "$brought_elsewhere" | xargs cp -L -t "$folder/lib/linnet"
  chmod 644 "$folder"/lib/linnet/*
  mkdir -p "$folder/libexec"
  mv "$folder/bin/linnet" "$folder/libexec/"
  launcher "$(readelf -V "$folder/libexec/linnet" "$folder"/lib/linnet/* | sed -n 's/.*Name: GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)" \
    >"$folder/bin/linnet"
  chmod 755 "$folder/bin/linnet"
  documents "$folder"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$stage/tarball" -cf - "linnet-$version" |
    gzip -9n >"dist/$name.tar.gz"
}

# Headers that are compiled in have packages that no library tells of.
declare -A contents=()
bill_of_materials() {
  local library package
  for library in $(libraries_of $release/bin/linnet "$brought_elsewhere"); do contents[$(owner_of "$library")]=linked; done
  for package in libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libutf8proc-dev libboost-dev libstb-dev librandom123-dev; do
    contents[$package]=compiled
  done
  for package in "${!contents[@]}"; do
    dpkg-query -W -f="\${Package} \${Version} ${contents[$package]}\n" "$package" | head -n 1
  done | LC_ALL=C sort | python3 tools/packages/spdx.py "$version" "$SOURCE_DATE_EPOCH" >"dist/linnet-$version-$machine.spdx.json"
}

mkdir -p dist
rm -f dist/*_"$architecture".deb dist/*-"$machine"-linux.tar.gz dist/*-"$machine".spdx.json dist/SHA256SUMS
bill_of_materials
program_files
program
tarball
mpi_module
[[ $release != build/release ]] || libraries
(cd dist && sha256sum -- * >SHA256SUMS)
ls -l dist
