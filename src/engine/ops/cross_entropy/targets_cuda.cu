// What surrounds a loss: targets without padding, their count, and one-hot rows.
#include <algorithm>
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/cuda/index.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/cross_entropy/cross_entropy.h"

namespace linnet {
namespace {

constexpr int kThreads = 256, kCountThreads = 1024;
constexpr int64_t kCountPiece = 16 * kCountThreads;

__global__ void __launch_bounds__(kThreads)
    mask_kernel(int64_t count, int64_t length, const int32_t* __restrict__ targets, const int32_t* __restrict__ lengths,
                int32_t* __restrict__ to) {
  begin_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const auto [row, location] = divided(i, length);
  to[i] = location < lengths[row] ? targets[i] : -1;
}

void run_mask(const KernelArgs& args) {
  const int64_t count = args.out[0].elements();
  launch(args.device, mask_kernel, blocks_for(count, kThreads), kThreads, 0, count, args.in[0].shape()[1],
         args.in[0].as<int32_t>(), args.in[1].as<int32_t>(), args.out[0].as<int32_t>());
}

LINNET_DEVICE void put_count(float* to, int32_t count) { *to = static_cast<float>(count); }
LINNET_DEVICE void put_count(int32_t* to, int32_t count) { *to = count; }

// Targets that are not negative in each piece.
template <class To>
__global__ void __launch_bounds__(kCountThreads)
    count_kernel(int64_t count, const int32_t* __restrict__ targets, To* __restrict__ to) {
  begin_kernel();
  int32_t found = 0;
  const int64_t begin = blockIdx.x * kCountPiece, end = min(begin + kCountPiece, count);
  for (int64_t i = begin + threadIdx.x; i < end; i += kCountThreads) found += targets[i] >= 0;
  found = block_sum(found);
  if (threadIdx.x == 0) put_count(to + blockIdx.x, found);
}

__global__ void __launch_bounds__(kCountThreads)
    add_counts_kernel(int64_t pieces, const int32_t* __restrict__ counts, float* __restrict__ to) {
  begin_kernel();
  int32_t found = 0;
  for (int64_t i = threadIdx.x; i < pieces; i += kCountThreads) found += counts[i];
  found = block_sum(found);
  if (threadIdx.x == 0) put_count(to, found);
}

int64_t pieces_of(int64_t count) { return std::max<int64_t>((count + kCountPiece - 1) / kCountPiece, 1); }

size_t count_workspace(const KernelQuery& query) {
  const int64_t pieces = pieces_of(query.in[0].shape.elements());
  return pieces > 1 ? static_cast<size_t>(pieces) * sizeof(int32_t) : 0;
}

void run_count(const KernelArgs& args) {
  const int64_t count = args.in[0].elements(), pieces = pieces_of(count);
  const int32_t* targets = args.in[0].as<int32_t>();
  auto* counts = reinterpret_cast<int32_t*>(args.workspace);
  float* to = args.out[0].as<float>();
  if (pieces == 1) return launch(args.device, count_kernel<float>, 1, kCountThreads, 0, count, targets, to);
  launch(args.device, count_kernel<int32_t>, static_cast<unsigned>(pieces), kCountThreads, 0, count, targets, counts);
  launch(args.device, add_counts_kernel, 1, kCountThreads, 0, pieces, counts, to);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    one_hot_kernel(int64_t count, int64_t classes, const int32_t* __restrict__ targets, T* __restrict__ to) {
  begin_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const auto [row, location] = divided(i, classes);
  to[i] = from_float<T>(targets[row] == location ? 1 : 0);
}

void run_one_hot(const KernelArgs& args) {
  const int64_t count = args.out[0].elements();
  for_storage(args.out[0].type.dtype, [&]<class T>() {
    launch(args.device, one_hot_kernel<T>, blocks_for(count, kThreads), kThreads, 0, count, args.out[0].shape()[-1],
           args.in[0].as<int32_t>(), args.out[0].as<T>());
  });
}

bool counts_in_f32(const KernelQuery& query) { return query.out[0].dtype == DType::kF32; }

}  // namespace

LINNET_KERNELS(mask_targets_cuda, {"elements", nullptr, nullptr, run_mask})
LINNET_KERNELS(count_targets_cuda, {"pieces", counts_in_f32, count_workspace, run_count})
LINNET_KERNELS(one_hot_cuda, {"elements", nullptr, nullptr, run_one_hot})

}  // namespace linnet
