// Products with a weight of WeightFormat::kInt8 on a GPU. Activations are rounded to bytes and matrix units add up
// products of bytes as integers, so the results have the CPU's bits (engine/kernels/quantized/products.h).
//
// A multiplication takes 16 rows of the weight, a panel, by 8 rows of activations, a group, over a block of 32 columns.
// Of a row's eight words in a block a lane takes words q and q + 4, q = lane % 4. Those of two neighboring rows of a
// panel lie beside each other, and codes of activations are written as lanes read them, [groups][blocks][8 rows] of
// words 0, 4, 1, 5, 2, 6, 3, 7. So a warp reads 256 contiguous bytes at once, and neither operand passes shared memory.
#include "base/numbers.h"
#include "engine/kernels/cuda/activation.cuh"
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/cuda/matrix_units.cuh"
#include "engine/ops/quantized/quantized.h"

namespace linnet {
namespace {
constexpr int kGroup = 8, kPanel = static_cast<int>(PackedShape::kPanel),
              kBlock = static_cast<int>(PackedShape::kBlock);
constexpr int kGroupBytes = kGroup * kBlock, kPanelBytes = kPanel * kBlock;  // of a block

LINNET_DEVICE unsigned code_of(float x, const StaticRounding& rounding) {
  const float code = rintf(x / rounding.scale) + static_cast<float>(rounding.zero);
  const auto least = static_cast<float>(rounding.least);
  return static_cast<unsigned>(code > least ? fminf(code, static_cast<float>(rounding.most)) : least);
}

template <class From> struct Rows {
  const From* x;  // [rows, columns]
  int64_t rows, columns;
  bool is_aligned;  // four numbers are one access
  StaticRounding rounding;
  unsigned char* codes;
  float* scales;  // of each row, padded to whole groups
};

// A block for a group, a warp for a row. Rows behind the last get zeros.
template <class From> __global__ void __launch_bounds__(kGroup* kWarp) round_rows_kernel(Rows<From> p) {
  begin_kernel();
  const int lane = static_cast<int>(threadIdx.x) % kWarp, row_in_group = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kGroup + row_in_group;
  const From* x = p.x + min(row, p.rows - 1) * p.columns;
  const int64_t columns = row < p.rows ? p.columns : 0;
  float scale = p.rounding.scale, inverse = 0;
  if constexpr (!std::is_same_v<From, unsigned char>)
    if (scale == 0) {
      unsigned most = 0;  // bits of magnitudes have their order, with NaN as the largest
      for (int64_t i = lane; i < columns; i += kWarp) most = max(most, __float_as_uint(to_float(x[i])) & 0x7fffffffu);
      most = warp_reduce(most, [](unsigned a, unsigned b) { return max(a, b); });
      const float top = most >= 0x7f800000u ? NAN : __uint_as_float(most);
      if (top >= 1e-30f) inverse = 127 / top;
      scale = top < 1e-30f ? 0 : top / 127;
    }
  if (lane == 0) p.scales[row] = scale;
  const int64_t blocks = (p.columns + kBlock - 1) / kBlock;
  for (int64_t word = lane; word < blocks * 8; word += kWarp) {
    const int64_t column = word * 4, count = columns - column;
    unsigned codes = 0;
    if constexpr (std::is_same_v<From, unsigned char>) {
      for (int i = 0; i < 4 && i < count; ++i) codes |= unsigned{x[column + i]} << 8 * i;
    } else {
      float values[4];
      load_up_to_4(x + column, count, p.is_aligned && count >= 4, values);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Adding 1.5 * 2^23 + 128 rounds to an integer, ties to even.
        const unsigned code =
            p.rounding.scale > 0
                ? code_of(values[i], p.rounding)
                : __float_as_uint(__fadd_rn(__fmul_rn(values[i], inverse), 12582912.0f + 128.0f)) & 255;
        codes |= code << 8 * i;
      }
    }
    const int64_t block = blockIdx.x * blocks + word / 8, place = word % 4 * 2 + word / 4 % 2;
    *reinterpret_cast<unsigned*>(p.codes + block * kGroupBytes + row_in_group * kBlock + place * 4) = codes;
  }
}

struct ByteProduct {
  const unsigned char *codes, *weight;
  const float *scales, *weight_scales;
  const int* weight_sums;
  int64_t rows, width;
  int groups, panels, blocks;
  Numbers bias, residual;
  GemmActivation activation;
  StaticRounding rounding;  // of the result, with a scale
  void* y;
  DType dtype;
};

// A warp has kPanels of the weight's panels by kGroups groups of rows; kM by kN warps are beside each other, and kK
// share the blocks of columns, each taking kBlocks at a time.
template <int kPanels, int kGroups, int kM, int kN, int kK, int kBlocks>
__global__ void __launch_bounds__(kM* kN* kK* kWarp) byte_product_kernel(ByteProduct p) {
  begin_kernel();
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first_panel = (static_cast<int>(blockIdx.y) * kM + warp % kM) * kPanels;
  const int first_group = (static_cast<int>(blockIdx.x) * kN + warp / kM % kN) * kGroups;
  const int part = warp / (kM * kN);
  const unsigned char *panels[kPanels], *groups[kGroups];
#pragma unroll
  for (int i = 0; i < kPanels; ++i)
    panels[i] = p.weight + static_cast<int64_t>(min(first_panel + i, p.panels - 1)) * p.blocks * kPanelBytes +
                lane % 4 * (4 * kPanel) + lane / 4 * 8;
#pragma unroll
  for (int i = 0; i < kGroups; ++i)
    groups[i] = p.codes + static_cast<int64_t>(min(first_group + i, p.groups - 1)) * p.blocks * kGroupBytes + lane * 8;
  struct Words {
    uint2 w[kPanels][2], x[kGroups];
  };
  const auto load = [&](int block, Words& words) {
    const bool is_there = block < p.blocks;
    const auto read = [&](const unsigned char* at) {
      return is_there ? *reinterpret_cast<const uint2*>(at) : uint2{0, 0};
    };
#pragma unroll
    for (int i = 0; i < kPanels; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        words.w[i][j] = read(panels[i] + static_cast<int64_t>(block) * kPanelBytes + j * (16 * kPanel));
#pragma unroll
    for (int i = 0; i < kGroups; ++i) words.x[i] = read(groups[i] + static_cast<int64_t>(block) * kGroupBytes);
  };
  int sums[kPanels][kGroups][4] = {};
  Words now[kBlocks], next[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) load(part * kBlocks + b, now[b]);
  for (int block = part * kBlocks; block < p.blocks; block += kK * kBlocks) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) load(block + kK * kBlocks + b, next[b]);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kPanels; ++i) {
        const uint2(&w)[2] = now[b].w[i];
#pragma unroll
        for (int j = 0; j < kGroups; ++j) multiply_bytes({w[0].x, w[0].y, w[1].x, w[1].y}, now[b].x[j], sums[i][j]);
      }
      now[b] = next[b];
    }
  }
  if constexpr (kK > 1) {
    constexpr int kSums = kPanels * kGroups * 4, kLanes = kM * kN * kWarp;
    __shared__ int others[(kK - 1) * kSums * kLanes];
    int* const flat = &sums[0][0][0];
    const int thread = static_cast<int>(threadIdx.x) % kLanes;
    if (part > 0)
#pragma unroll
      for (int i = 0; i < kSums; ++i) others[((part - 1) * kSums + i) * kLanes + thread] = flat[i];
    __syncthreads();
    if (part > 0) return;
    for (int other = 0; other < kK - 1; ++other)
#pragma unroll
      for (int i = 0; i < kSums; ++i) flat[i] += others[(other * kSums + i) * kLanes + thread];
  }
  const auto row_of = [&](int j) { return (first_group + j / 2) * int64_t{kGroup} + lane % 4 * 2 + j % 2; };
  float scales[2 * kGroups];
