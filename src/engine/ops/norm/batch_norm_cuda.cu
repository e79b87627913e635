// Batch normalization. A warp reads 32 neighboring channels of a row, so that it uses whole memory lines. The number of
// rows alone divides them into pieces, whose sums are joined in order; a last pass makes the result.
#include <algorithm>
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/ops/norm/norm.h"

namespace linnet {
namespace {
constexpr int kRowsAtOnce = 8;  // warps of a block
constexpr int64_t kLeastPiece = 64, kMostPieces = 256;

int64_t piece_of(int64_t rows) { return std::max((rows + kMostPieces - 1) / kMostPieces, kLeastPiece); }
int64_t pieces_of(int64_t rows) { return std::max<int64_t>((rows + piece_of(rows) - 1) / piece_of(rows), 1); }

// A thread's part of x [rows, channels]: its channel, and rows begin, begin + kRowsAtOnce, ... of a piece.
struct Place {
  int64_t channel, first, begin, end;
  LINNET_DEVICE Place(int64_t rows, int64_t piece)
      : channel(static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x), first(blockIdx.y * piece),
        begin(first + threadIdx.y), end(min(first + piece, rows)) {}
};

// The sum over a block's warps, in order, for all threads of a channel. All threads call it.
static LINNET_DEVICE float over_warps(float sum) {
  __shared__ float of_warps[kRowsAtOnce][kWarp];
  of_warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < kRowsAtOnce; ++i) sum += of_warps[i][threadIdx.x];
  __syncthreads();
  return sum;
}

// parts [pieces, 2, channels]: each piece's mean and sum of squares around it. The second read hits the cache.
template <class T> __global__ void __launch_bounds__(kWarp* kRowsAtOnce)
    moments_kernel(int64_t rows, int64_t channels, int64_t piece, const T* __restrict__ x, float* __restrict__ parts) {
  begin_kernel();
  const Place at(rows, piece);
  const bool inside = at.channel < channels;
  float sum = 0, squares = 0;
  if (inside)
    for (int64_t r = at.begin; r < at.end; r += kRowsAtOnce) sum += to_float(x[r * channels + at.channel]);
  const float mean = over_warps(sum) / static_cast<float>(at.end - at.first);
  if (inside)
    for (int64_t r = at.begin; r < at.end; r += kRowsAtOnce) {
      const float centered = to_float(x[r * channels + at.channel]) - mean;
      squares += centered * centered;
    }
  squares = over_warps(squares);
  if (!inside || threadIdx.y > 0) return;
  float* const to = parts + 2 * blockIdx.y * channels + at.channel;
  to[0] = mean, to[channels] = squares;
}

// For pieces with counts n, means m and squares s around them: mean = sum(n m) / N, variance = sum(s + n (m - mean)^2)
// / N (Chan, Golub & LeVeque 1979).
__global__ void __launch_bounds__(kWarp* kRowsAtOnce) join_kernel(int64_t rows, int64_t channels, int64_t piece,
    int64_t pieces, const float* __restrict__ parts, float* __restrict__ means, float* __restrict__ variances) {
  begin_kernel();
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const bool inside = channel < channels;
  const auto count_of = [&](int64_t i) { return static_cast<float>(min(piece, rows - i * piece)); };
  float sum = 0, squares = 0;
  if (inside)
    for (int64_t i = threadIdx.y; i < pieces; i += kRowsAtOnce) sum += count_of(i) * parts[2 * i * channels + channel];
  const float mean = over_warps(sum) / static_cast<float>(rows);
  if (inside)
    for (int64_t i = threadIdx.y; i < pieces; i += kRowsAtOnce) {
      const float away = parts[2 * i * channels + channel] - mean;
      squares += parts[(2 * i + 1) * channels + channel] + count_of(i) * away * away;
    }
  squares = over_warps(squares);
  if (inside && threadIdx.y == 0) means[channel] = mean, variances[channel] = squares / static_cast<float>(rows);
}

template <class T> __global__ void __launch_bounds__(kWarp* kRowsAtOnce)
    normalize_kernel(int64_t rows, int64_t channels, int64_t piece, float epsilon, const T* x, const float* weight,
        const float* bias, const float* means, const float* variances, T* y) {
  begin_kernel();
  const Place at(rows, piece);
  if (at.channel >= channels) return;
  const float mean = means[at.channel], scale = weight[at.channel] * rsqrtf(variances[at.channel] + epsilon);
  for (int64_t r = at.begin; r < at.end; r += kRowsAtOnce) {
    const int64_t i = r * channels + at.channel;
    y[i] = from_float<T>((to_float(x[i]) - mean) * scale + bias[at.channel]);
  }
}

// parts [pieces, 2, channels]: sums of dy * normal, and of dy.
template <class T> __global__ void __launch_bounds__(kWarp* kRowsAtOnce)
    slopes_kernel(int64_t rows, int64_t channels, int64_t piece, float epsilon, const T* __restrict__ dy,
        const T* __restrict__ x, const float* means, const float* variances, float* __restrict__ parts) {
  begin_kernel();
  const Place at(rows, piece);
  const bool inside = at.channel < channels;
  float sum = 0, product = 0;
  if (inside) {
    const float mean = means[at.channel], rstd = rsqrtf(variances[at.channel] + epsilon);
    for (int64_t r = at.begin; r < at.end; r += kRowsAtOnce) {
      const float slope = to_float(dy[r * channels + at.channel]);
      sum += slope;
      product += slope * (to_float(x[r * channels + at.channel]) - mean) * rstd;
    }
  }
  product = over_warps(product), sum = over_warps(sum);
  if (!inside || threadIdx.y > 0) return;
  float* const to = parts + 2 * blockIdx.y * channels + at.channel;
  to[0] = product, to[channels] = sum;
}

template <class T> __global__ void __launch_bounds__(kWarp* kRowsAtOnce) input_gradient_kernel(int64_t rows,
    int64_t channels, int64_t piece, float epsilon, const T* dy, const T* x, const float* weight, const float* means,
    const float* variances, const float* dweight, const float* dbias, T* dx) {
  begin_kernel();
  const Place at(rows, piece);
  if (at.channel >= channels) return;
  const float mean = means[at.channel], rstd = rsqrtf(variances[at.channel] + epsilon);
  const float product = dweight[at.channel], sum = dbias[at.channel];
  const float share = 1 / static_cast<float>(rows), scale = weight[at.channel] * rstd;
  for (int64_t r = at.begin; r < at.end; r += kRowsAtOnce) {
    const int64_t i = r * channels + at.channel;
    const float normal = (to_float(x[i]) - mean) * rstd;
    dx[i] = from_float<T>(scale * (to_float(dy[i]) - (sum + normal * product) * share));
  }
}

struct Sizes {
  explicit Sizes(const Shape& x) : channels(x[-1]), rows(x.elements() / std::max<int64_t>(channels, 1)) {}
  int64_t channels, rows;
  unsigned tiles() const { return blocks_for(channels, kWarp); }
  dim3 grid() const { return {tiles(), static_cast<unsigned>(pieces_of(rows))}; }
  size_t workspace() const { return bytes_for<float>(2 * pieces_of(rows) * channels); }
};
const dim3 kBlock(kWarp, kRowsAtOnce);

float epsilon_of(const KernelArgs& args) { return static_cast<float>(args.attrs<BatchNormAttrs>().epsilon); }

void run(const KernelArgs& args) {
  const Sizes s(args.in[0].shape());
  const int64_t piece = piece_of(s.rows);
  auto* parts = reinterpret_cast<float*>(args.workspace);
  auto *means = args.out[1].as<float>(), *variances = args.out[2].as<float>();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch(args.device, moments_kernel<T>, s.grid(), kBlock, 0, s.rows, s.channels, piece, args.in[0].as<T>(), parts);
    launch(args.device, join_kernel, s.tiles(), kBlock, 0, s.rows, s.channels, piece, pieces_of(s.rows), parts, means,
        variances);
    launch(args.device, normalize_kernel<T>, s.grid(), kBlock, 0, s.rows, s.channels, piece, epsilon_of(args),
        args.in[0].as<T>(), args.in[1].as<float>(), args.in[2].as<float>(), means, variances, args.out[0].as<T>());
  });
}

