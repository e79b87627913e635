// Convolutions of any shape as products of matrices that are never stored: tiles of 64 x 64 results with operands
// gathered from images and filters, in fp32. cuDNN's kernels (conv2d_cuda.cpp) are preferred.
//
//   forward          y[m, o]  = sum over k of X[m, k] W[o, k]        m = (image, row, column) of y, k = (r, s, c)
//   input gradient   dx[m, c] = sum over k of DY[m, k] W'[c, k]      m = (image, row, column) of x, k = (r, s, o)
//   weight gradient  dw[o, k] = sum over m of DY[o, m] X'[k, m]      m and k as forward
//
// The last sum is long: its length alone divides it into parts, which are added in order.
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/ops/conv2d/conv2d.h"

namespace linnet {
namespace {
constexpr int kThreads = 256, kTile = 64, kDepth = 16;

struct IntSizes {
  int images, height, width, channels, filters, rows, columns, out_height, out_width, stride, padding, dilation;
};

// The location of a pixel or a result; below 0: outside.
struct Location {
  int image, row, column;
  LINNET_DEVICE Location(int at, int height, int width)
      : image(at / (height * width)), row(at / width - image * height), column(at - at / width * width) {}
};
struct Tap {  // k = (r * columns + s) * depth + inner
  int r, s, inner;
  LINNET_DEVICE Tap(int k, int columns, int depth)
      : r(k / depth / columns), s(k / depth - r * columns), inner(k - k / depth * depth) {}
};

// A problem: `height` x `width` results, sums of length `depth`; a(row, k) and b(column, k) are its operands. kARows,
// kBRows: rows and columns, not k, are contiguous.
template <class T, class W> struct Forward {
  static constexpr bool kARows = false, kBRows = false;
  IntSizes s;
  const T* x;
  const W* weight;
  T* y;
  int height, width, depth;
  LINNET_DEVICE float a(int m, int k) const {
    const Location at(m, s.out_height, s.out_width);
    const Tap tap(k, s.columns, s.channels);
    const int row = at.row * s.stride + tap.r * s.dilation - s.padding;
    const int column = at.column * s.stride + tap.s * s.dilation - s.padding;
    if (row < 0 || row >= s.height || column < 0 || column >= s.width) return 0;
    return to_float(x[((static_cast<int64_t>(at.image) * s.height + row) * s.width + column) * s.channels + tap.inner]);
  }
  LINNET_DEVICE float b(int o, int k) const { return to_float(weight[static_cast<int64_t>(o) * depth + k]); }
  LINNET_DEVICE void store(int m, int o, int, float sum) const {
    y[static_cast<int64_t>(m) * width + o] = from_float<T>(sum);
  }
};

template <class T, class W> struct InputGradient {
  static constexpr bool kARows = false, kBRows = true;
  IntSizes s;
  const T* dy;
  const W* weight;
  T* dx;
  int height, width, depth;
  LINNET_DEVICE float a(int m, int k) const {
    const Location at(m, s.height, s.width);
    const Tap tap(k, s.columns, s.filters);
    const int row = at.row + s.padding - tap.r * s.dilation, column = at.column + s.padding - tap.s * s.dilation;
    if (row < 0 || column < 0 || row % s.stride != 0 || column % s.stride != 0) return 0;
    const int i = row / s.stride, j = column / s.stride;
    if (i >= s.out_height || j >= s.out_width) return 0;
    return to_float(
        dy[((static_cast<int64_t>(at.image) * s.out_height + i) * s.out_width + j) * s.filters + tap.inner]);
  }
  LINNET_DEVICE float b(int c, int k) const {
    const Tap tap(k, s.columns, s.filters);
    return to_float(weight[((static_cast<int64_t>(tap.inner) * s.rows + tap.r) * s.columns + tap.s) * s.channels + c]);
  }
  LINNET_DEVICE void store(int m, int c, int, float sum) const {
    dx[static_cast<int64_t>(m) * width + c] = from_float<T>(sum);
  }
};

template <class T> struct WeightGradient {
  static constexpr bool kARows = true, kBRows = true;
  IntSizes s;
  const T *dy, *x;
  float* parts;  // [parts, filters, rows * columns * channels]
  int height, width, depth;
  LINNET_DEVICE float a(int o, int m) const { return to_float(dy[static_cast<int64_t>(m) * s.filters + o]); }
  LINNET_DEVICE float b(int k, int m) const { return Forward<T, float>{s, x, nullptr, nullptr, 0, 0, 0}.a(m, k); }
  LINNET_DEVICE void store(int o, int k, int part, float sum) const {
    parts[(static_cast<int64_t>(part) * height + o) * width + k] = sum;
  }
};

// Block (tile of rows, tile of columns, part of the sum).
template <class Problem> __global__ void __launch_bounds__(kThreads)
    conv2d_kernel(Problem problem, int depth_per_part) {
  begin_kernel();
  constexpr int kRow = kTile + 4;  // 4 more: rows begin in other banks
  __shared__ float4 tiles[2 * kDepth * kRow / 4];
  auto* a = reinterpret_cast<float(*)[kRow]>(tiles);
  auto* b = a + kDepth;
  const int thread = static_cast<int>(threadIdx.x), first_row = static_cast<int>(blockIdx.x) * kTile,
            first_column = static_cast<int>(blockIdx.y) * kTile, part = static_cast<int>(blockIdx.z);
  const int begin = part * depth_per_part, end = min(problem.depth, begin + depth_per_part);
  const int row = thread / 16 * 4, column = thread % 16 * 4;  // of this thread's 4 x 4 results
  float sums[4][4] = {};
  for (int top = begin; top < end; top += kDepth) {
#pragma unroll
    for (int i = 0; i < kTile * kDepth / kThreads; ++i) {
      const int at = i * kThreads + thread;
      const int ak = Problem::kARows ? at / kTile : at % kDepth, m = Problem::kARows ? at % kTile : at / kDepth;
      const int bk = Problem::kBRows ? at / kTile : at % kDepth, n = Problem::kBRows ? at % kTile : at / kDepth;
      a[ak][m] = first_row + m < problem.height && top + ak < end ? problem.a(first_row + m, top + ak) : 0;
      b[bk][n] = first_column + n < problem.width && top + bk < end ? problem.b(first_column + n, top + bk) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float u[4], v[4];
      load_vector(&a[k][row], u);
      load_vector(&b[k][column], v);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += u[i] * v[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (first_row + row + i < problem.height && first_column + column + j < problem.width)
        problem.store(first_row + row + i, first_column + column + j, part, sums[i][j]);
}

template <class Problem> void run_problem(
    Device* device, Problem problem, const TensorView& result, int64_t width, int64_t depth, int64_t parts = 1) {
  problem.width = static_cast<int>(width), problem.depth = static_cast<int>(depth);
  problem.height = static_cast<int>(result.elements() / std::max<int64_t>(width, 1));
  const dim3 grid(blocks_for(problem.height, kTile), blocks_for(width, kTile), static_cast<unsigned>(parts));
  const int64_t per_part = (depth + parts - 1) / parts;
  launch(device, conv2d_kernel<Problem>, grid, kThreads, 0, problem, static_cast<int>(std::max<int64_t>(per_part, 1)));
}

template <ConvolutionPass pass> IntSizes sizes_of(const KernelArgs& args) {
  const ConvolutionSizes s = conv2d_sizes<pass>(args);
  const auto size = [](int64_t n) { return static_cast<int>(n); };
  return {size(s.images), size(s.height), size(s.width), size(s.channels), size(s.filters), size(s.rows),
      size(s.columns), size(s.out_height), size(s.out_width), size(s.stride), size(s.padding), size(s.dilation)};
}

// Forward, and the input's gradient: of images and filters.
template <ConvolutionPass pass, template <class, class> class Problem> void run(const KernelArgs& args) {
  const IntSizes s = sizes_of<pass>(args);
  const bool forward = pass == ConvolutionPass::kForward;
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    for_storage(args.in[1].type.dtype, [&]<class W>() {
      const Problem<T, W> problem{s, args.in[0].as<T>(), args.in[1].as<W>(), args.out[0].as<T>(), 0, 0, 0};
      run_problem(args.device, problem, args.out[0], forward ? s.filters : s.channels,
          int64_t{s.rows} * s.columns * (forward ? s.channels : s.filters));
    });
  });
}

int64_t part_count(int64_t depth) { return std::clamp<int64_t>(depth / 512, 1, 64); }

template <int64_t (*kParts)(int64_t)> size_t weight_grad_workspace(const KernelQuery& query) {
  return bytes_for<float>(kParts(query.in[1].shape.elements(0, 3)) * query.out[0].shape.elements());
}

void run_weight_grad(const KernelArgs& args) {
  const TensorView &x = args.in[0], &dy = args.in[1], &dweight = args.out[0];
  const IntSizes sizes = sizes_of<ConvolutionPass::kWeightGradient>(args);
  const int64_t depth = dy.shape().elements(0, 3), parts = part_count(depth), elements = dweight.elements();
  auto* sums = reinterpret_cast<float*>(args.workspace);
  for_storage(x.type.dtype, [&]<class T>() {
    run_problem(args.device, WeightGradient<T>{sizes, dy.as<T>(), x.as<T>(), sums, 0, 0, 0}, dweight,
        elements / std::max(sizes.filters, 1), depth, parts);
  });
  add_parts(args.device, parts, elements, elements, sums, dweight.as<float>(), nullptr);
}

// Grouped, above all depthwise, convolutions: each result is a short sum by one thread. An element of the weight
// gradient is a sum over all pixels; a warp sums those of 32 neighboring filters, for whole memory lines. In fp32.

// Offset of a pixel's first channel, below 0 outside the image.
LINNET_DEVICE int64_t pixel(int64_t image, int64_t row, int64_t column, int64_t height, int64_t width, int64_t depth) {
  if (row < 0 || row >= height || column < 0 || column >= width) return -1;
  return ((image * height + row) * width + column) * depth;
}

struct Index {  // of [N, H, W, C]
  int64_t image, row, column, channel;
  LINNET_DEVICE Index(int64_t at, int64_t height, int64_t width, int64_t channels) {
    const Divided by_channel = divided(at, channels), by_column = divided(by_channel.quotient, width),
                  by_row = divided(by_column.quotient, height);
    image = by_row.quotient, row = by_row.remainder, column = by_column.remainder, channel = by_channel.remainder;
  }
};

template <class T, class W>
LINNET_DEVICE void grouped_forward(int64_t at, ConvolutionSizes s, const T* x, const W* weight, T* y) {
  const Index to(at, s.out_height, s.out_width, s.filters);
  const int64_t depth = s.channels / s.groups, first = to.channel / (s.filters / s.groups) * depth;
  float sum = 0;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.columns; ++c) {
      const int64_t from = pixel(to.image, to.row * s.stride + r * s.dilation - s.padding,
          to.column * s.stride + c * s.dilation - s.padding, s.height, s.width, s.channels);
      if (from < 0) continue;
      const W* w = weight + ((to.channel * s.rows + r) * s.columns + c) * depth;
      for (int64_t i = 0; i < depth; ++i) sum += to_float(x[from + first + i]) * to_float(w[i]);
    }
  y[at] = from_float<T>(sum);
}

template <class T, class W>
LINNET_DEVICE void grouped_input_gradient(int64_t at, ConvolutionSizes s, const T* dy, const W* weight, T* dx) {
  const Index to(at, s.height, s.width, s.channels);
  const int64_t depth = s.channels / s.groups, filters = s.filters / s.groups, group = to.channel / depth;
  float sum = 0;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.columns; ++c) {
      const int64_t row = to.row + s.padding - r * s.dilation, column = to.column + s.padding - c * s.dilation;
      if (row < 0 || column < 0 || row % s.stride != 0 || column % s.stride != 0) continue;
      const int64_t from = pixel(to.image, row / s.stride, column / s.stride, s.out_height, s.out_width, s.filters);
      if (from < 0) continue;
      for (int64_t o = group * filters; o < (group + 1) * filters; ++o)
        sum += to_float(dy[from + o]) *
               to_float(weight[((o * s.rows + r) * s.columns + c) * depth + to.channel - group * depth]);
    }
  dx[at] = from_float<T>(sum);
}

constexpr int kPixelsAtOnce = kThreads / kWarp;
constexpr int64_t kLeastPiece = 256, kMostPieces = 64;

int64_t piece_of(int64_t pixels) { return std::max((pixels + kMostPieces - 1) / kMostPieces, kLeastPiece); }
int64_t pieces_of(int64_t pixels) { return (pixels + piece_of(pixels) - 1) / piece_of(pixels); }

// Block: 32 filters, a tap of their weights and a piece of the pixels -> parts [pieces, O, R, S, C / groups].
template <class T> __global__ void __launch_bounds__(kThreads)
    grouped_weight_gradient(ConvolutionSizes s, int64_t pixels, int64_t piece, const T* x, const T* dy, float* parts) {
  begin_kernel();
  __shared__ float of_warps[kPixelsAtOnce][kWarp];
  const int64_t depth = s.channels / s.groups, filter = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const Index at(blockIdx.y, s.rows, s.columns, depth);
  const int64_t channel = filter / (s.filters / s.groups) * depth + at.channel;
  const int64_t first = blockIdx.z * piece, end = min(first + piece, pixels);
  float sum = 0;
  if (filter < s.filters)
    for (int64_t i = first + threadIdx.y; i < end; i += kPixelsAtOnce) {
      const Index from(i, s.out_height, s.out_width, 1);
      const int64_t location = pixel(from.image, from.row * s.stride + at.row * s.dilation - s.padding,
          from.column * s.stride + at.column * s.dilation - s.padding, s.height, s.width, s.channels);
      if (location >= 0) sum += to_float(dy[i * s.filters + filter]) * to_float(x[location + channel]);
    }
  of_warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || filter >= s.filters) return;
  for (int i = 1; i < kPixelsAtOnce; ++i) sum += of_warps[i][threadIdx.x];
  const int64_t places = s.rows * s.columns * depth;
  parts[(blockIdx.z * s.filters + filter) * places + blockIdx.y] = sum;
}

