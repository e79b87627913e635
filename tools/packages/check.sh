#!/usr/bin/env bash
# Installs the packages of dist/ in fresh systems, as root, and has them do what a first user does (work.sh); all answers
# must be those of the release build here.
#
#   tools/packages/check.sh [SUITE...]
#
# SUITE is a release of Debian: bookworm (the default), trixie, bullseye. A system is made with debootstrap in
# build/roots/SUITE, once. Exits with 3 where no system can be made: without root, Debian's archive, or the right to mount.
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
leave_root() { [[ $root ]] && mountpoint -q "$root/proc" && umount "$root/proc" || true; }
trap 'leave_root; rm -rf "$work"' EXIT
(cd dist && sha256sum --check --quiet SHA256SUMS)

# Nothing from outside but libc's own. (That the program is hardened, a test of the build checks.)
tar -C "$work" -xzf dist/linnet-*-linux.tar.gz
unpacked=$(echo "$work"/linnet-*)
outside=$(ldd "$unpacked/bin/linnet" | grep -vE "$work|/(ld-linux[-a-z0-9]*|libc|libm)\.so|linux-vdso" || true)
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

for suite in "${@:-bookworm}"; do
  leave_root
  root=build/roots/$suite
  mkdir -p build/roots
  if [[ ! -x $root/bin/bash ]]; then
    debootstrap --variant=minbase "$suite" "$root" >"$root.log" 2>&1 ||
      no_system "debootstrap failed; see $root.log"
  fi
  cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
  for file in /etc/apt/apt.conf.d/*; do cp -n "$file" "$root/etc/apt/apt.conf.d/" 2>/dev/null || true; done
  mountpoint -q "$root/proc" || mount -t proc proc "$root/proc" ||  # a program finds its own folder there
    no_system "nothing can be mounted"
  rm -rf "$root"/root/*
  cp dist/*.deb dist/*-linux.tar.gz tools/packages/work.sh "$root/root/"

  in_root "tar xzf linnet-*-linux.tar.gz" || fail "$suite: the tarball cannot be unpacked"
  if ! in_root "linnet-*/bin/linnet --version" >"$work/version" 2>&1; then
    grep -q 'GLIBC_' "$work/version" || fail "$suite: $(cat "$work/version")"
    echo "packages: $suite: $(tail -n 1 "$work/version")"
    continue
  fi
  try tarball 'export PATH=$(echo ../linnet-*/bin):$PATH'

  in_root "apt-get update -q" >"$work/log" 2>&1 || no_system "$(tail -n 1 "$work/log")"
  in_root "apt-get install -y -q --no-install-recommends ./linnet_*.deb" >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log"; fail "$suite: apt cannot install the package"; }
  try "Debian package" true
  in_root "apt-get purge -y -q linnet && ! ls /usr/lib/linnet 2>/dev/null" >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log"; fail "$suite: the package leaves files behind"; }
done
