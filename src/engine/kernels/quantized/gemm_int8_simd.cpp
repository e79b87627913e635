#include <cstring>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#include "base/numbers.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/quantized/products.h"

#define HWY_TARGET_INCLUDE "engine/kernels/quantized/gemm_int8_simd.cpp"
#include <hwy/foreach_target.h>

// See gemm_bf16_simd.cpp: Highway's AVX-512 target and one extension more.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#endif
#include "engine/kernels/gemm/gemm_epilogue-inl.h"
#include "engine/kernels/quantized/byte_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
constexpr int64_t kPanel = PackedShape::kPanel, kBlock = PackedShape::kBlock;

int64_t padded(int64_t k) { return round_up(k, kBlock); }

// Codes of a block of rows of activations, which stays in L2 while it is multiplied.
constexpr int64_t kCodesInCache = 192 << 10;

// Rounds k numbers, load(position), by the largest magnitude among them. Returns their scale.
template <class Load> HWY_INLINE float round_numbers(int64_t k, const Load& load, uint8_t* codes) {
  const float top = CodedMagnitude(LargestBits(k, load));
  if (!(top > 0)) {
    std::fill_n(codes, padded(k), uint8_t{128});
    return top;
  }
  const Floats inverse = SetAll(127 / top);
  ForRow(k, [=](const auto& at) LINNET_LAMBDA {
    // Adding 1.5 * 2^23 + 128 rounds to an integer, ties to even, on every processor alike. Zeros pad the row.
    const auto bits = hn::BitCast(IntTag(), hn::Add(hn::Mul(load(at), inverse), SetAll(12582912.0f + 128.0f)));
    hn::StoreU(hn::DemoteTo(ByteTag(), hn::And(bits, hn::Set(IntTag(), 0xff))), ByteTag(), codes + at.first);
  });
  std::fill(codes + round_up(k, kFloatLanes), codes + padded(k), uint8_t{128});
  return top / 127;
}

// Whether operands may be bf16 in memory, which needs gemm_has_bf16().
constexpr bool kMayBeBf16 = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64;

RowScales round_row(StoredFloats x, int64_t k, uint8_t* codes, float largest_error, uint8_t* rest) {
  const auto load = [=](const auto& at) LINNET_LAMBDA {
    if constexpr (kMayBeBf16) return at.load(x);
    else return at.load(x.f32());
  };
  const float scale = round_numbers(k, load, codes);
  if (!(largest_error > 0 && scale > 0)) return {scale};
  const auto remainder = [=](const auto& at) LINNET_LAMBDA {
    const auto code = hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), hn::LoadU(ByteTag(), codes + at.first)));
    return hn::Sub(load(at), hn::Mul(hn::Sub(code, SetAll(128)), SetAll(scale)));
  };
  const float missed = SumRow(k, [=](const auto& at) LINNET_LAMBDA { return hn::Abs(remainder(at)); });
  const float all = SumRow(k, [=](const auto& at) LINNET_LAMBDA { return hn::Abs(load(at)); });
  if (missed <= largest_error * all) return {scale};
  return {scale, round_numbers(k, remainder, rest)};
}

// Multiplying by 1 / scale gives the quotient with an error of at most 2e-4 if it is small enough for a code, so the
// same integer unless it is that close to a tie, or NaN. Only then does it divide, which takes several times as long.
void round_by(const float* x, int64_t k, const StaticRounding& rounding, uint8_t* codes) {
  const FloatTag d;
  const Floats scale = SetAll(rounding.scale), zero = SetAll(static_cast<float>(rounding.zero)),
               least = SetAll(static_cast<float>(rounding.least)), most = SetAll(static_cast<float>(rounding.most));
  const Floats inverse = SetAll(1 / rounding.scale), sure = SetAll(0.4998F);
  ForRow(k, [=](const auto& at) LINNET_LAMBDA {
    const Floats values = at.load(x), quotient = hn::Mul(values, inverse);
    Floats whole = hn::Round(quotient);
    if (!hn::AllTrue(d, hn::Lt(hn::Abs(hn::Sub(quotient, whole)), sure))) whole = hn::Round(hn::Div(values, scale));
    const Floats code = hn::Add(whole, zero);
    const Floats limited = hn::IfThenElse(hn::Gt(code, least), hn::Min(code, most), least);
    at.store_bytes(hn::DemoteTo(ByteTag(), hn::ConvertTo(IntTag(), limited)), codes);
  });
}

