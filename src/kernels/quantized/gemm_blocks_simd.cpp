#include <algorithm>
#include <cstring>
#include <utility>

#include "base/thread_pool.h"
#include "kernels/quantized/gemm_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantized/gemm_blocks_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/gemm/gemm_epilogue-inl.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

constexpr int64_t kPanel = PackedShape::kPanel, kBlock = PackedShape::kBlock;
constexpr FloatTag d;
constexpr hn::RebindToSigned<FloatTag> di;
constexpr int kVectors = kPanel / kFloatLanes;  // of a panel's 16 columns
// With 32 registers four panels are read side by side, which hides the latency of the sums.
constexpr int kMostPanels = kFloatLanes >= 16 ? 4 : 2;
constexpr int kMostRows = kFloatLanes >= 16 ? 4 : 2;

using Words = hn::Vec<hn::RebindToSigned<FloatTag>>;

// Adds x[i] times code number J of each word to part[i]. The code is shifted to the top of its word and back down,
// which extends its sign.
template <int kBits, int J, int M, int P>
HWY_INLINE void AddCode(const Words (&words)[P][kVectors], const float* const (&x)[M], int64_t at,
                        Floats (&part)[M][P][kVectors]) {
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const Words top = hn::ShiftLeft<32 - kBits - kBits * J>(words[p][v]);
      const Floats code = hn::ConvertTo(d, hn::ShiftRight<32 - kBits>(top));
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) part[i][p][v] = hn::MulAdd(SetAll(x[i][at + J]), code, part[i][p][v]);
    }
}

template <int kBits, int M, int P, int... J>
HWY_INLINE void AddCodes(std::integer_sequence<int, J...>, const Words (&words)[P][kVectors],
                         const float* const (&x)[M], int64_t at, Floats (&part)[M][P][kVectors]) {
  (AddCode<kBits, J, M, P>(words, x, at, part), ...);
}

// M rows of x [M, k] by P panels: c[i, j] = sum over blocks of scale * (sum over the block of x * code). The order of
// both sums is that of k on every processor; where there is no fused multiply-add the roundings differ.
template <int kBits, int M, int P>
HWY_NOINLINE void Tile(const PackedWeight& weight, int64_t panel, const float* x, int64_t ldx, float* sums) {
  constexpr int kCodes = 32 / kBits;  // in a word
  const int64_t blocks = weight.shape.blocks(), k = weight.shape.columns, panel_bytes = weight.shape.panel_bytes();
  const int8_t* w = weight.codes(panel);
  const uint16_t* scales = weight.block_scales(panel);
  Floats total[M][P][kVectors];
  for (int i = 0; i < M; ++i)
    for (int p = 0; p < P; ++p)
      for (int v = 0; v < kVectors; ++v) total[i][p][v] = hn::Zero(d);
  for (int64_t block = 0; block < blocks; ++block) {
    HWY_ALIGN float last[M][kBlock];  // the last block may be shorter
    const float* rows[M];
    const int64_t left = k - block * kBlock;
    for (int i = 0; i < M; ++i) {
      rows[i] = x + i * ldx + block * kBlock;
      if (left >= kBlock) continue;
      std::memset(last[i], 0, sizeof last[i]);
      std::memcpy(last[i], rows[i], static_cast<size_t>(left) * sizeof(float));
      rows[i] = last[i];
    }
    Floats part[M][P][kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) part[i][p][v] = hn::Zero(d);
    for (int group = 0; group < kBlock / kCodes; ++group, w += kPanel * 4) {
      Words words[P][kVectors];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v)
          words[p][v] = hn::LoadU(di, reinterpret_cast<const int32_t*>(w + p * panel_bytes) + v * kFloatLanes);
      AddCodes<kBits>(std::make_integer_sequence<int, kCodes>(), words, rows, group * kCodes, part);
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const hn::Rebind<uint16_t, FloatTag> d16;
        const hn::RebindToUnsigned<FloatTag> du;
        const auto half = hn::LoadU(d16, scales + (p * blocks + block) * kPanel + v * kFloatLanes);
        const Floats scale = hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, half)));
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) total[i][p][v] = hn::MulAdd(part[i][p][v], scale, total[i][p][v]);
      }
  }
  for (int i = 0; i < M; ++i)
    for (int p = 0; p < P; ++p)
      for (int v = 0; v < kVectors; ++v) hn::StoreU(total[i][p][v], d, sums + (i * P + p) * kPanel + v * kFloatLanes);
}

template <int kBits, int P>
void RowsOf(int rows, const PackedWeight& weight, int64_t panel, const float* x, int64_t ldx, float* sums) {
  switch (rows) {
    case 1:
      return Tile<kBits, 1, P>(weight, panel, x, ldx, sums);
    case 2:
      return Tile<kBits, 2, P>(weight, panel, x, ldx, sums);
#if HWY_MAX_BYTES >= 64
    case 3:
      return Tile<kBits, 3, P>(weight, panel, x, ldx, sums);
    default:
      return Tile<kBits, 4, P>(weight, panel, x, ldx, sums);
#endif
  }
}

