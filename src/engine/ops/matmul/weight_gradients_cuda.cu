// Gradients of many small weights in one launch: alone none of them fills a GPU, since a weight of 256 by 256 has 8
// tiles, and cuBLASLt would add a launch for the sums of its parts and one for the bias.
//
//   dw = dy^T x,  db = the sum of dy's rows;  dy [k, m], x [k, n]
//
// A block computes a tile of dw, each half of its warps for half of the rows.
#include <algorithm>
#include "base/process.h"
#include "engine/kernels/cuda/matrix_units.cuh"
#include "engine/ops/matmul/matmul.h"

namespace linnet {
namespace {
constexpr int kM = kWeightTileRows, kN = kWeightTileColumns, kRows = 64;  // of dy and x at a time, by each half
constexpr int kHalf = 4 * kWarp, kThreads = 2 * kHalf;
constexpr int kStrideM = kM + 8, kStrideN = kN + 8;  // so that the rows of load_transposed() hit different banks
constexpr int kTileM = 32, kTileN = 64;              // of a warp; a half has two by two
constexpr int kSums = kTileM * kTileN / kWarp;       // of a lane
constexpr size_t kShared = 2 * kRows * (kStrideM + kStrideN) * sizeof(bf16);
static_assert((kHalf * kSums + kThreads * 8) * sizeof(float) <= kShared);

struct WeightProduct {
  const bf16 *dy, *x;
  float *dw, *db;
  int m, n, rows;
  unsigned first_block;
  bool aligned;  // whether eight numbers are one access
};
constexpr int kProductsAtOnce = 32;
struct AllProducts {
  WeightProduct of[kProductsAtOnce];
  int count = 0;
  unsigned blocks = 0;
};

// kRows rows of kWidth columns of a matrix on their way to shared memory, by half of the block.
template <int kWidth> struct Piece {
  static constexpr int kCount = kRows * kWidth / 8 / kHalf;
  uint4 eights[kCount];

  LINNET_DEVICE static int row(int i) { return (thread() + i * kHalf) / (kWidth / 8); }
  LINNET_DEVICE static int column() { return thread() % (kWidth / 8) * 8; }
  LINNET_DEVICE static int thread() { return static_cast<int>(threadIdx.x) % kHalf; }

  // Zeros from row `end` and from column `width`, the matrix's, on.
  LINNET_DEVICE void load(const bf16* from, int row0, int end, int column0, int width, bool aligned) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      eights[i] = {0, 0, 0, 0};
      if (row0 + row(i) >= end || column0 + column() >= width) continue;
      const bf16* at = from + static_cast<int64_t>(row0 + row(i)) * width + column0 + column();
      const auto two = [&](int e) { return unsigned{at[e].bits} | unsigned{at[e + 1].bits} << 16; };
      eights[i] = aligned ? *reinterpret_cast<const uint4*>(at) : uint4{two(0), two(2), two(4), two(6)};
    }
  }
  LINNET_DEVICE void store(bf16* to, int stride) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) *reinterpret_cast<uint4*>(to + row(i) * stride + column()) = eights[i];
  }
  // Adds the rows.
  LINNET_DEVICE void add_to(float (&sums)[8]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const unsigned words[4] = {eights[i].x, eights[i].y, eights[i].z, eights[i].w};
#pragma unroll
      for (int e = 0; e < 8; ++e) sums[e] += to_float(bf16{static_cast<uint16_t>(words[e / 2] >> 16 * (e % 2))});
    }
  }
};

