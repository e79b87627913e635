#!/usr/bin/env bash
# `./dev gpu build`: makes build/gpu, a folder for a machine that has a GPU, its driver, the CUDA toolkit and PyTorch, and
# nothing else of ours, and build/gpu.tar.xz, which is that folder packed. LINNET_GPU_ARCH (90) names the machine code,
# LINNET_GPU_JOBS the compilers at a time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly built=build/cuda
readonly folder=build/gpu
readonly limit_mib=40

fail() {
  echo "gpu: $*" >&2
  exit 1
}

find_toolkit() {
  command -v nvcc >/dev/null && return
  local home
  for home in "${CUDA_HOME:-}" /usr/local/cuda; do
    if [[ -n $home && -x $home/bin/nvcc ]]; then
      export PATH=$home/bin:$PATH
      return
    fi
  done
  fail "no CUDA toolkit: nvcc is neither in PATH nor in CUDA_HOME or /usr/local/cuda"
}

compile() {
  cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="${LINNET_GPU_ARCH:-90}" >$folder.log 2>&1 ||
    fail "cmake could not configure $built: $(grep -m 1 -A 2 'CMake Error' $folder.log | tr -s '\n ' ' '; echo "($folder.log)")"
  cmake --build $built -j "${LINNET_GPU_JOBS:-$(nproc)}" --target linnet linnet_cuda ops_test cuda_training_test
}

# The libraries a program needs that are neither glibc's nor the loader's. libstdc++ and libgcc_s go to a folder of their
# own: the other machine's are taken where they are new enough (tools/gpu/run).
collect_libraries() {
  local name arrow path _
  while read -r name arrow path _; do
    [[ $arrow == "=>" && $path == /* ]] || continue
    case $name in
      libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux* | libcuda.so.*) ;;
      libstdc++.so.* | libgcc_s.so.*) cp -Lf "$path" "$folder/lib/compiler/$name" ;;
      *) cp -Lf "$path" "$folder/lib/$name" ;;
    esac
  done < <(for program in "$folder"/bin/*; do ldd "$program"; done)
  if grep -l 'not found' < <(ldd "$folder"/bin/linnet) >/dev/null; then fail "a library of $folder/bin/linnet is missing"; fi
}

collect() {
  local kept=
  # Results of an earlier call stay: the parts go on with them.
  [[ -d $folder/results ]] && kept=$(mktemp -d "$folder.XXXXXX") && mv "$folder/results" "$kept/"
  rm -rf "$folder"
  mkdir -p $folder/bin $folder/lib/compiler $folder/tests/golden $folder/bench/peers
  if [[ $kept ]]; then
    mv "$kept/results" "$folder/"
    rmdir "$kept"
  fi
  cp $built/bin/linnet $built/src/engine/ops/ops_test $built/tests/cuda_emulation/cuda_training_test \
    $built/bin/liblinnet_cuda.so $folder/bin/
  strip --strip-unneeded $folder/bin/*
  collect_libraries
  cp tests/golden/transformer_*.safetensors $folder/tests/golden/
  cp bench/gpu.py bench/gpu_floors.py $folder/bench/
  cp bench/peers/*.py $folder/bench/peers/
  cp tools/gpu/run tools/gpu/runner.py tools/gpu/journal.py $folder/
  # MNIST is 11 MB; where it is at hand it goes along, for the quality that training reaches.
  if [[ -n ${LINNET_DATA:-} && -d $LINNET_DATA/images/mnist ]]; then
    mkdir -p $folder/data
    cp -rL "$LINNET_DATA/images/mnist" $folder/data/
  fi
  { git rev-parse HEAD && git status --porcelain --untracked-files=no | head -n 5; } >$folder/commit 2>/dev/null || true
}

# What travels is the packed folder, beside whatever else goes in the same call.
pack() {
  tar -C build --exclude=gpu/results --exclude=gpu/cache --exclude=gpu/runs -cJf $folder.tar.xz gpu
}

check_size() {
  local kib
  kib=$(du -sk --apparent-size $folder.tar.xz | cut -f 1)
  ((kib <= limit_mib * 1024)) || fail "$folder.tar.xz is $((kib / 1024)) MiB, more than $limit_mib"
  echo "gpu: $folder.tar.xz is ready, $((kib / 1024)) MiB; on the machine with the GPU: tar -xJf gpu.tar.xz && gpu/run first"
}

mkdir -p build
find_toolkit
compile
collect
pack
check_size