// Forward, and the input's gradient: of images and filters.
template <ConvolutionPass pass> void run_groups(const KernelArgs& args) {
  const ConvolutionSizes s = conv2d_sizes<pass>(args);
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    for_storage(args.in[1].type.dtype, [&]<class W>() {
      constexpr auto kEach = pass == ConvolutionPass::kForward ? grouped_forward<T, W> : grouped_input_gradient<T, W>;
      launch_elements<kEach>(
          args.device, args.out[0].elements(), s, args.in[0].as<T>(), args.in[1].as<W>(), args.out[0].as<T>());
    });
  });
}

void run_groups_weight_grad(const KernelArgs& args) {
  const TensorView &x = args.in[0], &dy = args.in[1], &dweight = args.out[0];
  const ConvolutionSizes s = conv2d_sizes<ConvolutionPass::kWeightGradient>(args);
  const int64_t pixels = dy.shape().elements(0, 3), pieces = pieces_of(pixels), elements = dweight.elements();
  auto* parts = reinterpret_cast<float*>(args.workspace);
  const dim3 grid(blocks_for(s.filters, kWarp), static_cast<unsigned>(elements / std::max<int64_t>(s.filters, 1)),
      static_cast<unsigned>(pieces));
  for_storage(x.type.dtype, [&]<class T>() {
    launch(args.device, grouped_weight_gradient<T>, grid, dim3(kWarp, kPixelsAtOnce), 0, s, pixels, piece_of(pixels),
        x.as<T>(), dy.as<T>(), parts);
  });
  add_parts(args.device, pieces, elements, elements, parts, dweight.as<float>(), nullptr);
}

