// Kernels that keep matrix rows in registers: a warp holds a row of up to 1024 elements, a block one of up to 8192 if
// accesses are aligned. Thread `lane` of a row's threads has pieces lane, lane + kThreads, ... of kVector.
#pragma once
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/cuda/storage.cuh"

namespace linnet {
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
