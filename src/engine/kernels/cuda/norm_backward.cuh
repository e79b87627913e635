// The gradient of a norm (norm_forward.cuh), one pass over memory. With n = (sum - mean) * rstd and g = dy * weight:
//
//   dx = rstd * (g - mean(g) (when centered) - n * mean(g * n)) + dsum,  df = dropout(dx)
//   dweight = sum over rows of dy * n,  dbias = sum over rows of dy
//
// Every block adds up the last two over its own rows; a second kernel adds the blocks' sums in order. How rows are cut
// depends on their number alone. dx and df may be dy, sum or dsum: an element is written by the thread that has read
// it.
#pragma once
#include <algorithm>
#include "engine/kernels/cuda/add_parts.cuh"
#include "engine/kernels/cuda/norm_forward.cuh"

namespace linnet {

template <class T>
struct NormBackward {
  int64_t rows = 0, width = 0;
  const T *dy = nullptr, *sum = nullptr, *dsum = nullptr;  // dsum, weight: null when there is none
  const float *weight = nullptr, *mean = nullptr, *rstd = nullptr;
  bool centered = true, wide_parameters = true;
  DropoutSite dropout;
  unsigned rows_per_sample = 1;
  T *dx = nullptr, *df = nullptr;              // df: with dropout only
  float *dweight = nullptr, *dbias = nullptr;  // may be null
  float* parts = nullptr;                      // [norm_part_count, 2, width]: the blocks' sums, dweight's and dbias's
  int64_t rows_per_part = 0;
};

// Two blocks at most for each of a large GPU's multiprocessors, which are there at one time; whole warps' rows in each.
inline int64_t norm_rows_per_part(int64_t rows) { return std::max<int64_t>(((rows + 255) / 256 + 7) / 8 * 8, 8); }
inline int64_t norm_part_count(int64_t rows) {
  return (rows + norm_rows_per_part(rows) - 1) / norm_rows_per_part(rows);
}
inline size_t norm_backward_workspace(int64_t rows, int64_t width) {
  return static_cast<size_t>(2 * norm_part_count(rows) * width) * sizeof(float);
}

// Sums of a block's warps, which have had different rows, in order. Every thread calls it.
template <class Layout>
static LINNET_DEVICE void add_warps(int width, const float (&sums)[Layout::kPieces][Layout::kVector], float* to) {
  constexpr int kWidth = Layout::kPieces * Layout::kVector * kWarp;
  __shared__ float4 of_warps[Layout::kRows * kWidth / 4];
  float* const warps = reinterpret_cast<float*>(of_warps);
#pragma unroll
  for (int i = 0; i < Layout::kPieces; ++i)
    store_vector(warps + Layout::row_in_block() * kWidth + Layout::column(i), sums[i]);
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x); j < width; j += kRowBlock) {
    float sum = warps[j];
    for (int warp = 1; warp < Layout::kRows; ++warp) sum += warps[warp * kWidth + j];
    to[j] = sum;
  }
  __syncthreads();
}

// A block's sums where each thread has columns of its own; `to` may begin anywhere.
template <class Layout>
LINNET_DEVICE void store_parts(int width, const float (&sums)[Layout::kPieces][Layout::kVector], float* to) {
#pragma unroll
  for (int i = 0; i < Layout::kPieces; ++i) {
    if (Layout::column(i) >= width) continue;
#pragma unroll
    for (int j = 0; j < Layout::kVector; ++j) to[Layout::column(i) + j] = sums[i][j];
  }
}

// Blocks that a multiprocessor shall hold at a time: two, where half of its registers suffice.
template <class Layout>
constexpr int kNormBlocks = Layout::kVector > 1 && Layout::kVector* Layout::kPieces <= 24 ? 2 : 1;

template <class T, class Layout, bool kResidual>
__global__ void __launch_bounds__(kRowBlock, kNormBlocks<Layout>) norm_backward_kernel(NormBackward<T> call) {
  begin_kernel();
  constexpr int kVector = Layout::kVector, kPieces = Layout::kPieces;
  const int width = static_cast<int>(call.width);
  const int64_t first = blockIdx.x * call.rows_per_part, end = min(call.rows, first + call.rows_per_part);
  const bool drops = kResidual && call.dropout.random != nullptr;
  const DropoutMask mask = drops ? call.dropout.mask() : DropoutMask{};
  float dweight[kPieces][kVector] = {}, dbias[kPieces][kVector] = {};
  for (int64_t row = first + Layout::row_in_block(); row < end; row += Layout::kRows) {
    // All of the row is asked for before any of it is used. Sums are read twice, the second time from the nearest
    // cache: registers are short.
    float g[kPieces][kVector];
    LaterVector<T, kVector> add[kPieces];
    if (kResidual && call.dsum)
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        if (Layout::column(i) < width) add[i].ask(call.dsum + row * width + Layout::column(i));
    load_row<Layout>(call.dy + row * width, width, 0, g);
    const T* const sums = call.sum + row * width;
    const float mean = call.mean[row], rstd = call.rstd[row];
    float sum_g = 0, sum_gn = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int column = Layout::column(i);
      if (column >= width) continue;
      float weight[kVector], normal[kVector];
      load_vector(sums + column, normal);
      if (call.weight) load_parameters(call.weight + column, call.wide_parameters, weight);
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        normal[j] = (normal[j] - mean) * rstd;
        dweight[i][j] += g[i][j] * normal[j];
        dbias[i][j] += g[i][j];
        if (call.weight) g[i][j] *= weight[j];
        sum_g += g[i][j];
        sum_gn += g[i][j] * normal[j];
      }
    }
    const float mean_g = call.centered ? Layout::sum(sum_g) / static_cast<float>(width) : 0;
    const float mean_gn = Layout::sum(sum_gn) / static_cast<float>(width);
    const unsigned sample = static_cast<unsigned>(row) / call.rows_per_sample;
    const int64_t start = (row - static_cast<int64_t>(sample) * call.rows_per_sample) * width;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int column = Layout::column(i);
      if (column >= width) continue;
      float d[kVector];
      load_vector(sums + column, d);
