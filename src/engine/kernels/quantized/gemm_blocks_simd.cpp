#include <cstring>
#include "base/numbers.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/gemm_blocking.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/quantized/products.h"

#define HWY_TARGET_INCLUDE "engine/kernels/quantized/gemm_blocks_simd.cpp"
#include <hwy/foreach_target.h>

// See gemm_bf16_simd.cpp: Highway's AVX-512 target and one extension more.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#endif
#include "engine/kernels/gemm/gemm_epilogue-inl.h"
#include "engine/kernels/lanes-inl.h"

#ifndef LINNET_KERNELS_ACTIVATION_BLOCK
#define LINNET_KERNELS_ACTIVATION_BLOCK
namespace linnet {
namespace {
// 32 neighbors of a row as 16-bit codes times a scale, in the kernel's form: either `pairs`, the codes for one 32-bit
// word of the weight (4 columns of 8 bits, 8 of 4) in PairBlocks' order; or `high` and `low`, with code = 256 high +
// low; with 4 bits a word's even columns precede the odd ones.
struct alignas(64) ActivationBlock {
  // The largest magnitude: 256 * 127 + 127, so that `high` and `low` fit.
  static constexpr int kMostCode = 32639;

  int16_t pairs[32];
  int8_t high[32], low[32];
  float scale, sum;  // the scale, and the sum of the numbers
  // The codes' sum times the excess of the weights' codes as the kernel reads them; per half if halves have scales.
  int32_t excess[2];
};

// The index of a word's column t among its `pairs`: t and its partner half a word further are neighbors.
constexpr int pair_slot(int bits, int t) {
  const int half = 16 / bits;
  return t % half * 2 + t / half;
}

inline void store_pairs(int bits, const int32_t* codes, ActivationBlock& block) {
  const int in_word = 32 / bits;
  for (int word = 0; word < 32; word += in_word)
    for (int t = 0; t < in_word; ++t) block.pairs[word + pair_slot(bits, t)] = static_cast<int16_t>(codes[word + t]);
}
}  // namespace
}  // namespace linnet
#endif
#include "engine/kernels/quantized/block_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_AVX3
using Blocks = VnniBlocks;
#elif HWY_TARGET == HWY_AVX2
using Blocks = PairBlocks;
#else
using Blocks = PlainBlocks;
#endif

constexpr int64_t kPanel = PackedShape::kPanel, kBlock = PackedShape::kBlock;

// Rounds 32 numbers (fewer at the end of a row) to 16-bit codes. A NaN or an infinity gives the scale NaN.
void quantize_block(const float* x, int64_t count, const BlockFormat& format, ActivationBlock& block) {
  float values[kBlock] = {};
  std::memcpy(values, x, static_cast<size_t>(count) * sizeof(float));
  uint32_t top_bits = 0;  // as integers magnitudes have the order of their values, NaN above infinity
  for (const float value : values) top_bits = std::max(top_bits, std::bit_cast<uint32_t>(value) & 0x7fffffffU);
  const auto top = std::bit_cast<float>(top_bits);
  constexpr float kSmallest = 1e-30f,
                  kMagic = 12582912.0f;  // 1.5 * 2^23 rounds what is added to it, ties to even
  const bool is_finite = top_bits < 0x7f800000U, is_used = is_finite && top >= kSmallest;
  constexpr float kMost = ActivationBlock::kMostCode;
  const float inverse = is_used ? kMost / top : 0;
  int32_t codes[kBlock];
  for (int64_t i = 0; i < kBlock; ++i) {
    const float shifted = (is_used ? values[i] * inverse : 0.0f) + kMagic;
    codes[i] = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kMagic);
  }
  block.scale = is_used ? top / kMost : is_finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  int32_t sums[2] = {};
  for (int64_t i = 0; i < kBlock; ++i) sums[i / 16] += codes[i];
  block.sum = block.scale * static_cast<float>(sums[0] + sums[1]);
  const int32_t raised = Blocks::raised(format);
  block.excess[0] = raised * (format.parts == 1 ? sums[0] + sums[1] : sums[0]), block.excess[1] = raised * sums[1];
  Blocks::store(format.bits, codes, block);
}