__global__ void __launch_bounds__(kThreads) weight_gradients_kernel(AllProducts all) {
  begin_kernel();
  int i = 0;
  while (i + 1 < all.count && blockIdx.x >= all.of[i + 1].first_block) ++i;
  const WeightProduct& p = all.of[i];
  const int tiles = (p.n + kN - 1) / kN, tile = static_cast<int>(blockIdx.x - p.first_block);
  const int m0 = tile / tiles * kM, n0 = tile % tiles * kN;
  const int half = static_cast<int>(threadIdx.x) / kHalf, thread = static_cast<int>(threadIdx.x) % kHalf;
  const int lane = thread % kWarp, warp = thread / kWarp;
  const int steps = (p.rows + 2 * kRows - 1) / (2 * kRows);  // of each half
  const int begin = half * steps * kRows, end = min(p.rows, begin + steps * kRows);
  const bool sums_bias = n0 == 0;
  float* const shared = dynamic_shared<float>();
  bf16* const left = reinterpret_cast<bf16*>(shared) + half * kRows * (kStrideM + kStrideN);
  bf16* const right = left + kRows * kStrideM;
  // Where load_transposed() reads: a lane's row of one of four matrices.
  const int left_at = (lane % 8 + lane / 16 * 8) * kStrideM + warp % 2 * kTileM + lane / 8 % 2 * 8;
  const int right_at = (lane % 8 + lane / 8 % 2 * 8) * kStrideN + warp / 2 * kTileN + lane / 16 * 8;
  float sums[kTileM / 16][kTileN / 8][4] = {}, bias[8] = {};
  Piece<kM> next_left;
  Piece<kN> next_right;
  const auto load = [&](int row0) {
    next_left.load(p.dy, row0, end, m0, p.m, p.aligned);
    next_right.load(p.x, row0, end, n0, p.n, p.aligned);
  };
  load(begin);
  for (int step = 0; step < steps; ++step) {
    next_left.store(left, kStrideM);
    next_right.store(right, kStrideN);
    if (sums_bias) next_left.add_to(bias);
    __syncthreads();
    if (step + 1 < steps) load(begin + (step + 1) * kRows);
#pragma unroll
    for (int k = 0; k < kRows; k += 16) {
      uint4 a[kTileM / 16];
#pragma unroll
      for (int r = 0; r < kTileM / 16; ++r) a[r] = load_transposed(left + left_at + k * kStrideM + r * 16);
#pragma unroll
      for (int c = 0; c < kTileN / 8; c += 2) {
        const uint4 b = load_transposed(right + right_at + k * kStrideN + c * 8);
#pragma unroll
        for (int r = 0; r < kTileM / 16; ++r) {
          multiply_bf16(a[r], {b.x, b.y}, sums[r][c]);
          multiply_bf16(a[r], {b.z, b.w}, sums[r][c + 1]);
        }
      }
    }
    __syncthreads();
  }
  // The second half passes its sums to the first, and all threads their sums of the bias to the first 64.
  float* const other = shared + thread;
  float* const biases = shared + kHalf * kSums;
  const float* const flat = &sums[0][0][0];
  if (half == 1)
#pragma unroll
    for (int k = 0; k < kSums; ++k) other[k * kHalf] = flat[k];
#pragma unroll
  for (int e = 0; e < 8; ++e) biases[static_cast<int>(threadIdx.x) * 8 + e] = bias[e];
  __syncthreads();
  if (half == 1) return;
  if (sums_bias && thread < kM && m0 + thread < p.m) {
    float sum = 0;
    for (int from = thread / 8; from < kThreads; from += kM / 8) sum += biases[from * 8 + thread % 8];
    p.db[m0 + thread] = sum;
  }
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    const int row = m0 + warp % 2 * kTileM + k / (kSums / 2) * 16 + k / 2 % 2 * 8 + lane / 4;
    const int column = n0 + warp / 2 * kTileN + k / 4 % (kTileN / 8) * 8 + lane % 4 * 2 + k % 2;
    if (row < p.m && column < p.n) p.dw[static_cast<int64_t>(row) * p.n + column] = flat[k] + other[k * kHalf];
  }
}

void run(const KernelArgs& args) {
  AllProducts all;
  for (size_t i = 0; i < args.in.size(); i += 2) {
    const Shape &dy = args.in[i].shape(), &x = args.in[i + 1].shape();
    WeightProduct& p = all.of[all.count++] = {};
    p.dy = args.in[i].as<bf16>(), p.x = args.in[i + 1].as<bf16>();
    p.dw = args.out[i].as<float>(), p.db = args.out[i + 1].as<float>();
    p.m = static_cast<int>(dy[1]), p.n = static_cast<int>(x[1]), p.rows = static_cast<int>(dy[0]);
    p.first_block = all.blocks, p.aligned = aligned16(p.dy, p.x);
    all.blocks += static_cast<unsigned>(weight_tiles(dy[1], x[1]));
    if (all.count < kProductsAtOnce && i + 2 < args.in.size()) continue;
    launch(args.device, weight_gradients_kernel, all.blocks, kThreads, kShared, all);
    all = {};
  }
}

bool supports(const KernelQuery& query) {
  if (switched_off("LINNET_CUDA_GROUPS")) return false;
  const auto is_whole = [](const TensorType& type) { return type.dtype == DType::kBF16 && type.shape[1] % 8 == 0; };
  return std::ranges::all_of(query.in, is_whole) &&
         std::ranges::all_of(query.out, [](const TensorType& type) { return type.dtype == DType::kF32; });
}
}  // namespace

LINNET_KERNELS(weight_gradients_cuda, {"tiles", run, supports})
}  // namespace linnet