struct Rounded {         // A as bytes
  const uint8_t* codes;  // [m][depth]
  const float* scales;
  const uint8_t* rest = nullptr;       // what rounding left over of the rows whose rest_scales are not 0
  const float* rest_scales = nullptr;  // null: of none
  bool has_rest(int64_t row) const { return rest_scales && rest_scales[row] > 0; }
};

// sums [rows][columns], and those of the rests, to those rows and columns of C, whose numbers go to `c`, rows c_stride
// apart. Without fused multiply-add, which some instruction sets lack.
void finish_tile(const GemmArgs& g, const PackedWeight& weight, const Rounded& a, const int32_t* sums,
    const int32_t* rest_sums, int64_t sums_stride, int64_t first_row, int64_t rows, int64_t column, int64_t columns,
    float* c, int64_t c_stride) {
  const float* scales = weight.row_scales() + column;
  for (int64_t i = 0; i < rows; ++i) {
    float* out = c + i * c_stride;
    const float* residual = g.residual ? g.residual.f32() + (first_row + i) * g.ldc + column : nullptr;
    const Floats row_scale = SetAll(a.scales[first_row + i]);
    const int32_t* row = sums + i * sums_stride;
    const int32_t* rest = a.has_rest(first_row + i) ? rest_sums + i * sums_stride : nullptr;
    const Floats rest_scale = SetAll(rest ? a.rest_scales[first_row + i] : 0);
    ForRow(columns, [=, &g](const auto& at) LINNET_LAMBDA {
      const Floats of_weight = LoadFloats(scales + at.first);  // panels are whole: readable
      Floats x = hn::Mul(FloatsOf(row + at.first), hn::Mul(row_scale, of_weight));
      if (rest) x = hn::Add(x, hn::Mul(FloatsOf(rest + at.first), hn::Mul(rest_scale, of_weight)));
      if (residual) x = hn::Add(x, at.load(residual));
      if (g.bias) x = hn::Add(x, at.load(g.bias + column));
      if (g.activation == GemmActivation::kRelu) x = Relu(x);
      at.store(x, out);
    });
  }
}

// Rows [first, last) of A by columns [begin, end) of C, whole tiles except at the end. With bytes.c tiles stay in L1.
template <class Tiles> void multiply(const GemmArgs& g, const PackedWeight& weight, const Rounded& a, int64_t first,
    int64_t last, int64_t begin, int64_t end, const ByteOperands& bytes = {}) {
  const int64_t depth = padded(weight.shape.columns), panel_bytes = weight.shape.panel_bytes();
  constexpr int64_t kStride = Tiles::kPanels * kPanel;
  HWY_ALIGN int32_t sums[Tiles::kRows * kStride], rest_sums[Tiles::kRows * kStride];
  HWY_ALIGN float numbers[Tiles::kRows * kStride];
  const bool is_stored = kMayBeBf16 && has_bf16_results(g), in_place = !is_stored && !bytes.c;
  GemmArgs apart = is_stored ? GemmArgs{} : g;  // of a tile's numbers
  apart.c = numbers, apart.ldc = kStride;
  for (int64_t column = begin; column < end; column += kStride) {
    const int64_t columns = std::min(kStride, weight.shape.rows - column);
    const int panels = static_cast<int>(ceil_div(columns, kPanel));
    for (int64_t row = first; row < last; row += Tiles::kRows) {
      const int rows = static_cast<int>(std::min<int64_t>(Tiles::kRows, last - row));
      const int8_t* codes = weight.codes(column / kPanel);
      const int32_t* start = weight.sums() + column;
      const auto add_up = [&]<int M>(const uint8_t* from, int32_t* to) LINNET_LAMBDA {
        WithConstant<Tiles::kPanels>(panels, [&]<int P>() LINNET_LAMBDA {
          Tiles::template Tile<M, P>(WholeRows{from, depth}, codes, panel_bytes, start, to, kStride);
        });
      };
      WithConstant<Tiles::kRows>(
          rows, [&]<int M>() LINNET_LAMBDA { add_up.template operator()<M>(a.codes + row * depth, sums); });
      for (int i = 0; i < rows; ++i)
        if (a.has_rest(row + i)) add_up.template operator()<1>(a.rest + (row + i) * depth, rest_sums + i * kStride);
      float* c = in_place ? g.c.f32() + row * g.ldc + column : numbers;
      finish_tile(is_stored ? apart : g, weight, a, sums, rest_sums, kStride, row, rows, column, columns, c,
          in_place ? g.ldc : kStride);
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
      if (is_stored) {
        tile::FinishApart(g, numbers, kStride, row, column, rows, columns);
        continue;
      }
#endif
      if (tile::has_epilogue(g)) tile::Epilogue<tile::UnitOfBytes>(in_place ? g : apart, c, rows, columns);
      for (int64_t i = 0; bytes.c && i < rows; ++i)
        round_by(numbers + i * kStride, columns, bytes.result_rounding, bytes.c + (row + i) * g.ldc + column);
    }
  }
}