#pragma unroll
  for (int j = 0; j < 2 * kGroups; ++j) scales[j] = row_of(j) < p.rows ? p.scales[row_of(j)] : 0;
#pragma unroll
  for (int i = 0; i < 2 * kPanels; ++i) {
    const int64_t column = (first_panel + i / 2) * kPanel + lane / 4 * 2 + i % 2;
    if (column >= p.width) continue;
    const int start = p.weight_sums[column];
    const float weight_scale = p.weight_scales[column], bias = p.bias ? p.bias[column] : 0;
#pragma unroll
    for (int j = 0; j < 2 * kGroups; ++j) {
      const int64_t row = row_of(j);
      if (row >= p.rows) continue;
      const int64_t at = row * p.width + column;
      // As the CPU computes it, without fused multiply-add.
      const auto sum = static_cast<float>(sums[i / 2][j / 2][i % 2 * 2 + j % 2] - start);
      float y = __fmul_rn(sum, __fmul_rn(scales[j], weight_scale));
      y = activated(p.activation, __fadd_rn(__fadd_rn(y, p.residual ? p.residual[at] : 0), bias));
      if (p.dtype == DType::kU8)
        static_cast<unsigned char*>(p.y)[at] = static_cast<unsigned char>(code_of(y, p.rounding));
      else if (p.dtype == DType::kBF16) static_cast<bf16*>(p.y)[at] = from_float<bf16>(y);
      else static_cast<float*>(p.y)[at] = y;
    }
  }
}

