// Products of weights in blocks (packed_weight.h) with activations of 16 bits, a few rows by panels of 16 columns. One
// struct for each way that processors have; all give the same bits.
//
// Each has kOneRow and kMostRows (a tile is one row by kOneRow panels, or 1, 2 or 4 rows by one panel),
//   raised(format): what it adds to the weight's codes as it reads them,
//   store(bits, codes, block): 32 codes in the form that it reads, and
//   run<format>(rows, panels, weight, panel, x, stride, sums):
//     sums[i * panels * 16 + j] = sum over blocks b of
//         (sum over a part of the block of code * x code) * (x scale * scale) [ - x sum * minimum]
// with x[i * stride + b] the block b of row i. Inner sums are integers, outer ones fp32 in the order of blocks and
// parts, without fused multiply-add.
#include "engine/kernels/gemm/gemm_epilogue-inl.h"
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
// Formats of few files take a row at a time, which keeps programs small.
constexpr bool has_tall_tiles(WeightFormat format) {
  return format != WeightFormat::kQ4_1 && format != WeightFormat::kQ5_0 && format != WeightFormat::kQ5_1;
}

struct PlainBlocks {
  static constexpr int kOneRow = 1, kMostRows = 4;
  static constexpr int raised(const BlockFormat&) { return 0; }

  static void store(int bits, const int32_t* codes, ActivationBlock& block) { store_pairs(bits, codes, block); }

  template <WeightFormat kFormat> static void run(
      int rows, int, const PackedWeight& weight, int64_t panel, const ActivationBlock* x, int64_t stride, float* sums) {
    constexpr BlockFormat kBlocks = block_format(kFormat);
    constexpr int kBits = kBlocks.bits, kCodes = 32 / kBits, kPanel = 16, kGroups = 32 / kCodes / kBlocks.parts;
    const int64_t blocks = weight.shape.blocks();
    const int8_t* w = weight.codes(panel);
    const std::byte* scales = weight.block_scales(panel);
    for (int i = 0; i < rows * kPanel; ++i) sums[i] = 0;
    for (int64_t block = 0; block < blocks; ++block, w += weight.shape.block_bytes())
      for (int j = 0; j < kPanel; ++j)
        for (int part = 0; part < kBlocks.parts; ++part) {
          const float scale = block_number(kBlocks, scales, block, j, part);
          for (int i = 0; i < rows; ++i) {
            const ActivationBlock& activations = x[i * stride + block];
            int32_t sum = 0;
            for (int group = part * kGroups; group < (part + 1) * kGroups; ++group) {
              const auto word = static_cast<uint32_t>(FourBytes(w + (group * kPanel + j) * 4));
              for (int t = 0; t < kCodes; ++t) {
                int code = static_cast<int>(word >> (kBits * t)) & ((1 << kBits) - 1);
                if (kBlocks.high_bits > 0) {
                  const int bit = (group * 2 + t % 2) * kBlocks.high_bits;
                  const int high = static_cast<uint8_t>(w[256 + bit / 8 * 64 + j * 4 + t / 2]) >> bit % 8;
                  code |= (high & ((1 << kBlocks.high_bits) - 1)) << 4;
                }
                if (kBlocks.is_signed)
                  code = static_cast<int>(static_cast<uint32_t>(code) << (32 - kBits)) >> (32 - kBits);
                sum += (code - kBlocks.zero) * activations.pairs[group * kCodes + pair_slot(kBits, t)];
              }
            }
            float& total = sums[i * kPanel + j];
            total = total + static_cast<float>(sum) * (activations.scale * scale);
            if (kBlocks.minimum && part == kBlocks.parts - 1)
              total = total - activations.sum * block_number(kBlocks, scales, block, j, kBlocks.parts);
          }
        }
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Eight of a panel's scales from column 8 h on, or with the number `part` behind the last part of the minimums.
template <WeightFormat kFormat>
HWY_INLINE __m256 BlockNumbers(const std::byte* scales, int64_t block, int part, int h) {
  constexpr BlockFormat kBlocks = block_format(kFormat);
  const std::byte* unit = scales + block / kBlocks.unit * kBlocks.scale_bytes();
  const std::byte* halves = unit + (part == kBlocks.parts ? 32 : 0) + 16 * h;
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves));
  __m256 numbers = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  if constexpr (!kBlocks.bf16) numbers = _mm256_cvtph_ps(bits);
  if constexpr (kBlocks.unit > 1) {
    const int64_t of_block = block % kBlocks.unit * (kBlocks.parts + kBlocks.minimum) + part;
    const std::byte* integers = unit + kBlocks.integers_offset() + of_block * 16 + 8 * h;
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(integers));
    numbers = _mm256_mul_ps(numbers, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)));
  }
  return numbers;
}

