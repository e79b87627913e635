// Layer and RMS normalization of rows, with or without the residual stream: one pass over memory.
//
//   sum = x + dropout(f) (or x),  y = (sum - mean) * rstd * weight + bias
//
// sum and y may overwrite x and f: the thread that has read an element writes it.
#include <algorithm>
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/cuda/philox.cuh"
#include "engine/ops/norm/norm.h"

namespace linnet {
namespace {
template <class T> struct NormForward {
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

// Drops out of N neighbors from element `index` of a sample on; N divides `index` and 8.
template <int N> LINNET_DEVICE void drop_out(const DropoutMask& mask, int64_t index, unsigned sample, float (&x)[N]) {
  static_assert(N == 1 || N == 4 || N == 8);
  const uint4 words = philox({static_cast<unsigned>(index / 8), kDenseDropout, 0, sample}, mask.key);
  if constexpr (N == 1) {
    x[0] = philox_value(words, static_cast<int>(index % 8)) >= mask.threshold ? x[0] * mask.scale : 0;
  } else {
    const bool second = N == 4 && index % 8 != 0;
    const unsigned w[4] = {second ? words.z : words.x, second ? words.w : words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = (w[i / 2] >> (16 * (i % 2)) & 0xffff) >= mask.threshold ? x[i] * mask.scale : 0;
  }
}

// A vector of a norm's parameters, perhaps unaligned.
template <int N> LINNET_DEVICE void load_parameters(const float* location, bool wide, float (&to)[N]) {
  if (wide) return load_vector(location, to);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = location[i];
}

// Blocks per multiprocessor that leave a row's elements in registers.
template <class Layout> constexpr int kForwardBlocks =
    Layout::kVector > 1 && Layout::kVector* Layout::kPieces <= 16 ? 4 : 2;

template <class T, class Layout, bool kResidual> __global__ void __launch_bounds__(kRowBlock, kForwardBlocks<Layout>)
    norm_forward_kernel(NormForward<T> call) {
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
      // The sum is normalized as it is stored, which the gradient will read.
      float add[kVector];
      load_vector(f + column, add);
      if (drops) drop_out(mask, start + column, sample, add);
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

// For rows too long for a block's registers, which are read again.
template <class T, bool kResidual> __global__ void __launch_bounds__(kRowBlock)
    norm_forward_long_kernel(NormForward<T> call) {
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
    call.y[row * width + j] = from_float<T>(
        (to_float(v[j]) - mean) * rstd * (call.weight ? call.weight[j] : 1) + (call.bias ? call.bias[j] : 0));
  if (threadIdx.x == 0) call.mean[row] = mean, call.rstd[row] = rstd;
}

// The gradient of a norm (engine/kernels/norm/norm.h), one pass over memory. Every block sums dweight and dbias over
// its own rows; a second kernel adds the blocks' sums in order, of this norm or of all (kNormSums). The number of rows
// alone decides how they are divided. dx and df may be dy, sum or dsum: the thread that has read an element writes it.
template <class T> struct NormBackward {
  int64_t rows = 0, width = 0;
  const T *dy = nullptr, *sum = nullptr, *dsum = nullptr;  // dsum, weight: null when there is none
  const float *weight = nullptr, *mean = nullptr, *rstd = nullptr;
  bool centered = true, wide_parameters = true;
  DropoutSite dropout;
  unsigned rows_per_sample = 1;
  T *dx = nullptr, *df = nullptr;              // df: with dropout only
  float *dweight = nullptr, *dbias = nullptr;  // the first block's sums; null: none
  int64_t rows_per_part = 0, part_stride = 0;  // from one block's sums to the next one's

  LINNET_DEVICE float* part_of(float* sums) const { return sums ? sums + blockIdx.x * part_stride : nullptr; }
};

// Adds the sums of a block's warps, for different rows, in order. Every thread calls it.
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

// Stores a block's sums, whose columns belong to different threads; `to` may be unaligned.
template <class Layout>
LINNET_DEVICE void store_parts(int width, const float (&sums)[Layout::kPieces][Layout::kVector], float* to) {
#pragma unroll
  for (int i = 0; i < Layout::kPieces; ++i) {
    if (Layout::column(i) >= width) continue;
#pragma unroll
    for (int j = 0; j < Layout::kVector; ++j) to[Layout::column(i) + j] = sums[i][j];
  }
}

template <class Layout>
LINNET_DEVICE void write_part(int width, const float (&sums)[Layout::kPieces][Layout::kVector], float* to) {
  if constexpr (Layout::kThreads == kWarp) add_warps<Layout>(width, sums, to);
  else store_parts<Layout>(width, sums, to);
}

// Blocks per multiprocessor: two if half of its registers suffice.
template <class Layout> constexpr int kNormBlocks =
    Layout::kVector > 1 && Layout::kVector* Layout::kPieces <= 24 ? 2 : 1;

template <class T, class Layout, bool kResidual> __global__ void __launch_bounds__(kRowBlock, kNormBlocks<Layout>)
    norm_backward_kernel(NormBackward<T> call) {
  begin_kernel();
  constexpr int kVector = Layout::kVector, kPieces = Layout::kPieces;
  const int width = static_cast<int>(call.width);
  const int64_t first = blockIdx.x * call.rows_per_part, end = min(call.rows, first + call.rows_per_part);
  const bool drops = kResidual && call.dropout.random != nullptr;
  const DropoutMask mask = drops ? call.dropout.mask() : DropoutMask{};
  float dweight[kPieces][kVector] = {}, dbias[kPieces][kVector] = {};
  for (int64_t row = first + Layout::row_in_block(); row < end; row += Layout::kRows) {
    // Loads the row before using any of it. Sums are read twice, then from the nearest cache, to save registers.
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
      drop_out(mask, start + column, sample, d);
      store_vector(call.df + row * width + column, d);
    }
  }
  if (call.dweight) write_part<Layout>(width, dweight, call.part_of(call.dweight));
  if (call.dbias) write_part<Layout>(width, dbias, call.part_of(call.dbias));
}

// For rows too long for a block's registers: they are read again, and the block's sums are kept in memory.
template <class T, bool kResidual> __global__ void __launch_bounds__(kRowBlock)
    norm_backward_long_kernel(NormBackward<T> call) {
  begin_kernel();
  const int64_t width = call.width;
  const int64_t first = blockIdx.x * call.rows_per_part, end = min(call.rows, first + call.rows_per_part);
  const bool drops = kResidual && call.dropout.random != nullptr;
  const DropoutMask mask = drops ? call.dropout.mask() : DropoutMask{};
  float *dweight = call.part_of(call.dweight), *dbias = call.part_of(call.dbias);
  for (int64_t row = first; row < end; ++row) {
    const T *dy = call.dy + row * width, *sum = call.sum + row * width;
    const float mean = call.mean[row], rstd = call.rstd[row];
    float sum_g = 0, sum_gn = 0;
    for (int64_t j = threadIdx.x; j < width; j += kRowBlock) {
      const float d = to_float(dy[j]), normal = (to_float(sum[j]) - mean) * rstd;
      if (dweight) dweight[j] = row == first ? d * normal : dweight[j] + d * normal;
      if (dbias) dbias[j] = row == first ? d : dbias[j] + d;
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

template <class Call> void set_dropout(Call& call, const NormDropout& dropout) {
  if (dropout.probability == 0) return;
  call.dropout = dropout_site_of(dropout.random, dropout.site, dropout.probability);
  call.rows_per_sample = static_cast<unsigned>(dropout.rows_per_sample);
}

template <bool kResidual> void run(const KernelArgs& args) {
  const NormOperands<kResidual> o(args);
  for_storage(o.y.type.dtype, [&]<class T>() {
    NormForward<T> call;
    call.rows = o.rows, call.width = o.width, call.x = o.x.template as<T>(), call.f = elements_of<T>(o.f);
    call.weight = elements_of<float>(o.weight), call.bias = elements_of<float>(o.bias);
    call.epsilon = static_cast<float>(o.attrs.norm.epsilon), call.centered = o.attrs.norm.centered;
    set_dropout(call, o.dropout);
    call.sum = elements_of<T>(o.sum), call.y = o.y.template as<T>();
    call.mean = o.mean.template as<float>(), call.rstd = o.rstd.template as<float>();
    call.wide_parameters = aligned16(call.weight, call.bias);
    if (!for_row_layout<T>(call.width, aligned16(call.x, call.f, call.sum, call.y), [&]<class Layout>() {
          launch(args.device, norm_forward_kernel<T, Layout, kResidual>, blocks_for(call.rows, Layout::kRows),
              kRowBlock, 0, call);
        }))
      launch(args.device, norm_forward_long_kernel<T, kResidual>, static_cast<unsigned>(call.rows), kRowBlock, 0, call);
  });
}

template <bool kResidual> size_t grad_workspace(const KernelQuery& query) {
  const LayerNormAttrs norm = norm_attrs<kResidual>(query).norm;
  if (norm.in_parts) return 0;
  const int64_t parts = norm_part_count(query.in[3].shape.elements());
  return norm.parameters() * static_cast<size_t>(parts * query.in[0].shape[-1]) * sizeof(float);
}

template <bool kResidual> void run_grad(const KernelArgs& args) {
  const NormGradOperands<kResidual> o(args);
  for_storage(o.dx.type.dtype, [&]<class T>() {
    NormBackward<T> call;
    call.rows = o.rows, call.width = o.width, call.centered = o.attrs.norm.centered;
    call.dy = o.dy.template as<T>(), call.sum = o.x.template as<T>(), call.dsum = elements_of<T>(o.dsum);
    call.weight = elements_of<float>(o.weight);
    call.mean = o.mean.template as<float>(), call.rstd = o.rstd.template as<float>();
    set_dropout(call, o.dropout);
    call.dx = o.dx.template as<T>(), call.df = elements_of<T>(o.df);
    float* const sums = o.parts ? o.parts->template as<float>() : reinterpret_cast<float*>(args.workspace);
    const int64_t before_bias = o.attrs.norm.has_weight ? call.width : 0;
    if (o.attrs.norm.has_weight) call.dweight = sums;
    if (o.attrs.norm.has_bias) call.dbias = sums + before_bias;
    call.rows_per_part = norm_rows_per_part(call.rows);
    call.part_stride = static_cast<int64_t>(o.attrs.norm.parameters()) * call.width;
    call.wide_parameters = aligned16(call.weight);
    const auto parts = static_cast<unsigned>(norm_part_count(call.rows));
    const bool aligned = aligned16(call.dy, call.sum, call.dsum, call.dx, call.df);
    if (!for_row_layout<T>(call.width, aligned, [&]<class Layout>() {
          launch(args.device, norm_backward_kernel<T, Layout, kResidual>, parts, kRowBlock, 0, call);
        }))
      launch(args.device, norm_backward_long_kernel<T, kResidual>, parts, kRowBlock, 0, call);
    if (o.dweight || o.dbias)
      add_parts(args.device, parts, before_bias, call.part_stride, sums, elements_of<float>(o.dweight),
          elements_of<float>(o.dbias));
  });
}

// Of several norms: parts [count, parameters, width].
struct NormParts {
  const float* from;
  float* to[2];
  int width, stride;  // stride: of all parameters
  int count;
  unsigned first_block;
};
constexpr int kNormsAtOnce = 64;  // 3 of the 4 KB that a kernel's arguments may have
struct AllNormParts {
  NormParts of[kNormsAtOnce];
  int count = 0;
  unsigned blocks = 0;
};

__global__ void __launch_bounds__(kPartSlices* kWarp) norm_sums_kernel(AllNormParts all) {
  begin_kernel();
  int i = 0;
  while (i + 1 < all.count && blockIdx.x >= all.of[i + 1].first_block) ++i;
  const NormParts& norm = all.of[i];
  add_block_parts(
      blockIdx.x - norm.first_block, norm.count, norm.width, norm.stride, norm.from, norm.to[0], norm.to[1]);
}

void run_sums(const KernelArgs& args) {
  AllNormParts all;
  size_t next = 0;
  for (size_t i = 0; i < args.in.size(); ++i) {
    const Shape& shape = args.in[i].shape();
    NormParts& norm = all.of[all.count++] = {};
    norm.from = args.in[i].as<float>();
    for (int64_t k = 0; k < shape[1]; ++k) norm.to[k] = args.out[next++].as<float>();
    norm.width = static_cast<int>(shape[2]), norm.stride = static_cast<int>(shape[1] * shape[2]);
    norm.count = static_cast<int>(shape[0]), norm.first_block = all.blocks;
    all.blocks += blocks_for(norm.stride, kWarp);
    if (all.count < kNormsAtOnce && i + 1 < args.in.size()) continue;
    launch(args.device, norm_sums_kernel, all.blocks, kPartSlices * kWarp, 0, all);
    all = {};
  }
}

bool supports_sums(const KernelQuery& query) {
  return all_f32(query) && std::ranges::all_of(query.in, [](const TensorType& parts) { return parts.shape[1] <= 2; });
}
}  // namespace

LINNET_KERNELS(layer_norm_cuda, {"rows", run<false>})
LINNET_KERNELS(layer_norm_grad_cuda, {"rows", run_grad<false>, nullptr, grad_workspace<false>})
LINNET_KERNELS(norm_sums_cuda, {"columns", run_sums, supports_sums})
LINNET_KERNELS(residual_norm_cuda, {"rows", run<true>})
LINNET_KERNELS(residual_norm_grad_cuda, {"rows", run_grad<true>, nullptr, grad_workspace<true>})
}  // namespace linnet
