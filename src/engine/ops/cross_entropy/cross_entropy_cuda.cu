// The loss of a row by one pass over its logits, then the sum over rows in a fixed order. Its last additions are in
// float64, as on the CPU. Also here: targets without padding, their count, and one-hot rows. A target at or beyond the
// classes, which the CPU's kernels refuse, makes the loss NaN, which ends a run.
#include <algorithm>
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/ops/cross_entropy/cross_entropy.h"

namespace linnet {
namespace {
constexpr int kTotalThreads = 1024;
constexpr int64_t kFewClasses = 32;  // a thread has a row
constexpr int64_t kFewRows = 4 * kTotalThreads;

// Running maximum and sum of exponentials relative to it; a NaN stays.
struct LogSum {
  float top = -INFINITY, sum = 0, total = 0;  // total: of the values, for label smoothing

  LINNET_DEVICE void add(float x) {
    total += x;
    if (x > top) {
      sum = sum * expf(top - x) + 1;
      top = x;
    } else if (x != top || x != -INFINITY) {
      sum += expf(x - top);
    }
  }
  // NaN stays; a row of only -inf gives -inf.
  LINNET_DEVICE float log_sum() const { return top + logf(sum); }
};

struct CrossEntropyCall {
  int64_t rows, classes;
  const int32_t* targets;
  float smoothing;
  float *losses, *lse;
};

template <class T>
LINNET_DEVICE float finish_row(const CrossEntropyCall& call, int64_t row, const LogSum& sum, const T* x) {
  const int32_t target = call.targets[row];
  const float lse = sum.log_sum();
  call.lse[row] = lse;
  float loss = 0;
  if (target >= call.classes) loss = NAN;
  else if (target >= 0)
    loss = lse - (1 - call.smoothing) * to_float(x[target]) -
           (call.smoothing > 0 ? call.smoothing * (sum.total / static_cast<float>(call.classes)) : 0);
  return loss;
}

template <class T> LINNET_DEVICE float thread_row(const CrossEntropyCall& call, int64_t row, const T* logits) {
  const T* x = logits + row * call.classes;
  LogSum sum;
  for (int j = 0; j < call.classes; ++j) sum.add(to_float(x[j]));
  return finish_row(call, row, sum, x);
}

template <class T> LINNET_DEVICE void few_classes(int64_t row, CrossEntropyCall call, const T* logits) {
  call.losses[row] = thread_row(call, row, logits);
}

// In one block: kernel launches bound the loss of a small network.
template <class T> __global__ void __launch_bounds__(kTotalThreads)
    few_rows_kernel(CrossEntropyCall call, const T* __restrict__ logits, float* __restrict__ total) {
  begin_kernel();
  double sum = 0;
  for (int64_t row = threadIdx.x; row < call.rows; row += kTotalThreads)
    sum += static_cast<double>(thread_row(call, row, logits));
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = static_cast<float>(sum);
}

// A block for each row; kVector logits in one access.
template <class T, int kVector> __global__ void __launch_bounds__(kRowBlock)
    many_classes_kernel(CrossEntropyCall call, const T* __restrict__ logits) {
  begin_kernel();
  const T* x = logits + static_cast<int64_t>(blockIdx.x) * call.classes;
  LogSum sum;
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * kVector; j < call.classes; j += kRowBlock * kVector) {
    float v[kVector];
    load_vector(x + j, v);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum.add(v[i]);
  }
  // Each thread's sum is scaled once to the row's maximum.
  const float top = block_max(sum.top);
  LogSum row;
  row.top = top;
  row.sum = block_sum(sum.top == -INFINITY ? sum.sum : sum.sum * expf(sum.top - top));
  row.total = block_sum(sum.total);
  if (threadIdx.x == 0) call.losses[blockIdx.x] = finish_row(call, blockIdx.x, row, x);
}

// dlogits = dloss * (softmax - (1 - s) * onehot(target) - s / V); `dx` may be `logits`.
template <class T, int kVector> LINNET_DEVICE void write_slopes(int64_t at, int64_t vectors, unsigned vectors_per_row,
    int64_t classes, const T* logits, const int32_t* targets, const float* lse, const float* dloss, float smoothing,
    T* dx) {
  const int64_t row = vectors < (int64_t{1} << 32) ? static_cast<unsigned>(at) / vectors_per_row : at / vectors_per_row;
  const int64_t first = (at - row * vectors_per_row) * kVector;
  const int32_t target = targets[row];
  const float scale = *dloss, log_sum = lse[row], spread = smoothing / static_cast<float>(classes);
  float v[kVector];
  load_vector(logits + row * classes + first, v);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float goal = (first + i == target ? 1 - smoothing : 0) + spread;
    v[i] = target < 0 ? 0 : scale * (expf(v[i] - log_sum) - goal);
  }
  store_vector(dx + row * classes + first, v);
}

size_t workspace(const KernelQuery& query) { return bytes_for<float>(query.out[1].shape.elements()); }

bool is_small(int64_t classes, int64_t rows) { return classes <= kFewClasses && rows <= kFewRows; }