#endif

#if HWY_TARGET == HWY_AVX2
// vpmaddwd multiplies 16-bit neighbors and adds them in 32 bits.
struct PairBlocks {
  static constexpr int kOneRow = 1, kMostRows = 4;
  static constexpr int raised(const BlockFormat& blocks) { return blocks.zero; }

  static void store(int bits, const int32_t* codes, ActivationBlock& block) { store_pairs(bits, codes, block); }

  // The codes of each word as 16-bit pairs, number `step` of them: the order of ActivationBlock::pairs. `high` has the
  // high bits of codes of 5 or 6, this pair's from bit `high_bit` on.
  template <WeightFormat kFormat, int step> static HWY_INLINE __m256i Pair(__m256i words, __m256i high, int high_bit) {
    constexpr BlockFormat kBlocks = block_format(kFormat);
    constexpr int kBits = kBlocks.bits;
    if constexpr (kBlocks.is_signed)
      return _mm256_srai_epi16(_mm256_slli_epi16(words, 16 - kBits - kBits * step), 16 - kBits);
    __m256i codes = _mm256_and_si256(_mm256_srli_epi16(words, kBits * step), _mm256_set1_epi16(15));
    if constexpr (kBlocks.high_bits > 0) {
      const __m256i moved =
          high_bit > 4 ? _mm256_srli_epi16(high, high_bit - 4) : _mm256_slli_epi16(high, 4 - high_bit);
      codes = _mm256_or_si256(codes, _mm256_and_si256(moved, _mm256_set1_epi16(kBlocks.high_bits == 1 ? 16 : 48)));
    }
    return codes;
  }

  template <WeightFormat kFormat, int step, int M> static HWY_INLINE void AddPair(const __m256i (&words)[2],
      const __m256i (&highs)[2], int high_bit, const ActivationBlock* const (&x)[M], int at, __m256i (&sum)[M][2]) {
    const __m256i low = Pair<kFormat, step>(words[0], highs[0], high_bit),
                  high = Pair<kFormat, step>(words[1], highs[1], high_bit);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const __m256i pair = _mm256_set1_epi32(FourBytes(x[i]->pairs + at + 2 * step));
      sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(low, pair));
      sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(high, pair));
    }
  }

  template <WeightFormat kFormat, int M> static HWY_NOINLINE void Tile(
      const PackedWeight& weight, int64_t panel, const ActivationBlock* x, int64_t stride, float* sums) {
    constexpr BlockFormat kBlocks = block_format(kFormat);
    constexpr int kBits = kBlocks.bits, kHigh = kBlocks.high_bits;
    const int64_t blocks = weight.shape.blocks();
    const int8_t* w = weight.codes(panel);
    const std::byte* scales = weight.block_scales(panel);
    __m256 total[M][2];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) total[i][0] = total[i][1] = _mm256_setzero_ps();
    for (int64_t block = 0; block < blocks; ++block, w += 64 * (kBits + kHigh)) {
      const ActivationBlock* rows[M];
      __m256i sum[M][2];
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        rows[i] = x + i * stride + block;
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
      }