void finish(
    const GemmArgs& g, const float* sums, int64_t stride, int64_t row, int rows, int64_t column, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t location = (row + i) * g.ldc + column;
    const float *from = sums + i * stride, *residual = g.residual ? g.residual.f32() + location : nullptr;
    float* out = g.c.f32() + location;
    ForRow(columns, [=, &g](const auto& at) LINNET_LAMBDA {
      Floats value = at.load(from);
      if (residual) value = hn::Add(value, at.load(residual));
      if (g.bias) value = hn::Add(value, at.load(g.bias + column));
      if (g.activation == GemmActivation::kRelu) value = Relu(value);
      at.store(value, out);
    });
  }
  if (tile::has_epilogue(g)) tile::Epilogue<tile::UnitOfBytes>(g, g.c.f32() + row * g.ldc + column, rows, columns);
}

auto tile_of(WeightFormat format) {
  using enum WeightFormat;
  using Run = decltype(&Blocks::run<kInt8Blocks>);
  static constexpr Run kRuns[] = {nullptr, Blocks::run<kInt8Blocks>, Blocks::run<kInt4Blocks>, nullptr,
      Blocks::run<kQ8_0>, Blocks::run<kQ4_0>, Blocks::run<kQ4_1>, Blocks::run<kQ5_0>, Blocks::run<kQ5_1>,
      Blocks::run<kQ4K>, Blocks::run<kQ5K>, Blocks::run<kQ6K>};
  return kRuns[static_cast<size_t>(format)];
}

void strip(const GemmArgs& g, const PackedWeight& weight, const ActivationBlock* x, int64_t panel, int64_t end) {
  HWY_ALIGN float sums[std::max(Blocks::kOneRow, Blocks::kMostRows) * kPanel];
  const auto run = tile_of(weight.shape.format);
  const int64_t blocks = weight.shape.blocks();
  while (panel < end) {
    const int panels = g.m == 1 && end - panel >= Blocks::kOneRow ? Blocks::kOneRow : 1;
    const int64_t columns = std::min(panels * kPanel, weight.shape.rows - panel * kPanel);
    for (int64_t row = 0; row < g.m;) {
      const auto left = static_cast<unsigned>(std::min<int64_t>(Blocks::kMostRows, g.m - row));
      const auto rows = static_cast<int>(std::bit_floor(left));  // three: two and one
      run(rows, panels, weight, panel, x + row * blocks, blocks, sums);
      finish(g, sums, panels * kPanel, row, rows, panel * kPanel, columns);
      row += rows;
    }
    panel += panels;
  }
}

void few_rows(const GemmArgs& g, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool) {
  auto* x = reinterpret_cast<ActivationBlock*>(workspace);
  const int64_t blocks = weight.shape.blocks(), columns = weight.shape.columns;
  const BlockFormat format = block_format(weight.shape.format);
  pool.run(g.m, [&](int64_t row, int) {
    for (int64_t block = 0; block < blocks; ++block)
      quantize_block(g.a.f32() + row * g.lda + block * kBlock, std::min(kBlock, columns - block * kBlock), format,
          x[row * blocks + block]);
  });
  // A task reads at most 100 KB of weights, and each thread has several, as threads seldom run at the same speed.
  constexpr int64_t kTogether = 4, kTasksEach = 4;
  const int64_t panels = weight.shape.panels();
  const int64_t most = (int64_t{1} << 17) / std::max<int64_t>(1, weight.shape.panel_bytes());
  const int64_t step =
      std::max<int64_t>(1, std::min(most, panels / (kTasksEach * pool.size())) / kTogether) * kTogether;
  for_steps(pool, panels, step, [&](int64_t begin, int64_t end) { strip(g, weight, x, begin, end); });
}