template <class Tiles> void run_product(const GemmArgs& g, const PackedWeight& weight, const StaticRounding& rounding,
    const ByteOperands& bytes, std::byte* workspace, ThreadPool& pool) {
  const int64_t n = weight.shape.rows, k = weight.shape.columns, depth = padded(k);
  const bool are_rounded = bytes.a && depth == k;  // and need no padding
  const int64_t size = are_rounded ? 0 : round_up(g.m * depth, int64_t{64});
  const bool has_rests = rounding.scale == 0 && rounding.largest_error > 0;
  auto* written = reinterpret_cast<uint8_t*>(workspace);
  uint8_t* rest = written + size;
  auto* row_scales = reinterpret_cast<float*>(rest + (has_rests ? size : 0));
  float* rest_scales = has_rests ? row_scales + g.m : nullptr;
  const Rounded rounded{are_rounded ? bytes.a : written, row_scales, rest, rest_scales};
  // Sums are exact, so dividing the work changes no bit.
  const int64_t rows_of_task = std::max<int64_t>(1, (int64_t{1} << 15) / depth);
  const auto round = [&](int64_t row) {
    uint8_t* to = written + row * depth;
    row_scales[row] = rounding.scale;
    if (rounding.scale == 0) {
      const RowScales found = round_row(g.a + row * g.lda, k, to, rounding.largest_error, rest + row * depth);
      row_scales[row] = found.scale;
      if (has_rests) rest_scales[row] = found.rest_scale;
      return;
    }
    if (bytes.a) std::memcpy(to, bytes.a + row * k, static_cast<size_t>(k));
    else round_by(g.a.f32() + row * g.lda, k, rounding, to);
    std::fill(to + k, to + depth, static_cast<uint8_t>(rounding.zero));
  };
  if (are_rounded) {
    std::fill_n(row_scales, g.m, rounding.scale);
  } else {
    for_steps(pool, g.m, rows_of_task, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) round(row);
    });
  }
  constexpr int64_t kTileColumns = Tiles::kPanels * kPanel;
  const int64_t block_rows =
      std::min(g.m, std::max<int64_t>(Tiles::kRows, kCodesInCache / depth / Tiles::kRows * Tiles::kRows));
  // A task takes some tens of microseconds: by its multiplications, or by the weights that it reads.
  const int64_t most_work = std::max(int64_t{1} << 17, (int64_t{1} << 23) / block_rows);
  const int64_t strip = round_up(std::min(n, std::max<int64_t>(1, most_work / depth)), kTileColumns);
  const int64_t strips = ceil_div(n, strip), blocks = ceil_div(g.m, block_rows);
  pool.run(strips * blocks, [&](int64_t task, int) {
    const int64_t row = task / strips * block_rows, column = task % strips * strip;
    multiply<Tiles>(
        g, weight, rounded, row, std::min(g.m, row + block_rows), column, std::min(n, column + strip), bytes);
  });
}

