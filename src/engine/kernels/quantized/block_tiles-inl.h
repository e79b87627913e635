// Products of weights in blocks (WeightFormat::kInt8Blocks, kInt4Blocks) with
// activations of 16 bits, a few rows by panels of 16 columns. One struct for
// each way that processors have; all give the same bits. Included by *_simd.cpp
// after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_QUANTIZED_BLOCK_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_QUANTIZED_BLOCK_TILES_INL_H_
#undef LINNET_KERNELS_QUANTIZED_BLOCK_TILES_INL_H_
#else
#define LINNET_KERNELS_QUANTIZED_BLOCK_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "engine/kernels/quantized/activation_block.h"
#include "engine/kernels/quantized/packed_weight.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

// Each has kOneRow and kMostRows (a tile is one row by kOneRow panels, or up to
// kMostRows rows by one panel),
//   store(bits, codes, block): 32 codes in the form that it reads, and
//   run<kBits>(rows, panels, weight, panel, x, stride, sums):
//     sums[i * panels * 16 + j] = sum over blocks b of  (sum over the block of
//     code * x code) * (x scale * scale)
// with x[i * stride + b] the block b of row i. The inner sums are integers, the
// outer ones fp32 in the order of blocks, multiplied and added apart.

HWY_INLINE int32_t FourBytes(const void* from) {
  int32_t four;
  std::memcpy(&four, from, sizeof four);
  return four;
}

// In plain C++.
struct PlainBlocks {
  static constexpr int kOneRow = 1, kMostRows = 4;

  static void store(int bits, const int32_t* codes, ActivationBlock& block) { store_pairs(bits, codes, block); }

  template <int kBits>
  static void run(int rows, int, const PackedWeight& weight, int64_t panel, const ActivationBlock* x, int64_t stride,
                  float* sums) {
    constexpr int kCodes = 32 / kBits, kPanel = 16;
    const int64_t blocks = weight.shape.blocks();
    const int8_t* w = weight.codes(panel);
    const uint16_t* scales = weight.block_scales(panel);
    for (int i = 0; i < rows * kPanel; ++i) sums[i] = 0;
    for (int64_t block = 0; block < blocks; ++block, w += weight.shape.block_bytes())
      for (int i = 0; i < rows; ++i) {
        const ActivationBlock& activations = x[i * stride + block];
        for (int j = 0; j < kPanel; ++j) {
          int32_t sum = 0;
          for (int group = 0; group < 32 / kCodes; ++group) {
            const auto word = static_cast<uint32_t>(FourBytes(w + (group * kPanel + j) * 4));
            for (int t = 0; t < kCodes; ++t)
              sum += (static_cast<int32_t>(word << (32 - kBits - kBits * t)) >> (32 - kBits)) *
                     activations.pairs[group * kCodes + pair_slot(kBits, t)];
          }
          const uint32_t bits = static_cast<uint32_t>(scales[block * kPanel + j]) << 16;
          float scale;
          std::memcpy(&scale, &bits, sizeof scale);
          const float term = static_cast<float>(sum) * (activations.scale * scale);
          sums[i * kPanel + j] = sums[i * kPanel + j] + term;
        }
      }
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// vpmaddwd multiplies 16-bit neighbors and adds them in 32 bits.
struct PairBlocks {
  static constexpr int kOneRow = 1, kMostRows = 4;

  static void store(int bits, const int32_t* codes, ActivationBlock& block) { store_pairs(bits, codes, block); }

  // The codes of each word as 16-bit pairs, number `step` of them: the order of
  // ActivationBlock::pairs.
  template <int kBits, int step>
  static HWY_INLINE __m256i Pair(__m256i words) {
    return _mm256_srai_epi16(_mm256_slli_epi16(words, 16 - kBits - kBits * step), 16 - kBits);
  }

  template <int kBits, int step, int M>
  static HWY_INLINE void AddPair(const __m256i (&words)[2], const ActivationBlock* const (&x)[M], int at,
                                 __m256i (&sum)[M][2]) {
    const __m256i low = Pair<kBits, step>(words[0]), high = Pair<kBits, step>(words[1]);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const __m256i pair = _mm256_set1_epi32(FourBytes(x[i]->pairs + at + 2 * step));
      sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(low, pair));
      sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(high, pair));
    }
  }

  template <int kBits, int M>
  static HWY_NOINLINE void Tile(const PackedWeight& weight, int64_t panel, const ActivationBlock* x, int64_t stride,
                                float* sums) {
    const int64_t blocks = weight.shape.blocks();
    const int8_t* w = weight.codes(panel);
    const uint16_t* scales = weight.block_scales(panel);
    __m256 total[M][2];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) total[i][0] = total[i][1] = _mm256_setzero_ps();
    for (int64_t block = 0; block < blocks; ++block) {
      const ActivationBlock* rows[M];
      __m256i sum[M][2];
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        rows[i] = x + i * stride + block;
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
      }