// Elements are counted in 32 bits; a grid has at most 2^31 blocks, and 65535 along y.
bool supports_groups(const KernelQuery& query) {
  if (query.attrs<Conv2dAttrs>().is_fused()) return false;
  for (const auto& types : {query.in, query.out})
    for (const TensorType& type : types)
      if (type.shape.elements() >= int64_t{1} << 31) return false;
  return true;
}
bool supports_groups_weight_grad(const KernelQuery& query) {
  const Shape& weight = query.out[0].shape;
  return supports_groups(query) && weight.elements() / std::max<int64_t>(weight[0], 1) <= 65535;
}
bool supports(const KernelQuery& query) { return query.attrs<Conv2dAttrs>().groups == 1 && supports_groups(query); }
}  // namespace

LINNET_KERNELS(conv2d_cuda, {"tiles", run<ConvolutionPass::kForward, Forward>, supports},
    {"groups", run_groups<ConvolutionPass::kForward>, supports_groups})
LINNET_KERNELS(conv2d_input_grad_cuda, {"tiles", run<ConvolutionPass::kInputGradient, InputGradient>, supports},
    {"groups", run_groups<ConvolutionPass::kInputGradient>, supports_groups})
LINNET_KERNELS(conv2d_weight_grad_cuda, {"tiles", run_weight_grad, supports, weight_grad_workspace<part_count>},
    {"groups", run_groups_weight_grad, supports_groups_weight_grad, weight_grad_workspace<pieces_of>})
}  // namespace linnet