#pragma GCC unroll 8
      for (int group = 0; group < kBits; ++group) {
        const auto load = [&](int64_t offset)
                              HWY_ATTR { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + offset)); };
        const __m256i words[2] = {load(group * 64), load(group * 64 + 32)};
        const int first_bit = 2 * group * kHigh, at = group * (32 / kBits);
        __m256i highs[2] = {words[0], words[1]};
        if constexpr (kHigh > 0)
          highs[0] = load(256 + first_bit / 8 * 64), highs[1] = load(256 + first_bit / 8 * 64 + 32);
        const int bit = first_bit % 8;
        AddPair<kFormat, 0>(words, highs, bit, rows, at, sum);
        AddPair<kFormat, 1>(words, highs, bit + kHigh, rows, at, sum);
        if constexpr (kBits == 4) {
          AddPair<kFormat, 2>(words, highs, bit + 8, rows, at, sum);
          AddPair<kFormat, 3>(words, highs, bit + 8 + kHigh, rows, at, sum);
        }
        if ((group + 1) % (kBits / kBlocks.parts) == 0)
          AddPart<kFormat>(scales, block, group * kBlocks.parts / kBits, rows, sum, total);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) _mm256_storeu_ps(sums + i * 16 + 8 * h, total[i][h]);
  }

  // Adds the sums of a part to the totals, and leaves zeros.
  template <WeightFormat kFormat, int M> static HWY_INLINE void AddPart(const std::byte* scales, int64_t block,
      int part, const ActivationBlock* const (&x)[M], __m256i (&sum)[M][2], __m256 (&total)[M][2]) {
    constexpr BlockFormat kBlocks = block_format(kFormat);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256 scale = BlockNumbers<kFormat>(scales, block, part, h);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        if constexpr (kBlocks.zero > 0) sum[i][h] = _mm256_sub_epi32(sum[i][h], _mm256_set1_epi32(x[i]->excess[part]));
        const __m256 both = _mm256_mul_ps(_mm256_set1_ps(x[i]->scale), scale);
        total[i][h] = _mm256_add_ps(total[i][h], _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][h]), both));
        sum[i][h] = _mm256_setzero_si256();
      }
      if constexpr (kBlocks.minimum) {
        const __m256 minimum = BlockNumbers<kFormat>(scales, block, kBlocks.parts, h);
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i)
          total[i][h] = _mm256_sub_ps(total[i][h], _mm256_mul_ps(_mm256_set1_ps(x[i]->sum), minimum));
      }
    }
  }

  template <WeightFormat kFormat> static void run(
      int rows, int, const PackedWeight& weight, int64_t panel, const ActivationBlock* x, int64_t stride, float* sums) {
    if constexpr (has_tall_tiles(kFormat)) {
      if (rows == 4) return Tile<kFormat, 4>(weight, panel, x, stride, sums);
      if (rows == 2) return Tile<kFormat, 2>(weight, panel, x, stride, sums);
    }
    for (int i = 0; i < rows; ++i)
      Tile<kFormat, 1>(weight, panel, x + i * stride, stride, sums + i * PackedShape::kPanel);
  }
};
#endif

#if HWY_TARGET == HWY_AVX3
// vpdpbusd multiplies unsigned by signed bytes: the weight's codes, signed ones with 128 (of 8 bits) or 8 (of 4) added,
// and an activation q as two bytes of its own sign:
//   sum q code = 256 sum high raised + sum low raised - raised(format) sum q.
struct VnniBlocks {
  static constexpr int kOneRow = 4, kMostRows = 4;
  static constexpr int raised(const BlockFormat& blocks) {
    return !blocks.is_signed ? blocks.zero : blocks.bits == 4 ? 8 : 128;
  }

  static void store(int bits, const int32_t* codes, ActivationBlock& block) {
    const __m256i even_first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));  // in every word of 8 columns
    const __m512i q[2] = {_mm512_loadu_si512(codes), _mm512_loadu_si512(codes + 16)};
    __m128i high[2], low[2];
    for (int h = 0; h < 2; ++h) {
      const __m512i top = _mm512_srai_epi32(_mm512_add_epi32(q[h], _mm512_set1_epi32(128)), 8);
      high[h] = _mm512_cvtepi32_epi8(top);
      low[h] = _mm512_cvtepi32_epi8(q[h]);
    }
    __m256i highs = _mm256_set_m128i(high[1], high[0]), lows = _mm256_set_m128i(low[1], low[0]);
    if (bits == 4) highs = _mm256_shuffle_epi8(highs, even_first), lows = _mm256_shuffle_epi8(lows, even_first);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.high), highs);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.low), lows);
  }

  template <WeightFormat kFormat> static HWY_INLINE __m512 Numbers(const std::byte* scales, int64_t block, int part) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(BlockNumbers<kFormat>(scales, block, part, 0)),
        BlockNumbers<kFormat>(scales, block, part, 1), 1);
  }

  template <WeightFormat kFormat, int M, int P> static HWY_NOINLINE void Tile(
      const PackedWeight& weight, int64_t panel, const ActivationBlock* x, int64_t stride, float* sums) {
    constexpr BlockFormat kBlocks = block_format(kFormat);
    constexpr int kBits = kBlocks.bits, kHigh = kBlocks.high_bits;
    const int64_t blocks = weight.shape.blocks(), panel_bytes = weight.shape.panel_bytes(), next = P * panel_bytes;
    const int64_t scale_bytes = weight.shape.panel_scale_bytes();
    const int8_t* w = weight.codes(panel);
    const std::byte* scales = weight.block_scales(panel);
    const __m512i nibble = _mm512_set1_epi8(15), raise = _mm512_set1_epi8(kBits == 4 ? 8 : -128),
                  high_mask = _mm512_set1_epi8(kHigh == 1 ? 16 : 48);
    constexpr int kRaisedNibble = 0x6a;  // (words & nibble) ^ raise
    constexpr int kWithHigh = 0xf8;      // codes | (high & mask)
    __m512 total[M][P];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) total[i][p] = _mm512_setzero_ps();
    for (int64_t block = 0; block < blocks; ++block, w += 64 * (kBits + kHigh)) {
      __m512i high[M][P], low[M][P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) high[i][p] = low[i][p] = _mm512_setzero_si512();
      const auto add = [&](__m512i raised, int p, int at) HWY_ATTR __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) {
          const ActivationBlock& from = x[i * stride + block];
          high[i][p] = _mm512_dpbusd_epi32(high[i][p], raised, _mm512_set1_epi32(FourBytes(from.high + at)));
          low[i][p] = _mm512_dpbusd_epi32(low[i][p], raised, _mm512_set1_epi32(FourBytes(from.low + at)));
        }
      };
      // The even (odd = 0) or odd columns of a word of 4-bit codes.
      const auto codes = [&](__m512i words, const int8_t* highs, int bit) HWY_ATTR __attribute__((always_inline)) {
        if constexpr (kBlocks.is_signed) return _mm512_ternarylogic_epi32(words, nibble, raise, kRaisedNibble);
        if constexpr (kHigh == 0) return _mm512_and_si512(words, nibble);
        const __m512i of_block = _mm512_loadu_si512(highs + bit / 8 * 64);
        const int shift = bit % 8 - 4;
        const __m512i moved = shift > 0 ? _mm512_srli_epi32(of_block, static_cast<unsigned>(shift))
                                        : _mm512_slli_epi32(of_block, static_cast<unsigned>(-shift));
        return _mm512_ternarylogic_epi32(_mm512_and_si512(words, nibble), moved, high_mask, kWithHigh);
      };