// sums [M][P][16] -> C, of which `columns` columns from `column` on exist.
void finish(const GemmArgs& g, const float* sums, int64_t stride, int64_t row, int rows, int64_t column,
            int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t place = (row + i) * g.ldc + column;
    const float *from = sums + i * stride, *residual = g.residual ? g.residual + place : nullptr;
    float* out = g.c + place;
    ForRow(columns, [=, &g](const auto& at) LINNET_LAMBDA {
      Floats value = at.load(from);
      if (residual) value = hn::Add(value, at.load(residual));
      if (g.bias) value = hn::Add(value, at.load(g.bias + column));
      if (g.activation == GemmActivation::kRelu) value = hn::IfThenZeroElse(hn::Lt(value, hn::Zero(d)), value);
      at.store(value, out);
    });
  }
  if (tile::has_epilogue(g)) tile::Epilogue<FloatTag>(g, g.c + row * g.ldc + column, rows, columns);
}

template <int kBits>
void strip(const GemmArgs& g, const PackedWeight& weight, int64_t first_panel, int64_t last_panel) {
  HWY_ALIGN float sums[kMostRows * kMostPanels * kPanel];
  for (int64_t panel = first_panel; panel < last_panel;) {
    const bool wide = last_panel - panel >= kMostPanels;
    const int64_t columns = std::min((wide ? kMostPanels : 1) * kPanel, weight.shape.rows - panel * kPanel);
    for (int64_t row = 0; row < g.m; row += kMostRows) {
      const int rows = static_cast<int>(std::min<int64_t>(kMostRows, g.m - row));
      (wide ? RowsOf<kBits, kMostPanels> : RowsOf<kBits, 1>)(rows, weight, panel, g.a + row * g.lda, g.lda, sums);
      finish(g, sums, (wide ? kMostPanels : 1) * kPanel, row, rows, panel * kPanel, columns);
    }
    panel += wide ? kMostPanels : 1;
  }
}

void few_rows(const GemmArgs& g, const PackedWeight& weight, ThreadPool& pool) {
  // A task reads some 100 KB of weights.
  const int64_t panels = weight.shape.panels(),
                step =
                    std::max<int64_t>(1, (int64_t{1} << 17) / weight.shape.panel_bytes() / kMostPanels) * kMostPanels;
  pool.run((panels + step - 1) / step, [&](int64_t task, int) {
    const int64_t first = task * step, last = std::min(panels, first + step);
    (weight.shape.format == WeightFormat::kInt4Blocks ? strip<4> : strip<8>)(g, weight, first, last);
  });
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(few_rows);

constexpr int64_t kFewRows = 8;
constexpr int64_t kStripFloats = int64_t{1} << 20;  // of a weight in fp32

int64_t strip_rows(const PackedShape& shape) {
  const int64_t rows =
      std::max<int64_t>(PackedShape::kPanel, kStripFloats / shape.columns / PackedShape::kPanel * PackedShape::kPanel);
  return std::min(rows, shape.rows);
}

size_t strip_bytes(const PackedShape& shape) {
  return (static_cast<size_t>(strip_rows(shape) * shape.columns) * sizeof(float) + 63) / 64 * 64;
}

}  // namespace

size_t gemm_blocks_workspace(const PackedShape& shape, int64_t m, int threads) {
  if (m <= kFewRows || shape.rows == 0) return 0;
  size_t most = 0;  // of a whole strip and of the last
  for (const int64_t n : {strip_rows(shape), shape.rows % strip_rows(shape)})
    most = std::max(most, gemm_workspace(1, m, n, shape.columns, threads));
  return strip_bytes(shape) + most;
}

void gemm_blocks(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool) {
  if (args.m <= kFewRows || args.independent_rows) return HWY_DYNAMIC_DISPATCH(few_rows)(args, weight, pool);
  auto* values = reinterpret_cast<float*>(workspace);
  const PackedShape& shape = weight.shape;
  for (int64_t begin = 0; begin < shape.rows; begin += strip_rows(shape)) {
    const int64_t end = std::min(shape.rows, begin + strip_rows(shape));
    dequantize_rows(weight, begin, end, values, pool);
    GemmArgs part = args;
    part.n = end - begin, part.k = shape.columns;
    part.b = values, part.ldb = shape.columns, part.trans_b = true;
    part.c += begin;
    if (part.bias) part.bias += begin;
    if (part.residual) part.residual += begin;
    gemm(part, workspace + strip_bytes(shape), pool);
  }
}

}  // namespace linnet
#endif