void run(const KernelArgs& args) {
  const int64_t rows = args.out[1].elements();
  const CrossEntropyCall call{rows, args.in[0].shape()[-1], args.in[1].as<int32_t>(),
      static_cast<float>(args.attrs<CrossEntropyAttrs>().label_smoothing), reinterpret_cast<float*>(args.workspace),
      args.out[1].as<float>()};
  auto* total = args.out[0].as<float>();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T* x = args.in[0].as<T>();
    if (is_small(call.classes, rows)) launch(args.device, few_rows_kernel<T>, 1, kTotalThreads, 0, call, x, total);
    else if (call.classes <= kFewClasses) launch_elements<few_classes<T>>(args.device, rows, call, x);
    else if (aligned16(x) && call.classes % kWide<T> == 0)
      launch(args.device, many_classes_kernel<T, kWide<T>>, static_cast<unsigned>(rows), kRowBlock, 0, call, x);
    else launch(args.device, many_classes_kernel<T, 1>, static_cast<unsigned>(rows), kRowBlock, 0, call, x);
  });
  if (!is_small(call.classes, rows)) add_all<double>(args.device, rows, call.losses, total);
}

void run_grad(const KernelArgs& args) {
  const int64_t classes = args.in[0].shape()[-1], elements = args.in[0].elements();
  const auto smoothing = static_cast<float>(args.attrs<CrossEntropyAttrs>().label_smoothing);
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T* x = args.in[0].as<T>();
    T* dx = args.out[0].as<T>();
    const auto run_with = [&]<int kVector>() {
      const int64_t vectors = elements / kVector;
      launch_elements<write_slopes<T, kVector>>(args.device, vectors, vectors, static_cast<unsigned>(classes / kVector),
          classes, x, args.in[1].as<int32_t>(), args.in[2].as<float>(), args.in[3].as<float>(), smoothing, dx);
    };
    if (aligned16(x, dx) && classes % kWide<T> == 0) run_with.template operator()<kWide<T>>();
    else run_with.template operator()<1>();
  });
}

constexpr int kCountThreads = 1024;
constexpr int64_t kCountPiece = 16 * kCountThreads;

LINNET_DEVICE void mask_target(int64_t i, int64_t length, const int32_t* targets, const int32_t* lengths, int32_t* to) {
  const auto [row, location] = divided(i, length);
  to[i] = location < lengths[row] ? targets[i] : -1;
}

void run_mask(const KernelArgs& args) {
  launch_elements<mask_target>(args.device, args.out[0].elements(), args.in[0].shape()[1], args.in[0].as<int32_t>(),
      args.in[1].as<int32_t>(), args.out[0].as<int32_t>());
}

// Counts the targets of each piece that are not negative.
template <class To> __global__ void __launch_bounds__(kCountThreads)
    count_kernel(int64_t count, const int32_t* __restrict__ targets, To* __restrict__ to) {
  begin_kernel();
  int32_t found = 0;
  const int64_t begin = blockIdx.x * kCountPiece, end = min(begin + kCountPiece, count);
  for (int64_t i = begin + threadIdx.x; i < end; i += kCountThreads) found += targets[i] >= 0;
  found = block_sum(found);
  if (threadIdx.x == 0) to[blockIdx.x] = static_cast<To>(found);
}

int64_t pieces_of(int64_t count) { return std::max<int64_t>((count + kCountPiece - 1) / kCountPiece, 1); }

size_t count_workspace(const KernelQuery& query) {
  const int64_t pieces = pieces_of(query.in[0].shape.elements());
  return pieces > 1 ? bytes_for<int32_t>(pieces) : 0;
}

void run_count(const KernelArgs& args) {
  const int64_t count = args.in[0].elements(), pieces = pieces_of(count);
  const int32_t* targets = args.in[0].as<int32_t>();
  auto* counts = reinterpret_cast<int32_t*>(args.workspace);
  float* to = args.out[0].as<float>();
  if (pieces == 1) return launch(args.device, count_kernel<float>, 1, kCountThreads, 0, count, targets, to);
  launch(args.device, count_kernel<int32_t>, static_cast<unsigned>(pieces), kCountThreads, 0, count, targets, counts);
  add_all<int32_t>(args.device, pieces, counts, to);
}

template <class T> LINNET_DEVICE void write_one_hot(int64_t i, int64_t classes, const int32_t* targets, T* to) {
  const auto [row, location] = divided(i, classes);
  to[i] = from_float<T>(targets[row] == location ? 1 : 0);
}

void run_one_hot(const KernelArgs& args) {
  for_storage(args.out[0].type.dtype, [&]<class T>() {
    launch_elements<write_one_hot<T>>(
        args.device, args.out[0].elements(), args.out[0].shape()[-1], args.in[0].as<int32_t>(), args.out[0].as<T>());
  });
}

bool counts_in_f32(const KernelQuery& query) { return query.out[0].dtype == DType::kF32; }

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

LINNET_KERNELS(cross_entropy_cuda, {"rows", run, nullptr, workspace})
LINNET_KERNELS(cross_entropy_grad_cuda, {"elements", run_grad})
LINNET_KERNELS(mask_targets_cuda, {"elements", run_mask})
LINNET_KERNELS(count_targets_cuda, {"pieces", run_count, counts_in_f32, count_workspace})
LINNET_KERNELS(one_hot_cuda, {"elements", run_one_hot})

void softmax_loss(Device* device, const SoftmaxLoss& l) {
  for_storage(l.type, [&]<class T>() {
    const unsigned threads = l.width >= 8192 ? kMostThreads : l.width > 512 ? kThreads : kWarp * 2;
    const auto bytes = bytes_for<T>(l.stride);
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
