// Reductions of rows and of columns. Both divide their work by shape alone and add the pieces in order, in a second
// launch if one piece does not fill a GPU. A piece of any reduction is a Part.
#include <algorithm>
#include "base/numbers.h"
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/ops/broadcast.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
constexpr int kThreads = 256;
// Blocks that fill any GPU; more pieces would only have to be added again.
constexpr int64_t kEnoughBlocks = 512;
// With few rows, longer ones are cut into pieces of this many elements.
constexpr int64_t kRowPiece = 8192;

// Elements reduced so far: their sum, their maximum, or their maximum and the sum of exp(x - maximum).
struct Part {
  float top, sum;
};

LINNET_DEVICE Part empty_part() { return {-INFINITY, 0}; }

template <Reduction kKind> LINNET_DEVICE void add(Part& part, float x) {
  if (kKind == Reduction::kSum) {
    part.sum += x;
  } else if (kKind == Reduction::kMax) {
    part.top = Larger()(part.top, x);
  } else if (x > part.top || x != x) {
    part.sum = part.sum * expf(part.top - x) + 1;
    part.top = x;
  } else if (x > -INFINITY || part.top != part.top) {  // exp(-inf - -inf) would be NaN
    part.sum += expf(x - part.top);
  }
}

template <Reduction kKind> LINNET_DEVICE Part merged(const Part& a, const Part& b) {
  if (kKind == Reduction::kSum) return {0, a.sum + b.sum};
  const float top = Larger()(a.top, b.top);
  if (kKind == Reduction::kMax) return {top, 0};
  const auto scaled = [&](const Part& part) { return part.top == top ? part.sum : part.sum * expf(part.top - top); };
  return {top, scaled(a) + scaled(b)};
}

template <Reduction kKind> LINNET_DEVICE float finished(const Part& part) {
  if (kKind == Reduction::kSum) return part.sum;
  if (kKind == Reduction::kMax || part.top == INFINITY || part.top == -INFINITY) return part.top;
  return part.top + logf(part.sum);
}

template <Reduction kKind> LINNET_DEVICE Part warp_merged(Part part) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Part other{__shfl_xor_sync(kAllLanes, part.top, step), __shfl_xor_sync(kAllLanes, part.sum, step)};
    part = merged<kKind>(part, other);
  }
  return part;
}

// Writes the result, or a Part for the second launch.
template <Reduction kKind, class To> LINNET_DEVICE void put(To* to, const Part& part) {
  *to = from_float<To>(finished<kKind>(part));
}
template <Reduction kKind> LINNET_DEVICE void put(Part* to, const Part& part) { *to = part; }
template <Reduction kKind, class From> LINNET_DEVICE void take(Part& part, From x) { add<kKind>(part, to_float(x)); }
template <Reduction kKind> LINNET_DEVICE void take(Part& part, const Part& other) { part = merged<kKind>(part, other); }

// A warp for each row of up to some hundred elements.
template <Reduction kKind, class From, class To> __global__ void __launch_bounds__(kThreads)
    short_rows_kernel(int64_t rows, int64_t count, const From* __restrict__ x, To* __restrict__ y) {
  begin_kernel();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  Part part = empty_part();
  for (int64_t i = lane; i < count; i += kWarp) take<kKind>(part, x[row * count + i]);
  part = warp_merged<kKind>(part);
  if (lane == 0) put<kKind>(y + row, part);
}

// A block for each piece of a row: y [rows, pieces].
template <Reduction kKind, class From, class To>
__global__ void __launch_bounds__(kThreads, kKind == Reduction::kLogSumExp ? 6 : 8)
    long_rows_kernel(int64_t count, int64_t piece, int64_t pieces, const From* __restrict__ x, To* __restrict__ y) {
  begin_kernel();
  __shared__ Part parts[kThreads / kWarp];
  const int64_t row = blockIdx.x / pieces, begin = blockIdx.x % pieces * piece, end = min(begin + piece, count);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  x += row * count;
  // Four sums at once, to hide the latency of loads.
  Part four[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) four[k] = empty_part();
  int64_t i = begin + threadIdx.x;
  for (; i + 3 * kThreads < end; i += 4 * kThreads)
#pragma unroll
    for (int k = 0; k < 4; ++k) take<kKind>(four[k], x[i + k * kThreads]);
  for (; i < end; i += kThreads) take<kKind>(four[0], x[i]);
  Part part = merged<kKind>(merged<kKind>(four[0], four[1]), merged<kKind>(four[2], four[3]));
  part = warp_merged<kKind>(part);
  if (lane == 0) parts[warp] = part;
  __syncthreads();
  if (warp > 0) return;
  part = warp_merged<kKind>(lane < kThreads / kWarp ? parts[lane] : empty_part());
  if (lane == 0) put<kKind>(y + blockIdx.x, part);
}

