#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace linnet {
namespace {
constexpr int kThreads = 256, kMostThreads = 512, kLoads = 4;
constexpr int64_t kRowsPerPart = 64;

// The most of a row in shared memory: a block's maximum on every GPU since Ampere, less what reductions take.
constexpr size_t kMostStaged = 99 * 1024 - 512;
constexpr float kLog2e = 1.44269504f;

// A block for a row, which it needs twice: the second time from shared memory if it fits (kStaged), where each thread
// reads what it wrote itself, else from global memory. Elements between `width` and the row's stride are read and
// written without effect. Each thread has kLoads accesses in flight.
template <class T, bool kStaged> __global__ void __launch_bounds__(kMostThreads)
    softmax_loss_kernel(SoftmaxLoss t, T* __restrict__ logits) {
  begin_kernel();
  constexpr int kN = kWide<T>;
  const int64_t row = blockIdx.x;
  const int width = static_cast<int>(t.width), step = static_cast<int>(blockDim.x) * kN;
  const int begin = static_cast<int>(threadIdx.x) * kN;
  T* const x = logits + row * t.stride;
  T* const staged = kStaged ? dynamic_shared<T>() : nullptr;
  const int target = t.targets[row];
  const bool counts = target >= 0;
  if (!counts) {  // the whole block
    const float zeros[kN] = {};
    if (t.dloss)
      for (int j = begin; j < width; j += step) store_vector(x + j, zeros);
    if (threadIdx.x == 0 && t.losses) t.losses[row] = 0;
    return;
  }
  // Elements past the width become -inf, whose power is 0.
  const auto load = [&](int from, bool again, float(&to)[kLoads][kN]) {
    uint4 words[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int j = from + i * step;
      if (j >= width) continue;
      words[i] = *reinterpret_cast<const uint4*>((kStaged && again ? staged : x) + j);
      if (kStaged && !again) *reinterpret_cast<uint4*>(staged + j) = words[i];
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) load_vector(reinterpret_cast<const T*>(&words[i]), to[i]);
    if (!t.bias && from + (kLoads - 1) * step + kN <= width) return;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int j = from + i * step;
#pragma unroll
      for (int e = 0; e < kN; ++e)
        to[i][e] = j + e < width ? (t.bias ? to[i][e] + t.bias[j + e] : to[i][e]) : -INFINITY;
    }
  };
  float top = -INFINITY, sum = 0, total = 0;
  for (int j = begin; j < width; j += kLoads * step) {
    float values[kLoads][kN], largest = top;
    load(j, false, values);
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
#pragma unroll
      for (int e = 0; e < kN; ++e) largest = fmaxf(largest, values[i][e]);
    const float base = largest == -INFINITY ? 0 : largest;
    sum *= exp2f((top - base) * kLog2e);
    top = largest;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
#pragma unroll
      for (int e = 0; e < kN; ++e) sum += exp2f((values[i][e] - base) * kLog2e);
    if (t.smoothing > 0)
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
#pragma unroll
        for (int e = 0; e < kN; ++e) total += j + i * step + e < width ? values[i][e] : 0;
  }
  // fmaxf ignores NaN, but exp(NaN) has made the sum NaN.
  const float all_top = block_max(top), base = all_top == -INFINITY ? 0 : all_top;
  const float all_sum = block_sum(sum * exp2f((top - base) * kLog2e));
  const float lse = base + logf(all_sum);
  const float hit = target < width ? to_float(x[target]) + (t.bias ? t.bias[target] : 0) : 0;
  const float goal = 1 - t.smoothing, share = t.smoothing / static_cast<float>(t.width);
  if (t.losses) {
    const float mean = t.smoothing > 0 ? block_sum(total) / static_cast<float>(t.width) : 0;
    const float loss = lse - goal * hit - (t.smoothing > 0 ? t.smoothing * mean : 0);
    if (threadIdx.x == 0) t.losses[row] = target < width ? loss : NAN;
  }
  if (!t.dloss) return;
  __syncthreads();  // everybody has read the target's logit
  const float scale = target < width ? *t.dloss : NAN;
  for (int j = begin; j < width; j += kLoads * step) {
    float values[kLoads][kN];
    load(j, true, values);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int first = j + i * step;
#pragma unroll
      for (int e = 0; e < kN; ++e) values[i][e] = scale * (exp2f((values[i][e] - lse) * kLog2e) - share);
      if (first < width) store_vector(x + first, values[i]);
    }
  }
  // By the thread that has just written it.
  if (target < width && target / kN % static_cast<int>(blockDim.x) == static_cast<int>(threadIdx.x))
    x[target] = from_float<T>(scale * (exp2f((hit - lse) * kLog2e) - (goal + share)));
}

template <class T> __global__ void __launch_bounds__(kThreads) column_parts_kernel(
    int64_t rows, int64_t width, int64_t stride, const T* __restrict__ x, float* __restrict__ parts) {
  begin_kernel();
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, part = blockIdx.y;
  if (j >= width) return;
  float sum = 0;
  for (int64_t row = part * kRowsPerPart; row < min(rows, (part + 1) * kRowsPerPart); ++row)
    sum += to_float(x[row * stride + j]);
  parts[part * width + j] = sum;
}
}  // namespace

void softmax_loss(Device* device, const SoftmaxLoss& l) {
  for_storage(l.type, [&]<class T>() {
    const unsigned threads = l.width >= 8192 ? kMostThreads : l.width > 512 ? kThreads : kWarp * 2;
    const auto bytes = static_cast<size_t>(l.stride) * sizeof(T);
    const bool staged = bytes <= kMostStaged;
    launch(device, staged ? softmax_loss_kernel<T, true> : softmax_loss_kernel<T, false>, static_cast<unsigned>(l.rows),
        threads, staged ? bytes : 0, l, static_cast<T*>(l.logits));
  });
}

int64_t column_parts(int64_t rows) { return (rows + kRowsPerPart - 1) / kRowsPerPart; }

void sum_columns(Device* device, DType type, int64_t rows, int64_t width, int64_t stride, const void* x, float* parts,
    float* to, bool add) {
  const unsigned columns = blocks_for(width, kThreads), count = static_cast<unsigned>(column_parts(rows));
  for_storage(type, [&]<class T>() {
    launch(device, column_parts_kernel<T>, {columns, count}, kThreads, 0, rows, width, stride, static_cast<const T*>(x),
        parts);
  });
  launch_elements<add_column>(device, width, int64_t{count}, width, add, parts, to);
}

void sum_numbers(Device* device, int64_t n, const float* from, float* to) {
  add_all<float, kMostThreads>(device, n, from, to);
}
}  // namespace linnet