#if HWY_TARGET == HWY_AVX3
bool cpu_has_vnni() {
  static const bool has = __builtin_cpu_supports("avx512vnni");
  return has;
}
#elif HWY_ARCH_ARM_A64
bool cpu_has_vnni() {  // sdot, which does the same
  static const bool has = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  return has;
}
#else
bool cpu_has_vnni() { return false; }
#endif

// Uses this processor's struct for byte products (byte_tiles-inl.h).
void product(const GemmArgs& g, const PackedWeight& weight, const StaticRounding& rounding, const ByteOperands& bytes,
    [[maybe_unused]] bool vnni, std::byte* workspace, ThreadPool& pool) {
#if HWY_TARGET == HWY_AVX3
  if (vnni && cpu_has_vnni()) return run_product<VnniTiles>(g, weight, rounding, bytes, workspace, pool);
#endif
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if (rounding.any_weight) return run_product<SplitPairTiles>(g, weight, rounding, bytes, workspace, pool);
  run_product<PairTiles>(g, weight, rounding, bytes, workspace, pool);
#elif HWY_ARCH_ARM_A64
  if (vnni && cpu_has_vnni()) return run_product<DotTiles>(g, weight, rounding, bytes, workspace, pool);
  run_product<NeonTiles>(g, weight, rounding, bytes, workspace, pool);
#else
  run_product<PlainTiles>(g, weight, rounding, bytes, workspace, pool);
#endif
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_TARGET == HWY_AVX3
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(cpu_has_vnni);
HWY_EXPORT(product);
HWY_EXPORT(round_row);
HWY_EXPORT(round_by);

std::atomic<bool> g_vnni_disabled = false;
}  // namespace

bool has_vnni() { return !g_vnni_disabled && HWY_DYNAMIC_DISPATCH(cpu_has_vnni)(); }
void disable_vnni_for_test(bool disabled) { g_vnni_disabled = disabled; }

RowScales quantize_activations(StoredFloats x, int64_t k, uint8_t* codes, float largest_error, uint8_t* rest) {
  return HWY_DYNAMIC_DISPATCH(round_row)(x, k, codes, largest_error, rest);
}

void quantize_activations(const float* x, int64_t k, const StaticRounding& rounding, uint8_t* codes) {
  round_to_codes(x, k, rounding, codes);
  std::fill(codes + k, codes + round_up(k, PackedShape::kBlock), static_cast<uint8_t>(rounding.zero));
}

void round_to_codes(const float* x, int64_t k, const StaticRounding& rounding, uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(round_by)(x, k, rounding, codes);
}

size_t quantized_gemm_workspace(
    const PackedShape& shape, int64_t m, bool few, int threads, bool codes, bool remainders) {
  if (shape.format == WeightFormat::kBf16) return gemm_strips_workspace(shape, m, threads);
  if (shape.format != WeightFormat::kInt8) return gemm_blocks_workspace(shape, m, few, threads);
  const int64_t depth = shape.blocks() * PackedShape::kBlock;
  const int64_t written = codes && depth == shape.columns ? 0 : round_up(m * depth, 64);
  return static_cast<size_t>(1 + remainders) * (static_cast<size_t>(written) + static_cast<size_t>(m) * sizeof(float));
}

void quantized_gemm(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool,
    const StaticRounding& rounding, const ByteOperands& bytes) {
  if (args.m == 0 || weight.shape.rows == 0) return;
  if (weight.shape.format == WeightFormat::kBf16) return gemm_strips(args, weight, workspace, pool);
  if (weight.shape.format != WeightFormat::kInt8) return gemm_blocks(args, weight, workspace, pool);
  HWY_DYNAMIC_DISPATCH(product)(args, weight, rounding, bytes, has_vnni(), workspace, pool);
}
}  // namespace linnet
#endif