// x [outer, rows, width] -> y [outer, pieces, width]: a block for `piece` rows and blockDim.x * kColumns columns, of
// which there are `across` in a row of blocks.
template <Reduction kKind, int kColumns, bool kAligned, class From, class To>
__global__ void __launch_bounds__(kThreads) columns_kernel(
    unsigned across, int64_t rows, int64_t width, int64_t piece, const From* __restrict__ x, To* __restrict__ y) {
  begin_kernel();
  __shared__ Part parts[kThreads * kColumns];
  const int64_t outer = blockIdx.x / across;
  x += outer * rows * width, y += outer * gridDim.y * width;
  const int64_t column = (static_cast<int64_t>(blockIdx.x % across) * blockDim.x + threadIdx.x) * kColumns;
  const int64_t begin = blockIdx.y * piece, end = min(begin + piece, rows);
  const int columns = static_cast<int>(max(int64_t{0}, min(static_cast<int64_t>(kColumns), width - column)));
  Part own[kColumns];
#pragma unroll
  for (int k = 0; k < kColumns; ++k) own[k] = empty_part();
  if constexpr (kAligned) {
    if (columns > 0)
#pragma unroll 4
      for (int64_t row = begin + threadIdx.y; row < end; row += blockDim.y) {
        float values[kColumns];
        load_vector(x + row * width + column, values);
#pragma unroll
        for (int k = 0; k < kColumns; ++k) add<kKind>(own[k], values[k]);
      }
  } else {
    for (int64_t row = begin + threadIdx.y; row < end; row += blockDim.y)
#pragma unroll
      for (int k = 0; k < kColumns; ++k)
        if (k < columns) take<kKind>(own[k], x[row * width + column + k]);
  }
  // Adds halves of the block's rows of threads until one is left.
  const int location = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int half = static_cast<int>(blockDim.y) / 2; half > 0; half /= 2) {
#pragma unroll
    for (int k = 0; k < kColumns; ++k) parts[k * kThreads + location] = own[k];
    __syncthreads();
    if (static_cast<int>(threadIdx.y) < half)
#pragma unroll
      for (int k = 0; k < kColumns; ++k)
        own[k] = merged<kKind>(own[k], parts[k * kThreads + location + half * static_cast<int>(blockDim.x)]);
    __syncthreads();
  }
  if (threadIdx.y > 0) return;
#pragma unroll
  for (int k = 0; k < kColumns; ++k)
    if (k < columns) put<kKind>(y + blockIdx.y * width + column + k, own[k]);
}

// How a reduction of [rows, count] along its rows, or of [outer, count, rows] along its columns, is divided.
struct Cut {
  int64_t outer;          // 0: along rows
  int64_t rows, count;    // results, and elements of each
  int64_t piece, pieces;  // of `count`
  unsigned lanes = 1;     // of columns: threads along x
  int step = 4;           // and columns of each
};

// Eight bf16 columns per thread if they can be read at once: four are too few bytes in flight.
int step_of(DType from, int64_t width) { return from == DType::kBF16 && width % 8 == 0 ? 8 : 4; }

Cut cut_of(int64_t outer, int64_t rows, int64_t count, DType from) {
  Cut cut{.outer = outer, .rows = rows, .count = count};
  cut.piece = std::max<int64_t>(cut.count, 1);
  if (outer > 0) {
    cut.step = step_of(from, rows);
    while (cut.lanes < kWarp && cut.lanes * cut.step < cut.rows) cut.lanes *= 2;
    const int64_t across = outer * ceil_div(cut.rows, cut.lanes * cut.step);
    // At least eight rows for each thread.
    const int64_t most = ceil_div(cut.count, 8 * (kThreads / cut.lanes));
    const int64_t pieces =
        std::clamp<int64_t>(kEnoughBlocks / std::max<int64_t>(across, 1), 1, std::max<int64_t>(most, 1));
    cut.piece = std::max<int64_t>(ceil_div(cut.count, pieces), 1);
  } else if (cut.count > kRowPiece && cut.rows < kEnoughBlocks) {
    cut.piece = std::max(kRowPiece, ceil_div(cut.count, 4 * kEnoughBlocks));
  }
  cut.pieces = std::max<int64_t>(ceil_div(cut.count, cut.piece), 1);
  return cut;
}

