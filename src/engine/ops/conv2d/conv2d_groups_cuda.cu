// Convolutions in groups, depthwise ones above all: each result is a short sum, which one thread computes. An element
// of the weight gradient is a sum over all pixels, of which a warp adds up those of 32 neighboring filters, so that
// all of a line of memory is used at once. In fp32 throughout.
#include <algorithm>
#include "engine/kernels/cuda/add_parts.cuh"
#include "engine/kernels/cuda/index.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/conv2d/conv2d.h"

namespace linnet {
namespace {

constexpr int kThreads = 256;

// Offset of a pixel's first channel, below 0 outside the image.
LINNET_DEVICE int64_t pixel(int64_t image, int64_t row, int64_t column, int64_t height, int64_t width, int64_t depth) {
  if (row < 0 || row >= height || column < 0 || column >= width) return -1;
  return ((image * height + row) * width + column) * depth;
}

// Of [N, H, W, C].
struct Index {
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

// Block: 32 filters, a place of their weights [O, R, S, C / groups] and a piece of the pixels -> parts [pieces, O, R,
// S, C / groups].
template <class T>
__global__ void __launch_bounds__(kThreads)
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
      const int64_t location =
          pixel(from.image, from.row * s.stride + at.row * s.dilation - s.padding,
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
template <ConvolutionPass pass>
void run(const KernelArgs& args) {
  const ConvolutionSizes s = conv2d_sizes<pass>(args);
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    for_storage(args.in[1].type.dtype, [&]<class W>() {
      constexpr auto kEach = pass == ConvolutionPass::kForward ? grouped_forward<T, W> : grouped_input_gradient<T, W>;
      launch_elements<kEach>(args.device, args.out[0].elements(), s, args.in[0].as<T>(), args.in[1].as<W>(),
                             args.out[0].as<T>());
    });
  });
}

void run_weight_grad(const KernelArgs& args) {
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

size_t weight_grad_workspace(const KernelQuery& query) {
  const int64_t pixels = query.in[1].shape.elements(0, 3);
  return static_cast<size_t>(pieces_of(pixels) * query.out[0].shape.elements()) * sizeof(float);
}

// A grid has at most 2^31 blocks, and 65535 along y.
bool supports(const KernelQuery& query) {
  if (query.attrs<Conv2dAttrs>().is_fused()) return false;
  for (const auto& types : {query.in, query.out})
    for (const TensorType& type : types)
      if (type.shape.elements() >= int64_t{1} << 31) return false;
  return true;
}
bool supports_weight_grad(const KernelQuery& query) {
  const Shape& weight = query.out[0].shape;
  return supports(query) && weight.elements() / std::max<int64_t>(weight[0], 1) <= 65535;
}

}  // namespace

LINNET_KERNELS(conv2d_groups_cuda, {"groups", supports, nullptr, run<ConvolutionPass::kForward>})
LINNET_KERNELS(conv2d_groups_input_grad_cuda, {"groups", supports, nullptr, run<ConvolutionPass::kInputGradient>})
LINNET_KERNELS(conv2d_groups_weight_grad_cuda, {"groups", supports_weight_grad, weight_grad_workspace, run_weight_grad})

}  // namespace linnet