#if HWY_ARCH_X86
bool is_avx512() { return HWY_TARGET == HWY_AVX3; }
#endif
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_TARGET == HWY_AVX3
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(few_rows);
#if HWY_ARCH_X86
HWY_EXPORT(is_avx512);
#endif

// The kernels for few rows compute a W^T with additions and a function.
bool is_plain(const GemmArgs& args) {
  return args.trans_b && !args.accumulate && !args.pre_activation && args.derivative == GemmActivation::kNone;
}
}  // namespace

size_t gemm_blocks_workspace(const PackedShape& shape, int64_t m, bool few, int threads) {
  if (shape.rows == 0) return 0;
  if (!few) return gemm_strips_workspace(shape, m, threads);
  return static_cast<size_t>(m * shape.blocks()) * sizeof(ActivationBlock);
}

void gemm_blocks(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool) {
  const bool few = is_plain(args) && (args.m <= kFewRows || args.independent_rows);
  if (few && weight.shape.tail_rows > 0) {
    gemm_blocks(args, weight.head(), workspace, pool);
    return gemm_blocks(from_column(args, weight.shape.head().rows), weight.tail(), workspace, pool);
  }
#if HWY_ARCH_X86
  // The few processors with AVX-512 but without VNNI use AVX2's tiles: their own would add 130 KB to every program.
  // (hwy::SupportedTargets() asks the processor each time, some microseconds on a virtual machine.)
  if (few && HWY_DYNAMIC_DISPATCH(is_avx512)() && !has_vnni()) return N_AVX2::few_rows(args, weight, workspace, pool);
#endif
  if (few) return HWY_DYNAMIC_DISPATCH(few_rows)(args, weight, workspace, pool);
  gemm_strips(args, weight, workspace, pool);
}

namespace {
constexpr int64_t kStripFloats = int64_t{1} << 20;
constexpr int64_t kFewStripFloats = int64_t{1} << 15;  // 128 KB, which stay in the second cache of a core

int64_t strip_rows(const PackedShape& shape, int64_t floats = kStripFloats) {
  const int64_t rows =
      std::max<int64_t>(PackedShape::kPanel, floats / shape.columns / PackedShape::kPanel * PackedShape::kPanel);
  return std::min(rows, shape.rows);
}

size_t strip_bytes(const PackedShape& shape, int64_t floats = kStripFloats) {
  return round_up(static_cast<size_t>(strip_rows(shape, floats) * shape.columns) * sizeof(float), size_t{64});
}

size_t few_workspace(const PackedShape& shape, int64_t m) {  // of one worker of multiply_few()
  const size_t product = gemm_workspace(1, m, strip_rows(shape, kFewStripFloats), shape.columns, 1);
  return strip_bytes(shape, kFewStripFloats) + round_up(product, size_t{64});
}

template <class Pointer> void advance(Pointer& pointer, int64_t by) {
  if (pointer) pointer = pointer + by;
}

// Adds the weight's rows [begin, begin + part.k) to C; epilogues follow the last of them.
void multiply_plain(GemmArgs part, int64_t begin, bool is_last, std::byte* workspace, ThreadPool& pool) {
  part.a = part.a + begin;
  if (begin > 0) part.accumulate = true, part.residual = nullptr;
  if (!is_last) {
    part.bias = nullptr, part.pre_activation = nullptr, part.aux = nullptr;
    part.activation = part.derivative = GemmActivation::kNone;
  }
  gemm(part, workspace, pool);
}

// Products of so few rows that a weight is read once for all. bf16 is read as it is; otherwise each thread converts its
// own strips to fp32 and multiplies by them in cache. The bits are those of large strips, as B's rows are independent.
void multiply_few(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool) {
  const PackedShape& shape = weight.shape;
  if (shape.format == WeightFormat::kBf16) {
    GemmArgs product = args;
    product.b = reinterpret_cast<const Bfloat16*>(weight.data), product.ldb = shape.columns;
    product.n = shape.rows, product.k = shape.columns;
    return gemm_few_rows(product, pool);
  }
  static ThreadPool alone(1);  // runs its tasks in the thread that asks
  const int64_t step = strip_rows(shape, kFewStripFloats);
  pool.run(ceil_div(shape.rows, step), [&](int64_t task, int worker) {
    const int64_t begin = task * step, end = std::min(shape.rows, begin + step);
    std::byte* own = workspace + static_cast<size_t>(worker) * few_workspace(shape, args.m);
    auto* values = reinterpret_cast<float*>(own);
    dequantize_rows(weight, begin, end, values);
    GemmArgs part = args;
    part.b = values, part.ldb = shape.columns, part.n = end - begin, part.k = shape.columns;
    gemm(from_column(part, begin), own + strip_bytes(shape, kFewStripFloats), alone);
  });
}
}  // namespace