Cut cut_of(const TensorType& in, const Shape& out) {
  const auto [outer, rows, width] = reduction_sizes(out, in.shape);
  return width == 1 ? cut_of(0, outer, rows, in.dtype) : cut_of(outer, width, rows, in.dtype);
}

size_t workspace_of(const Cut& cut) {
  return cut.pieces > 1 ? bytes_for<Part>(std::max<int64_t>(cut.outer, 1) * cut.pieces * cut.rows) : 0;
}

size_t workspace(const KernelQuery& query) { return workspace_of(cut_of(query.in[0], query.out[0].shape)); }

template <Reduction kKind, class From, class To>
void reduce_columns(Device* device, const Cut& cut, int64_t count, int64_t piece, const From* x, To* y) {
  const auto run = [&]<int kColumns, bool kAligned>() {
    const dim3 block(cut.lanes, kThreads / cut.lanes);
    const unsigned across = blocks_for(cut.rows, cut.lanes * kColumns);
    const dim3 grid(
        static_cast<unsigned>(cut.outer) * across, static_cast<unsigned>(std::max<int64_t>(ceil_div(count, piece), 1)));
    launch(device, columns_kernel<kKind, kColumns, kAligned, From, To>, grid, block, 0, across, count, cut.rows, piece,
        x, y);
  };
  const auto aligned_to = [&](int columns) {
    const size_t bytes = bytes_for<From>(columns);
    return cut.rows % columns == 0 && reinterpret_cast<uintptr_t>(x) % bytes == 0;
  };
  if constexpr (std::is_same_v<From, bf16> && kKind == Reduction::kSum)
    if (cut.step == 8 && aligned_to(8)) return run.template operator()<8, true>();
  if constexpr (!std::is_same_v<From, Part>)
    if (aligned_to(4)) return run.template operator()<4, true>();
  run.template operator()<4, false>();
}

template <Reduction kKind, class From, class To>
void reduce_rows(Device* device, const Cut& cut, int64_t count, int64_t piece, const From* x, To* y) {
  const int64_t pieces = std::max<int64_t>(ceil_div(count, piece), 1);
  if (count <= 1024 && pieces == 1)
    launch(device, short_rows_kernel<kKind, From, To>, blocks_for(cut.rows, kThreads / kWarp), kThreads, 0, cut.rows,
        count, x, y);
  else
    launch(device, long_rows_kernel<kKind, From, To>, static_cast<unsigned>(cut.rows * pieces), kThreads, 0, count,
        piece, pieces, x, y);
}

template <Reduction kKind, class From, class To>
void reduce_whole(Device* device, const Cut& cut, int64_t count, int64_t piece, const From* x, To* y) {
  if (cut.outer > 0) reduce_columns<kKind>(device, cut, count, piece, x, y);
  else reduce_rows<kKind>(device, cut, count, piece, x, y);
}

template <Reduction kKind, class From, class To>
void reduce_all(Device* device, const Cut& cut, const From* x, To* y, std::byte* workspace) {
  if (cut.pieces == 1) return reduce_whole<kKind>(device, cut, cut.count, cut.piece, x, y);
  auto* parts = reinterpret_cast<Part*>(workspace);
  reduce_whole<kKind>(device, cut, cut.count, cut.piece, x, parts);
  reduce_whole<kKind>(device, cut, cut.pieces, cut.pieces, static_cast<const Part*>(parts), y);
}

template <Reduction kKind> void run_kind(const KernelArgs& args) {
  const Cut cut = cut_of(args.in[0].type, args.out[0].shape());
  for_storage(args.in[0].type.dtype, [&]<class From>() {
    for_storage(args.out[0].type.dtype, [&]<class To>() {
      reduce_all<kKind>(args.device, cut, args.in[0].as<From>(), args.out[0].as<To>(), args.workspace);
    });
  });
}

void run(const KernelArgs& args) {
  switch (args.attrs<ReduceAttrs>().kind) {
    case Reduction::kSum: return run_kind<Reduction::kSum>(args);
    case Reduction::kMax: return run_kind<Reduction::kMax>(args);
    case Reduction::kLogSumExp: return run_kind<Reduction::kLogSumExp>(args);
  }
}

LINNET_DEVICE void sum_row(int64_t row, int64_t size, int64_t inner, bool reverse, const float* x, float* y) {
  const int64_t first = row / inner * size * inner + row % inner;
  double sum = 0;
  for (int64_t k = 0; k < size; ++k) {
    const int64_t at = first + (reverse ? size - 1 - k : k) * inner;
    sum += static_cast<double>(x[at]);
    y[at] = static_cast<float>(sum);
  }
}