#pragma GCC unroll 8
      for (int group = 0; group < kBits; ++group, w += 64) {
        const __m256i words[2] = {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)),
                                  _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32))};
        const int at = group * (32 / kBits);
        AddPair<kBits, 0>(words, rows, at, sum);
        AddPair<kBits, 1>(words, rows, at, sum);
        if constexpr (kBits == 4) {
          AddPair<kBits, 2>(words, rows, at, sum);
          AddPair<kBits, 3>(words, rows, at, sum);
        }
      }
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + block * 16 + 8 * h));
        const __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) {
          const __m256 both = _mm256_mul_ps(_mm256_set1_ps(rows[i]->scale), scale);
          total[i][h] = _mm256_add_ps(total[i][h], _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][h]), both));
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) _mm256_storeu_ps(sums + i * 16 + 8 * h, total[i][h]);
  }

  template <int kBits>
  static void run(int rows, int, const PackedWeight& weight, int64_t panel, const ActivationBlock* x, int64_t stride,
                  float* sums) {
    switch (rows) {
      case 1:
        return Tile<kBits, 1>(weight, panel, x, stride, sums);
      case 2:
        return Tile<kBits, 2>(weight, panel, x, stride, sums);
      case 3:
        return Tile<kBits, 3>(weight, panel, x, stride, sums);
      default:
        return Tile<kBits, 4>(weight, panel, x, stride, sums);
    }
  }
};
#endif

#if HWY_TARGET == HWY_AVX3
// vpdpbusd multiplies unsigned by signed bytes: the weight's codes with 128 (of
// 8 bits) or 8 (of 4) added, and an activation q as two bytes of its own sign:
//   sum q code = 256 sum high raised + sum low raised - 128 (or 8) sum q.
struct VnniBlocks {
  static constexpr int kOneRow = 4, kMostRows = 4;

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
    block.excess = _mm512_reduce_add_epi32(_mm512_add_epi32(q[0], q[1])) * (bits == 4 ? 8 : 128);
  }

  template <int kBits, int M, int P>
  static HWY_NOINLINE void Tile(const PackedWeight& weight, int64_t panel, const ActivationBlock* x, int64_t stride,
                                float* sums) {
    const int64_t blocks = weight.shape.blocks(), panel_bytes = weight.shape.panel_bytes(), next = P * panel_bytes;
    const int8_t* w = weight.codes(panel);
    const uint16_t* scales = weight.block_scales(panel);
    const __m512i nibble = _mm512_set1_epi8(15), raise = _mm512_set1_epi8(kBits == 4 ? 8 : -128);
    constexpr int kRaisedNibble = 0x6a;  // (words & nibble) ^ raise
    __m512 total[M][P];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) total[i][p] = _mm512_setzero_ps();
    for (int64_t block = 0; block < blocks; ++block) {
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
#pragma GCC unroll 8
      for (int group = 0; group < kBits; ++group, w += 64)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const __m512i words = _mm512_loadu_si512(w + p * panel_bytes);
          // The same place of the panels that come next: panels are too short for the processor to see them coming.
          _mm_prefetch(reinterpret_cast<const char*>(w + next + p * panel_bytes), _MM_HINT_T1);
          if constexpr (kBits == 8) {
            add(_mm512_xor_si512(words, raise), p, group * 4);
          } else {
            add(_mm512_ternarylogic_epi32(words, nibble, raise, kRaisedNibble), p, group * 8);
            add(_mm512_ternarylogic_epi32(_mm512_srli_epi16(words, 4), nibble, raise, kRaisedNibble), p, group * 8 + 4);
          }
        }
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const uint16_t* from_scales = scales + (p * blocks + block) * 16;
        _mm_prefetch(reinterpret_cast<const char*>(from_scales + P * blocks * 16), _MM_HINT_T1);
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from_scales));
        const __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) {
          const ActivationBlock& from = x[i * stride + block];
          __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high[i][p], 8), low[i][p]);
          sum = _mm512_sub_epi32(sum, _mm512_set1_epi32(from.excess));
          const __m512 both = _mm512_mul_ps(_mm512_set1_ps(from.scale), scale);
          total[i][p] = _mm512_add_ps(total[i][p], _mm512_mul_ps(_mm512_cvtepi32_ps(sum), both));
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) _mm512_storeu_ps(sums + (i * P + p) * 16, total[i][p]);
  }

  template <int kBits>
  static void run(int rows, int panels, const PackedWeight& weight, int64_t panel, const ActivationBlock* x,
                  int64_t stride, float* sums) {
    if (panels == kOneRow) return Tile<kBits, 1, kOneRow>(weight, panel, x, stride, sums);
    switch (rows) {
      case 1:
        return Tile<kBits, 1, 1>(weight, panel, x, stride, sums);
      case 2:
        return Tile<kBits, 2, 1>(weight, panel, x, stride, sums);
      case 3:
        return Tile<kBits, 3, 1>(weight, panel, x, stride, sums);
      default:
        return Tile<kBits, 4, 1>(weight, panel, x, stride, sums);
    }
  }
};
#endif

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
