// Layer and RMS normalization of rows, on the way through the residual stream or not: one pass over memory.
//
//   sum = x + dropout(f) (or x),  y = (sum - mean) * rstd * weight + bias
//
// sum may be x or f, and y the other one: an element is written by the thread that has read it.
#pragma once
#include "engine/kernels/cuda/philox.cuh"
#include "engine/kernels/cuda/rows.cuh"

namespace linnet {

template <class T>
struct NormForward {
  int64_t rows = 0, width = 0;
  const T *x = nullptr, *f = nullptr;              // f: of a residual norm only
  const float *weight = nullptr, *bias = nullptr;  // null: none
  float epsilon = 0;
  bool centered = true, wide_parameters = true;  // weight and bias begin at multiples of 16 bytes
  DropoutSite dropout;
  unsigned rows_per_sample = 1;
  T *sum = nullptr, *y = nullptr;  // sum: of a residual norm only
  float *mean = nullptr, *rstd = nullptr;
};

// What the N neighbors from element `index` of a sample are multiplied by; N divides `index` and 8.
template <int N>
LINNET_DEVICE void dropout_factors(const DropoutMask& mask, int64_t index, unsigned sample, float (&factor)[N]) {
  static_assert(N == 1 || N == 4 || N == 8);
  const uint4 words = philox({static_cast<unsigned>(index / 8), kDenseDropout, 0, sample}, mask.key);
  if constexpr (N == 1) {
    factor[0] = philox_value(words, static_cast<int>(index % 8)) >= mask.threshold ? mask.scale : 0;
  } else {
    const bool second = N == 4 && index % 8 != 0;
    const unsigned w[4] = {second ? words.z : words.x, second ? words.w : words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < N; ++i) factor[i] = (w[i / 2] >> (16 * (i % 2)) & 0xffff) >= mask.threshold ? mask.scale : 0;
  }
}

// A vector of a norm's parameters, which may begin anywhere.
template <int N>
LINNET_DEVICE void load_parameters(const float* location, bool wide, float (&to)[N]) {
  if (wide) return load_vector(location, to);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = location[i];
}

template <class T, class Layout, bool kResidual>
__global__ void __launch_bounds__(kRowBlock) norm_forward_kernel(NormForward<T> call) {
  begin_kernel();
  constexpr int kVector = Layout::kVector, kPieces = Layout::kPieces;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Layout::kRows + Layout::row_in_block();
  if (row >= call.rows) return;
  const int width = static_cast<int>(call.width);
  float v[kPieces][kVector];
  load_row<Layout>(call.x + row * width, width, 0, v);
  if constexpr (kResidual) {
    const T* f = call.f + row * width;
    const bool drops = call.dropout.random != nullptr;
    const DropoutMask mask = drops ? call.dropout.mask() : DropoutMask{};
    const unsigned sample = static_cast<unsigned>(row) / call.rows_per_sample;
    const int64_t start = (row - static_cast<int64_t>(sample) * call.rows_per_sample) * width;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int column = Layout::column(i);
      if (column >= width) continue;
      float add[kVector];
      load_vector(f + column, add);
      if (drops) {
        float factor[kVector];
        dropout_factors(mask, start + column, sample, factor);
#pragma unroll
        for (int j = 0; j < kVector; ++j) add[j] = factor[j] == 0 ? 0 : add[j] * factor[j];
      }
      // What the gradient will read is what is normalized here: the sum as it is stored.
#pragma unroll
      for (int j = 0; j < kVector; ++j) v[i][j] = to_float(from_float<T>(v[i][j] + add[j]));
    }
    store_row<Layout>(call.sum + row * width, width, v);
  }
  float total = 0;
  if (call.centered) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
#pragma unroll
      for (int j = 0; j < kVector; ++j) total += v[i][j];
    total = Layout::sum(total);
  }
  const float mean = total / static_cast<float>(width);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    if (Layout::column(i) >= width) continue;
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares += (v[i][j] - mean) * (v[i][j] - mean);
  }
  const float rstd = rsqrtf(Layout::sum(squares) / static_cast<float>(width) + call.epsilon);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int column = Layout::column(i);
    if (column >= width) continue;
    float weight[kVector], bias[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) weight[j] = 1, bias[j] = 0;
    if (call.weight) load_parameters(call.weight + column, call.wide_parameters, weight);
    if (call.bias) load_parameters(call.bias + column, call.wide_parameters, bias);
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[i][j] = (v[i][j] - mean) * rstd * weight[j] + bias[j];
  }
  store_row<Layout>(call.y + row * width, width, v);
  if (Layout::lane() == 0) call.mean[row] = mean, call.rstd[row] = rstd;
}

// Rows that no block's registers hold are read again.
template <class T, bool kResidual>
__global__ void __launch_bounds__(kRowBlock) norm_forward_long_kernel(NormForward<T> call) {
  begin_kernel();
  const int64_t row = blockIdx.x, width = call.width;
  const T* v = call.x + row * width;
  float total = 0;
  if constexpr (kResidual) {
    const T* f = call.f + row * width;
    T* sum = call.sum + row * width;
    const bool drops = call.dropout.random != nullptr;
    const DropoutMask mask = drops ? call.dropout.mask() : DropoutMask{};
    const unsigned sample = static_cast<unsigned>(row) / call.rows_per_sample;
    const int64_t start = (row - static_cast<int64_t>(sample) * call.rows_per_sample) * width;
    for (int64_t j = threadIdx.x; j < width; j += kRowBlock) {
      const float factor = drops ? mask.dense(start + j, sample) : 1;
      sum[j] = from_float<T>(to_float(v[j]) + (factor == 0 ? 0 : to_float(f[j]) * factor));
    }
    v = sum;
  }
  if (call.centered)
    for (int64_t j = threadIdx.x; j < width; j += kRowBlock) total += to_float(v[j]);
  const float mean = block_sum(total) / static_cast<float>(width);
  float squares = 0;
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock) {
    const float d = to_float(v[j]) - mean;
    squares += d * d;
  }
  const float rstd = rsqrtf(block_sum(squares) / static_cast<float>(width) + call.epsilon);
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock)
    call.y[row * width + j] = from_float<T>((to_float(v[j]) - mean) * rstd * (call.weight ? call.weight[j] : 1) +
                                            (call.bias ? call.bias[j] : 0));
  if (threadIdx.x == 0) call.mean[row] = mean, call.rstd[row] = rstd;
}

template <bool kResidual, class T>
void norm_forward(Device* device, NormForward<T> call) {
  call.wide_parameters = aligned16(call.weight, call.bias);
  if (!for_row_layout<T>(call.width, aligned16(call.x, call.f, call.sum, call.y), [&]<class Layout>() {
        launch(device, norm_forward_kernel<T, Layout, kResidual>, blocks_for(call.rows, Layout::kRows), kRowBlock, 0,
               call);
      }))
    launch(device, norm_forward_long_kernel<T, kResidual>, static_cast<unsigned>(call.rows), kRowBlock, 0, call);
}

}  // namespace linnet