void run_cumsum(const KernelArgs& args) {
  const auto& [axis, reverse] = args.attrs<CumsumAttrs>();
  const Shape& shape = args.in[0].shape();
  if (shape.elements() == 0) return;
  const int64_t inner = shape.elements(axis + 1, shape.rank());
  launch_elements<sum_row>(args.device, shape.elements(0, axis) * inner, shape[axis], inner, reverse,
      args.in[0].as<float>(), args.out[0].as<float>());
}

// The index of the largest element: a block for each row, over integers that order floats like argmax. The order of a
// row: a thread for each element counts those before it, D reads each, for rows short enough for the cache.
struct Later {
  LINNET_DEVICE unsigned long long operator()(unsigned long long a, unsigned long long b) const {
    return a > b ? a : b;
  }
};

// Larger elements have larger keys, NaN the largest; of equal ones (0 and -0 too) the first.
LINNET_DEVICE unsigned long long order_key(float x, int64_t index) {
  const unsigned bits = __float_as_uint(x == 0 ? 0.0f : x);
  const unsigned order = x != x ? ~0u : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(order) << 32 | ~static_cast<unsigned>(index);
}

template <class T> __global__ void __launch_bounds__(kThreads)
    argmax_kernel(int64_t width, const T* __restrict__ x, int32_t* __restrict__ y) {
  begin_kernel();
  x += blockIdx.x * width;
  unsigned long long best = 0;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) best = Later()(best, order_key(to_float(x[j]), j));
  best = block_reduce(best, Later(), 0ull);
  if (threadIdx.x == 0) y[blockIdx.x] = static_cast<int32_t>(~static_cast<unsigned>(best));
}

LINNET_DEVICE bool is_less(float a, float b) { return b != b ? a == a : a < b; }

template <class T> LINNET_DEVICE void place_element(
    int64_t at, int64_t width, int64_t count, bool descending, bool flat, const T* x, int32_t* y) {
  const int64_t first = at / width * width, own = at - first;
  const float value = to_float(x[at]);
  int64_t place = 0;
  for (int64_t j = 0; j < width; ++j) {
    const float other = to_float(x[first + j]);
    const bool before = descending ? is_less(value, other) : is_less(other, value);
    const bool after = descending ? is_less(other, value) : is_less(value, other);
    place += before || (!after && j < own);
  }
  if (place < count) y[at / width * count + place] = static_cast<int32_t>(flat ? at : own);
}

void run_argmax(const KernelArgs& args) {
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch(args.device, argmax_kernel<T>, static_cast<unsigned>(args.out[0].elements()), kThreads, 0,
        args.in[0].shape()[-1], args.in[0].as<T>(), args.out[0].as<int32_t>());
  });
}

void run_argsort(const KernelArgs& args) {
  const auto& attrs = args.attrs<ArgsortAttrs>();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch_elements<place_element<T>>(args.device, args.in[0].elements(), args.in[0].shape()[-1],
        attrs.count_of(args.in[0].shape()), attrs.descending, attrs.flat, args.in[0].as<T>(),
        args.out[0].as<int32_t>());
  });
}

// Softmax: rows in registers, as in engine/kernels/cuda/block_reduce.cuh; longer ones are read again.

// A row of only -inf gives zeros; a NaN or +inf anywhere gives NaN everywhere. y may be x.
template <class T, class Layout> __global__ void __launch_bounds__(kRowBlock)
    softmax_kernel(int64_t rows, int width, const T* x, T* y) {
  begin_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Layout::kRows + Layout::row_in_block();
  if (row >= rows) return;
  float v[Layout::kPieces][Layout::kVector];
  load_row<Layout>(x + row * width, width, -INFINITY, v);
  float top = -INFINITY;
#pragma unroll
  for (auto& piece : v)
#pragma unroll
    for (const float value : piece) top = Larger()(value, top);
  top = Layout::max(top);
  const bool empty = top == -INFINITY;
  float sum = 0;
#pragma unroll
  for (auto& piece : v)
#pragma unroll
    for (float& value : piece) sum += value = empty ? 0 : expf(value - top);
  const float scale = empty ? 0 : 1 / Layout::sum(sum);
#pragma unroll
  for (auto& piece : v)
#pragma unroll
    for (float& value : piece) value *= scale;
  store_row<Layout>(y + row * width, width, v);
}