#pragma GCC unroll 8
      for (int group = 0; group < kBits; ++group) {
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const int8_t* from = w + p * panel_bytes;
          const __m512i words = _mm512_loadu_si512(from + group * 64);
          // Prefetches the same offset of the next panels: they are too short for hardware prefetching.
          _mm_prefetch(reinterpret_cast<const char*>(from + group * 64 + next), _MM_HINT_T1);
          if constexpr (kBits == 8) {
            add(_mm512_xor_si512(words, raise), p, group * 4);
          } else {
            if (group < kHigh) _mm_prefetch(reinterpret_cast<const char*>(from + (4 + group) * 64 + next), _MM_HINT_T1);
            add(codes(words, from + 256, 2 * group * kHigh), p, group * 8);
            add(codes(_mm512_srli_epi16(words, 4), from + 256, (2 * group + 1) * kHigh), p, group * 8 + 4);
          }
        }
        if ((group + 1) % (kBits / kBlocks.parts) != 0) continue;
        const int part = group * kBlocks.parts / kBits;
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const std::byte* of_panel = scales + p * scale_bytes;
          const std::byte* unit = of_panel + block / kBlocks.unit * kBlocks.scale_bytes();
          _mm_prefetch(reinterpret_cast<const char*>(unit + P * scale_bytes + block % kBlocks.unit * 32), _MM_HINT_T1);
          const __m512 scale = Numbers<kFormat>(of_panel, block, part);
          __m512 minimum = scale;
          if constexpr (kBlocks.minimum) minimum = Numbers<kFormat>(of_panel, block, kBlocks.parts);
#pragma GCC unroll 4
          for (int i = 0; i < M; ++i) {
            const ActivationBlock& of = x[i * stride + block];
            __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high[i][p], 8), low[i][p]);
            if constexpr (raised(kBlocks) > 0) sum = _mm512_sub_epi32(sum, _mm512_set1_epi32(of.excess[part]));
            const __m512 both = _mm512_mul_ps(_mm512_set1_ps(of.scale), scale);
            total[i][p] = _mm512_add_ps(total[i][p], _mm512_mul_ps(_mm512_cvtepi32_ps(sum), both));
            if constexpr (kBlocks.minimum)
              total[i][p] = _mm512_sub_ps(total[i][p], _mm512_mul_ps(_mm512_set1_ps(of.sum), minimum));
            high[i][p] = low[i][p] = _mm512_setzero_si512();
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) _mm512_storeu_ps(sums + (i * P + p) * 16, total[i][p]);
  }

  template <WeightFormat kFormat> static void run(int rows, int panels, const PackedWeight& weight, int64_t panel,
      const ActivationBlock* x, int64_t stride, float* sums) {
    if (panels == kOneRow) return Tile<kFormat, 1, kOneRow>(weight, panel, x, stride, sums);
    if constexpr (has_tall_tiles(kFormat)) {
      if (rows == 4) return Tile<kFormat, 4, 1>(weight, panel, x, stride, sums);
      if (rows == 2) return Tile<kFormat, 2, 1>(weight, panel, x, stride, sums);
    }
    for (int i = 0; i < rows; ++i)
      Tile<kFormat, 1, 1>(weight, panel, x + i * stride, stride, sums + i * PackedShape::kPanel);
  }
};
#endif
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