#pragma unroll
      for (int j = 0; j < kVector; ++j) d[j] = rstd * (g[i][j] - mean_g - (d[j] - mean) * rstd * mean_gn);
      if constexpr (kResidual) {
        if (call.dsum) {
          float more[kVector];
          add[i].take(more);
#pragma unroll
          for (int j = 0; j < kVector; ++j) d[j] += more[j];
        }
      }
      store_vector(call.dx + row * width + column, d);
      if (!drops) continue;
      float factor[kVector];
      dropout_factors(mask, start + column, sample, factor);
#pragma unroll
      for (int j = 0; j < kVector; ++j) d[j] = factor[j] == 0 ? 0 : d[j] * factor[j];
      store_vector(call.df + row * width + column, d);
    }
  }
  float* to = call.parts + 2 * static_cast<int64_t>(blockIdx.x) * width;
  if constexpr (Layout::kThreads == kWarp) {
    add_warps<Layout>(width, dweight, to);
    add_warps<Layout>(width, dbias, to + width);
  } else {
    store_parts<Layout>(width, dweight, to);
    store_parts<Layout>(width, dbias, to + width);
  }
}

// Rows that no block's registers hold are read again, and the block's sums are kept in memory.
template <class T, bool kResidual>
__global__ void __launch_bounds__(kRowBlock) norm_backward_long_kernel(NormBackward<T> call) {
  begin_kernel();
  const int64_t width = call.width;
  const int64_t first = blockIdx.x * call.rows_per_part, end = min(call.rows, first + call.rows_per_part);
  const bool drops = kResidual && call.dropout.random != nullptr;
  const DropoutMask mask = drops ? call.dropout.mask() : DropoutMask{};
  float *dweight = call.parts + 2 * static_cast<int64_t>(blockIdx.x) * width, *dbias = dweight + width;
  for (int64_t row = first; row < end; ++row) {
    const T *dy = call.dy + row * width, *sum = call.sum + row * width;
    const float mean = call.mean[row], rstd = call.rstd[row];
    float sum_g = 0, sum_gn = 0;
    for (int64_t j = threadIdx.x; j < width; j += kRowBlock) {
      const float d = to_float(dy[j]), normal = (to_float(sum[j]) - mean) * rstd;
      dweight[j] = row == first ? d * normal : dweight[j] + d * normal;
      dbias[j] = row == first ? d : dbias[j] + d;
      const float g = d * (call.weight ? call.weight[j] : 1);
      sum_g += g;
      sum_gn += g * normal;
    }
    const float mean_g = call.centered ? block_sum(sum_g) / static_cast<float>(width) : 0;
    const float mean_gn = block_sum(sum_gn) / static_cast<float>(width);
    const unsigned sample = static_cast<unsigned>(row) / call.rows_per_sample;
    const int64_t start = (row - static_cast<int64_t>(sample) * call.rows_per_sample) * width;
    for (int64_t j = threadIdx.x; j < width; j += kRowBlock) {
      const float g = to_float(dy[j]) * (call.weight ? call.weight[j] : 1), normal = (to_float(sum[j]) - mean) * rstd;
      const float d = rstd * (g - mean_g - normal * mean_gn) + (call.dsum ? to_float(call.dsum[row * width + j]) : 0);
      call.dx[row * width + j] = from_float<T>(d);
      if (!drops) continue;
      const float factor = mask.dense(start + j, sample);
      call.df[row * width + j] = from_float<T>(factor == 0 ? 0 : d * factor);
    }
  }
}

template <bool kResidual, class T>
void norm_backward(Device* device, NormBackward<T> call) {
  const auto parts = static_cast<unsigned>(norm_part_count(call.rows));
  call.rows_per_part = norm_rows_per_part(call.rows);
  call.wide_parameters = aligned16(call.weight);
  const bool aligned = aligned16(call.dy, call.sum, call.dsum, call.dx, call.df);
  if (!for_row_layout<T>(call.width, aligned, [&]<class Layout>() {
        launch(device, norm_backward_kernel<T, Layout, kResidual>, parts, kRowBlock, 0, call);
      }))
    launch(device, norm_backward_long_kernel<T, kResidual>, parts, kRowBlock, 0, call);
  if (call.dweight || call.dbias)
    add_parts(device, parts, call.width, 2 * call.width, call.parts, call.dweight, call.dbias);
}

}  // namespace linnet