template <class T> __global__ void __launch_bounds__(kRowBlock) softmax_long_kernel(int64_t width, const T* x, T* y) {
  begin_kernel();
  x += blockIdx.x * width, y += blockIdx.x * width;
  float top = -INFINITY, sum = 0;
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock) top = Larger()(to_float(x[j]), top);
  top = block_max(top);
  const bool empty = top == -INFINITY;
  if (!empty)
    for (int64_t j = threadIdx.x; j < width; j += kRowBlock) sum += expf(to_float(x[j]) - top);
  const float scale = 1 / block_sum(sum);
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock)
    y[j] = from_float<T>(empty ? 0 : expf(to_float(x[j]) - top) * scale);
}

template <class T, class Layout> __global__ void __launch_bounds__(kRowBlock)
    softmax_grad_kernel(int64_t rows, int width, const T* dy, const T* y, T* dx) {
  begin_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Layout::kRows + Layout::row_in_block();
  if (row >= rows) return;
  float d[Layout::kPieces][Layout::kVector], p[Layout::kPieces][Layout::kVector];
  load_row<Layout>(dy + row * width, width, 0, d);
  load_row<Layout>(y + row * width, width, 0, p);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Layout::kPieces; ++i)
#pragma unroll
    for (int j = 0; j < Layout::kVector; ++j) sum += d[i][j] * p[i][j];
  sum = Layout::sum(sum);
#pragma unroll
  for (int i = 0; i < Layout::kPieces; ++i)
#pragma unroll
    for (int j = 0; j < Layout::kVector; ++j) d[i][j] = p[i][j] * (d[i][j] - sum);
  store_row<Layout>(dx + row * width, width, d);
}

template <class T> __global__ void __launch_bounds__(kRowBlock)
    softmax_grad_long_kernel(int64_t width, const T* dy, const T* y, T* dx) {
  begin_kernel();
  dy += blockIdx.x * width, y += blockIdx.x * width, dx += blockIdx.x * width;
  float sum = 0;
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock) sum += to_float(dy[j]) * to_float(y[j]);
  sum = block_sum(sum);
  for (int64_t j = threadIdx.x; j < width; j += kRowBlock)
    dx[j] = from_float<T>(to_float(y[j]) * (to_float(dy[j]) - sum));
}

void run_softmax(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1], rows = args.in[0].rows();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T* x = args.in[0].as<T>();
    T* y = args.out[0].as<T>();
    if (!for_row_layout<T>(width, aligned16(x, y), [&]<class Layout>() {
          launch(
              args.device, softmax_kernel<T, Layout>, blocks_for(rows, Layout::kRows), kRowBlock, 0, rows, width, x, y);
        }))
      launch(args.device, softmax_long_kernel<T>, static_cast<unsigned>(rows), kRowBlock, 0, width, x, y);
  });
}

void run_softmax_grad(const KernelArgs& args) {
  const int64_t width = args.in[0].shape()[-1], rows = args.in[0].rows();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T *dy = args.in[0].as<T>(), *y = args.in[1].as<T>();
    T* dx = args.out[0].as<T>();
    if (!for_row_layout<T>(width, aligned16(dy, y, dx), [&]<class Layout>() {
          launch(args.device, softmax_grad_kernel<T, Layout>, blocks_for(rows, Layout::kRows), kRowBlock, 0, rows,
              width, dy, y, dx);
        }))
      launch(args.device, softmax_grad_long_kernel<T>, static_cast<unsigned>(rows), kRowBlock, 0, width, dy, y, dx);
  });
}
}  // namespace

size_t column_sums_workspace(int64_t rows, int64_t width, DType dtype) {
  return workspace_of(cut_of(1, width, rows, dtype));
}

void column_sums(Device* device, int64_t rows, int64_t width, const TensorView& x, float* sums, std::byte* workspace) {
  for_storage(x.type.dtype, [&]<class T>() {
    reduce_all<Reduction::kSum>(device, cut_of(1, width, rows, x.type.dtype), x.as<T>(), sums, workspace);
  });
}

LINNET_KERNELS(cumsum_cuda, {"rows", run_cumsum})
LINNET_KERNELS(reduce_cuda, {"pieces", run, nullptr, workspace})
LINNET_KERNELS(argmax_cuda, {"rows", run_argmax})
LINNET_KERNELS(argsort_cuda, {"counted", run_argsort})
LINNET_KERNELS(softmax_cuda, {"rows", run_softmax})
LINNET_KERNELS(softmax_grad_cuda, {"rows", run_softmax_grad})
}  // namespace linnet