GemmArgs from_column(GemmArgs part, int64_t begin) {
  part.c = part.c + begin;
  advance(part.bias, begin), advance(part.residual, begin), advance(part.pre_activation, begin);
  advance(part.aux, begin);
  return part;
}

size_t gemm_strips_workspace(const PackedShape& shape, int64_t m, int threads) {
  if (shape.rows == 0) return 0;
  const auto product_workspace = [&](int64_t rows, int64_t columns) {
    const bool in_bf16 = shape.format == WeightFormat::kBf16;
    return std::max(
        gemm_workspace(1, m, rows, columns, threads, in_bf16), gemm_workspace(1, m, columns, rows, threads, in_bf16));
  };
  size_t most = 0;  // of a whole strip and of the last
  for (const int64_t rows : {strip_rows(shape), shape.rows % strip_rows(shape)})
    most = std::max(most, product_workspace(rows, shape.columns));
  return std::max({strip_bytes(shape) + most, static_cast<size_t>(threads) * few_workspace(shape, m),
      product_workspace(shape.rows, shape.columns)});
}

void gemm_strips(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool) {
  const PackedShape& shape = weight.shape;
  if (args.trans_b && (args.m <= gemm_blocking::kFewRows || args.independent_rows))
    return multiply_few(args, weight, workspace, pool);
  GemmArgs product = args;
  product.n = args.trans_b ? shape.rows : shape.columns, product.k = args.trans_b ? shape.columns : shape.rows;
  const bool in_bf16 = product.precision == Precision::kBf16 && gemm_has_bf16();
  const bool is_bf16 = shape.format == WeightFormat::kBf16;
  if (is_bf16 && in_bf16 && product.k > 0) {
    product.b = reinterpret_cast<const Bfloat16*>(weight.data), product.ldb = shape.columns;
    return gemm(product, workspace, pool);
  }
  product.b_codes = &weight;
  if (!in_bf16 && !is_bf16 && !product.trans_a && shape.tail_rows == 0 && reads_panels(product.m, product.n, product.k))
    return gemm(product, workspace, pool);
  auto* values = reinterpret_cast<float*>(workspace);
  workspace += strip_bytes(shape);
  for (int64_t begin = 0; begin < shape.rows; begin += strip_rows(shape)) {
    const int64_t end = std::min(shape.rows, begin + strip_rows(shape));
    dequantize_rows(weight, begin, end, values, pool);
    GemmArgs part = args;
    part.b = values, part.ldb = shape.columns;
    part.n = args.trans_b ? end - begin : shape.columns, part.k = args.trans_b ? shape.columns : end - begin;
    if (args.trans_b) gemm(from_column(part, begin), workspace, pool);
    else multiply_plain(part, begin, end == shape.rows, workspace, pool);
  }
}
}  // namespace linnet
#endif