// Takes the largest tiles that give kManyBlocks blocks, about as many as a GPU has multiprocessors. The smallest, which
// divide the columns, are for few rows.
void multiply(Device* device, const ByteProduct& p) {
  constexpr int64_t kManyBlocks = 128, kFewGroups = 4;
  const auto start = [&]<int kPanels, int kGroups, int kM, int kN, int kK, int kBlocks>(int64_t least) {
    const dim3 grid{blocks_for(p.groups, kGroups * kN), blocks_for(p.panels, kPanels * kM)};
    if (static_cast<int64_t>(grid.x) * grid.y < least) return false;
    launch(device, byte_product_kernel<kPanels, kGroups, kM, kN, kK, kBlocks>, grid, kM * kN * kK * kWarp, 0, p);
    return true;
  };
  if (p.groups > 1 && start.template operator()<4, 8, 4, 2, 1, 1>(kManyBlocks)) return;
  if (p.groups > 1 && start.template operator()<2, 4, 2, 2, 1, 1>(p.groups > kFewGroups ? 1 : kManyBlocks)) return;
  start.template operator()<1, 1, 1, 1, 8, 2>(1);
}

struct Sizes {
  int64_t rows, groups;
  PackedShape weight;
  size_t code_bytes() const { return static_cast<size_t>(groups * weight.blocks()) * kGroupBytes; }
};
Sizes sizes_of(const QuantizedMatmulAttrs& attrs, const Shape& a) {
  const int64_t rows = a.elements(0, a.rank() - 1);
  return {rows, ceil_div(rows, int64_t{kGroup}), attrs.weight.packed()};
}
}  // namespace

bool has_byte_product(const KernelQuery& query) {
  const auto& attrs = query.attrs<QuantizedMatmulAttrs>();
  return attrs.weight.format == WeightFormat::kInt8 && is_plain_product(attrs.product) &&
         attrs.rounding.largest_error == 0 && sizes_of(attrs, query.in[0].shape).rows > 0;
}

size_t byte_product_workspace(const KernelQuery& query) {
  const Sizes sizes = sizes_of(query.attrs<QuantizedMatmulAttrs>(), query.in[0].shape);
  return sizes.code_bytes() + static_cast<size_t>(sizes.groups) * kGroup * sizeof(float);
}

void run_byte_product(const KernelArgs& args) {
  const auto& attrs = args.attrs<QuantizedMatmulAttrs>();
  const Sizes sizes = sizes_of(attrs, args.in[0].shape());
  const PackedShape& weight = sizes.weight;
  auto* codes = reinterpret_cast<unsigned char*>(args.workspace);
  auto* scales = reinterpret_cast<float*>(codes + sizes.code_bytes());
  const auto round = [&]<class From>() {
    const From* x = args.in[0].as<From>();
    const bool is_aligned = weight.columns % 4 == 0 && aligned4(x);
    launch(args.device, round_rows_kernel<From>, static_cast<unsigned>(sizes.groups), kGroup * kWarp, 0,
        Rows<From>{x, sizes.rows, weight.columns, is_aligned, attrs.rounding, codes, scales});
  };
  if (args.in[0].type.dtype == DType::kU8) round.template operator()<unsigned char>();
  else for_storage(args.in[0].type.dtype, round);
  const auto* packed = args.in[1].as<const unsigned char>();
  ByteProduct p{.codes = codes, .weight = packed, .scales = scales};
  p.weight_scales = reinterpret_cast<const float*>(packed + weight.scales_offset());
  p.weight_sums = reinterpret_cast<const int*>(packed + weight.sums_offset());
  p.rows = sizes.rows, p.width = weight.rows;
  p.groups = static_cast<int>(sizes.groups), p.panels = static_cast<int>(weight.panels());
  p.blocks = static_cast<int>(weight.blocks());
  if (attrs.product.bias) p.bias = numbers_of(args.in[2]);
  if (attrs.product.accumulate) p.residual = numbers_of(args.in.back());
  p.activation = attrs.product.activation, p.rounding = attrs.result_rounding;
  p.y = args.out[0].data, p.dtype = args.out[0].type.dtype;
  multiply(args.device, p);
}
}  // namespace linnet
