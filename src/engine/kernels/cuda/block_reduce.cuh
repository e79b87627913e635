// Sums and maxima over a warp or a block, in a fixed order, so that every run gives the same bits.
#pragma once
#include "engine/kernels/cuda/storage.cuh"

namespace linnet {
struct Add {
  template <class T> LINNET_DEVICE T operator()(T a, T b) const { return a + b; }
};
// NaN wins, so that it reaches the loss.
struct Larger {
  LINNET_DEVICE float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

// Every lane gets the result. All 32 lanes must take part.
template <class T, class Op> LINNET_DEVICE T warp_reduce(T value, Op op) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value = op(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

// Every thread of the block gets the result. The block has a multiple of 32 threads along x, at most 1024; all must
// call it together. May be called again at once.
template <class T, class Op> static LINNET_DEVICE T block_reduce(T value, Op op, T identity) {
  __shared__ T parts[kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  value = warp_reduce(value, op);
  if (blockDim.x == kWarp) return value;
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / kWarp ? parts[lane] : identity;
  value = warp_reduce(value, op);
  __syncthreads();
  return value;
}
template <class T> LINNET_DEVICE T block_sum(T value) { return block_reduce(value, Add(), T(0)); }
LINNET_DEVICE float block_max(float value) { return block_reduce(value, Larger(), -INFINITY); }

// The second stage of a sum over blocks: adds their parts in a fixed order.
constexpr int kPartSlices = 32;  // warps that share the parts of 32 columns

// Column sums of from [parts, width], 32 of them by each block: those before `split` to `first`, the others to
// `second`; either may be null.
static LINNET_DEVICE void add_block_parts(unsigned block, int64_t parts, int64_t split, int64_t width,
    const float* __restrict__ from, float* __restrict__ first, float* __restrict__ second) {
  __shared__ float slices[kPartSlices][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, slice = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = static_cast<int64_t>(block) * kWarp + lane;
  float sum = 0;
  if (column < width)
    for (int64_t part = slice; part < parts; part += kPartSlices) sum += from[part * width + column];
  slices[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || column >= width) return;
  for (int i = 1; i < kPartSlices; ++i) sum += slices[i][lane];
  float* to = column < split ? first : second;
  if (to) to[column < split ? column : column - split] = sum;
}

static __global__ void __launch_bounds__(kPartSlices* kWarp) add_parts_kernel(int64_t parts, int64_t split,
    int64_t width, const float* __restrict__ from, float* __restrict__ first, float* __restrict__ second) {
  begin_kernel();
  add_block_parts(blockIdx.x, parts, split, width, from, first, second);
}

inline void add_parts(
    Device* device, int64_t parts, int64_t split, int64_t width, const float* from, float* first, float* second) {
  launch(device, add_parts_kernel, blocks_for(width, kWarp), kPartSlices * kWarp, 0, parts, split, width, from, first,
      second);
}

// One thread per column: to[column] = (add ? to[column] : 0) + the parts in order.
LINNET_DEVICE void add_column(int64_t column, int64_t parts, int64_t width, bool add, const float* from, float* to) {
  float sum = add ? to[column] : 0;
  for (int64_t part = 0; part < parts; ++part) sum += from[part * width + column];
  to[column] = sum;
}

template <class Sum, int kThreads, class From, class To> __global__ void __launch_bounds__(kThreads)
    total_kernel(int64_t count, const From* __restrict__ from, To* total) {
  begin_kernel();
  Sum sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += static_cast<Sum>(from[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = static_cast<To>(sum);
}

// *total = the sum of `from`, by one block; for a few numbers per thread.
template <class Sum, int kThreads = 1024, class From, class To>
void add_all(Device* device, int64_t count, const From* from, To* total) {
  launch(device, total_kernel<Sum, kThreads, From, To>, 1, kThreads, 0, count, from, total);
}

// Kernels that keep matrix rows in registers: a warp holds a row of up to 1024 elements, a block one of up to 8192 if
// accesses are aligned. Thread `lane` of a row's threads has pieces lane, lane + kThreads, ... of kVector.

constexpr int kRowBlock = 256;  // threads of a block

// kVector elements per access, kPieces of them in each of a row's kThreads threads.
template <int vector, int pieces, int threads> struct RowLayout {
  static constexpr int kVector = vector, kPieces = pieces, kThreads = threads;
  static constexpr int kRows = kRowBlock / kThreads;  // of a block, side by side

  LINNET_DEVICE static int lane() { return static_cast<int>(threadIdx.x) % kThreads; }
  LINNET_DEVICE static int row_in_block() { return static_cast<int>(threadIdx.x) / kThreads; }
  LINNET_DEVICE static int column(int piece) { return (piece * kThreads + lane()) * kVector; }

  // Every thread of the row gets the result; all must take part.
  template <class Op> LINNET_DEVICE static float reduce(float value, Op op, float identity) {
    if constexpr (kThreads == kWarp) return warp_reduce(value, op);
    else return block_reduce(value, op, identity);
  }
  LINNET_DEVICE static float sum(float value) { return reduce(value, Add(), 0.0f); }
  LINNET_DEVICE static float max(float value) { return reduce(value, Larger(), -INFINITY); }
};

// A row's values; columns at and past `width` get `beyond`.
template <class Layout, class T>
LINNET_DEVICE void load_row(const T* row, int width, float beyond, float (&to)[Layout::kPieces][Layout::kVector]) {
#pragma unroll
  for (int i = 0; i < Layout::kPieces; ++i) {
    if (Layout::column(i) < width) {
      load_vector(row + Layout::column(i), to[i]);
    } else {
#pragma unroll
      for (float& value : to[i]) value = beyond;
    }
  }
}

template <class Layout, class T>
LINNET_DEVICE void store_row(T* row, int width, const float (&from)[Layout::kPieces][Layout::kVector]) {
#pragma unroll
  for (int i = 0; i < Layout::kPieces; ++i)
    if (Layout::column(i) < width) store_vector(row + Layout::column(i), from[i]);
}

constexpr int64_t kWidestWarpRow = 1024;

// On the host: calls body.operator()<Layout>() with the layout for rows of T. `aligned`: all rows are 16-byte aligned.
// False if a block's registers cannot hold a row.
template <class T, class Body> [[nodiscard]] bool for_row_layout(int64_t width, bool aligned, Body&& body) {
  constexpr int v = kWide<T>;
  if (aligned && width % v == 0) {
    if (width <= 8 * kWarp) return body.template operator()<RowLayout<v, 8 / v, kWarp>>(), true;
    if (width <= 16 * kWarp) return body.template operator()<RowLayout<v, 16 / v, kWarp>>(), true;
    if (width <= 24 * kWarp) return body.template operator()<RowLayout<v, 24 / v, kWarp>>(), true;
    if (width <= kWidestWarpRow) return body.template operator()<RowLayout<v, 32 / v, kWarp>>(), true;
    if (width <= 8 * kRowBlock) return body.template operator()<RowLayout<v, 8 / v, kRowBlock>>(), true;
    if (width <= 16 * kRowBlock) return body.template operator()<RowLayout<v, 16 / v, kRowBlock>>(), true;
    if (width <= 32 * kRowBlock) return body.template operator()<RowLayout<v, 32 / v, kRowBlock>>(), true;
    return false;
  }
  if (width <= 16 * kWarp) return body.template operator()<RowLayout<1, 16, kWarp>>(), true;
  if (width <= 16 * kRowBlock) return body.template operator()<RowLayout<1, 16, kRowBlock>>(), true;
  return false;
}
}  // namespace linnet