void run_grad(const KernelArgs& args) {
  const Sizes s(args.in[1].shape());
  const int64_t piece = piece_of(s.rows);
  auto* parts = reinterpret_cast<float*>(args.workspace);
  auto *means = args.in[3].as<float>(), *variances = args.in[4].as<float>();
  auto *dweight = args.out[1].as<float>(), *dbias = args.out[2].as<float>();
  for_storage(args.in[1].type.dtype, [&]<class T>() {
    launch(args.device, slopes_kernel<T>, s.grid(), kBlock, 0, s.rows, s.channels, piece, epsilon_of(args),
        args.in[0].as<T>(), args.in[1].as<T>(), means, variances, parts);
    add_parts(args.device, pieces_of(s.rows), s.channels, 2 * s.channels, parts, dweight, dbias);
    launch(args.device, input_gradient_kernel<T>, s.grid(), kBlock, 0, s.rows, s.channels, piece, epsilon_of(args),
        args.in[0].as<T>(), args.in[1].as<T>(), args.in[2].as<float>(), means, variances, dweight, dbias,
        args.out[0].as<T>());
  });
}

bool is_plain(const KernelQuery& query) {
  const auto& attrs = query.attrs<BatchNormAttrs>();
  return !attrs.residual && !attrs.relu;
}
size_t workspace(const KernelQuery& query) { return Sizes(query.in[0].shape).workspace(); }  // x, or dy, as large
}  // namespace

LINNET_KERNELS(batch_norm_cuda, {"channels", run, is_plain, workspace})
LINNET_KERNELS(batch_norm_grad_cuda, {"channels", run_grad, is_plain, workspace})
}  // namespace linnet
