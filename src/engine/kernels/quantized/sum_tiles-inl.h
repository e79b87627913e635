// Sums of products of bytes, a tile of C at a time: rows of activations (u8, 128 added) by panels of 16 columns of a
// weight of WeightFormat::kInt8. One struct for each way that processors have; all give the same integers. Included by
// *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_QUANTIZED_SUM_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_QUANTIZED_SUM_TILES_INL_H_
#undef LINNET_KERNELS_QUANTIZED_SUM_TILES_INL_H_
#else
#define LINNET_KERNELS_QUANTIZED_SUM_TILES_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>
#include <cstring>

#if HWY_ARCH_ARM_A64
#include <arm_neon.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

// Each has kRows and kPanels, the most of a tile, and
//   run(rows, panels, depth, a, w, panel_bytes, start, sums, stride):
//     sums[i * stride + j] = -start[j] + sum over k of a[i * depth + k] * w[k, j]
// with w[k, j] at w[j / 16 * panel_bytes + (k / 4 * 16 + j % 16) * 4 + k % 4]. `depth` is a multiple of 32.

// In plain C++.
struct PlainSums {
  static constexpr int kRows = 4, kPanels = 1;
  static void run(int rows, int, int64_t depth, const uint8_t* a, const int8_t* w, int64_t, const int32_t* start,
                  int32_t* sums, int64_t stride) {
    for (int i = 0; i < rows; ++i) {
      int32_t total[16];
      for (int j = 0; j < 16; ++j) total[j] = -start[j];
      for (int64_t k = 0; k < depth; k += 4)
        for (int j = 0; j < 16; ++j)
          for (int t = 0; t < 4; ++t) total[j] += a[i * depth + k + t] * w[k * 16 + j * 4 + t];
      std::memcpy(sums + i * stride, total, sizeof total);
    }
  }
};

// Tiles of one panel and up to four rows, of which Sums::Rows<M>() adds up M.
template <class Sums>
struct FourRows {
  static constexpr int kRows = 4, kPanels = 1;
  static void run(int rows, int, int64_t depth, const uint8_t* a, const int8_t* w, int64_t, const int32_t* start,
                  int32_t* sums, int64_t stride) {
    switch (rows) {
      case 1: return Sums::template Rows<1>(depth, a, w, start, sums, stride);
      case 2: return Sums::template Rows<2>(depth, a, w, start, sums, stride);
      case 3: return Sums::template Rows<3>(depth, a, w, start, sums, stride);
      default: return Sums::template Rows<4>(depth, a, w, start, sums, stride);
    }
  }
};

#if HWY_ARCH_ARM_A64
// The instructions take bytes of one kind: 128 is taken from the activations, and 128 times the weights is added in the
// end. smull and sadalp: pairs of products are added in 32 bits, each column in two numbers.
struct NeonSums {
  static constexpr int kRows = 2, kPanels = 1;

  template <int M>
  static HWY_INLINE void Rows(int64_t depth, const uint8_t* a, const int8_t* w, const int32_t* start, int32_t* sums,
                              int64_t stride) {
    int32x4_t r[M][8], of_weights[8];
    for (int c = 0; c < 8; ++c) {
      of_weights[c] = vdupq_n_s32(0);
      for (int i = 0; i < M; ++i) r[i][c] = vdupq_n_s32(0);
    }
    for (int64_t k = 0; k < depth; k += 4, w += 64) {
      int8x8_t x[M];
      for (int i = 0; i < M; ++i) {
        uint32_t four;
        std::memcpy(&four, a + i * depth + k, sizeof four);
        x[i] = vreinterpret_s8_u32(vdup_n_u32(four ^ 0x80808080U));
      }
#pragma GCC unroll 8
      for (int c = 0; c < 8; ++c) {  // two columns
        const int8x8_t y = vld1_s8(w + 8 * c);
        of_weights[c] = vpadalq_s16(of_weights[c], vmovl_s8(y));
        for (int i = 0; i < M; ++i) r[i][c] = vpadalq_s16(r[i][c], vmull_s8(x[i], y));
      }
    }
    for (int i = 0; i < M; ++i)
      for (int c = 0; c < 4; ++c) {
        const int32x4_t all = vshlq_n_s32(vpaddq_s32(of_weights[2 * c], of_weights[2 * c + 1]), 7);
        const int32x4_t sum = vaddq_s32(vpaddq_s32(r[i][2 * c], r[i][2 * c + 1]), all);
        vst1q_s32(sums + i * stride + 4 * c, vsubq_s32(sum, vld1q_s32(start + 4 * c)));
      }
  }

  static void run(int rows, int, int64_t depth, const uint8_t* a, const int8_t* w, int64_t, const int32_t* start,
                  int32_t* sums, int64_t stride) {
    rows == 1 ? Rows<1>(depth, a, w, start, sums, stride) : Rows<2>(depth, a, w, start, sums, stride);
  }
};

// sdot adds four products in 32 bits.
struct DotSums : FourRows<DotSums> {
  template <int M>
  __attribute__((target("arch=armv8.2-a+dotprod"))) static void Rows(int64_t depth, const uint8_t* a, const int8_t* w,
                                                                     const int32_t* start, int32_t* sums,
                                                                     int64_t stride) {
    const int8x16_t one = vdupq_n_s8(1);
    int32x4_t r[M][4], of_weights[4];
    for (int c = 0; c < 4; ++c) {
      of_weights[c] = vdupq_n_s32(0);
      for (int i = 0; i < M; ++i) r[i][c] = vdupq_n_s32(0);
    }
    for (int64_t k = 0; k < depth; k += 4, w += 64) {
      int8x16_t x[M];
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        uint32_t four;
        std::memcpy(&four, a + i * depth + k, sizeof four);
        x[i] = vreinterpretq_s8_u32(vdupq_n_u32(four ^ 0x80808080U));
      }
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {  // four columns
        const int8x16_t y = vld1q_s8(w + 16 * c);
        of_weights[c] = vdotq_s32(of_weights[c], y, one);
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) r[i][c] = vdotq_s32(r[i][c], y, x[i]);
      }
    }
    for (int i = 0; i < M; ++i)
      for (int c = 0; c < 4; ++c) {
        const int32x4_t sum = vaddq_s32(r[i][c], vshlq_n_s32(of_weights[c], 7));
        vst1q_s32(sums + i * stride + 4 * c, vsubq_s32(sum, vld1q_s32(start + 4 * c)));
      }
  }
};
#endif

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// vpmaddubsw adds two products in 16 bits, which the weights' format keeps from saturating. With `kSplit` the even and
// the odd columns are multiplied apart, so that any weights can be; it takes about twice the time.
template <bool kSplit>
struct PairSumsOf : FourRows<PairSumsOf<kSplit>> {
  static HWY_INLINE __m256i Dot(__m256i x, __m256i w) {
    const __m256i one = _mm256_set1_epi16(1);
    if constexpr (!kSplit) return _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), one);
    const __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(0xff)), odd = _mm256_sub_epi8(w, even);
    return _mm256_add_epi32(_mm256_madd_epi16(_mm256_maddubs_epi16(x, even), one),
                            _mm256_madd_epi16(_mm256_maddubs_epi16(x, odd), one));
  }

  template <int M>
  static HWY_INLINE void Rows(int64_t depth, const uint8_t* a, const int8_t* w, const int32_t* start, int32_t* sums,
                              int64_t stride) {
    __m256i r[M][2];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h)
        r[i][h] = _mm256_sub_epi32(_mm256_setzero_si256(),
                                   _mm256_loadu_si256(reinterpret_cast<const __m256i*>(start + 8 * h)));
    for (int64_t k = 0; k < depth; k += 4, w += 64) {
      const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
      const __m256i w1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        int32_t four;
        std::memcpy(&four, a + i * depth + k, sizeof four);
        const __m256i x = _mm256_set1_epi32(four);
        r[i][0] = _mm256_add_epi32(r[i][0], Dot(x, w0));
        r[i][1] = _mm256_add_epi32(r[i][1], Dot(x, w1));
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + i * stride + 8 * h), r[i][h]);
  }
};
using PairSums = PairSumsOf<false>;
using SplitPairSums = PairSumsOf<true>;
#endif

#if HWY_TARGET == HWY_AVX3
// vpdpbusd adds four products in 32 bits.
struct VnniSums {
  static constexpr int kRows = 6, kPanels = 4;

  template <int M, int P>
  static HWY_INLINE void Tile(int64_t depth, const uint8_t* a, const int8_t* w, int64_t panel_bytes,
                              const int32_t* start, int32_t* sums, int64_t stride) {
    __m512i r[M][P];
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
        r[i][p] = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(start + 16 * p));
    for (int64_t k = 0; k < depth; k += 4, w += 64) {
      __m512i y[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) y[p] = _mm512_loadu_si512(w + p * panel_bytes);
#pragma GCC unroll 6
      for (int i = 0; i < M; ++i) {
        int32_t four;
        std::memcpy(&four, a + i * depth + k, sizeof four);
        const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) r[i][p] = _mm512_dpbusd_epi32(r[i][p], x, y[p]);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) _mm512_storeu_si512(sums + i * stride + 16 * p, r[i][p]);
  }

  template <int P>
  static void Rows(int rows, int64_t depth, const uint8_t* a, const int8_t* w, int64_t panel_bytes,
                   const int32_t* start, int32_t* sums, int64_t stride) {
    switch (rows) {
      case 1: return Tile<1, P>(depth, a, w, panel_bytes, start, sums, stride);
      case 2: return Tile<2, P>(depth, a, w, panel_bytes, start, sums, stride);
      case 3: return Tile<3, P>(depth, a, w, panel_bytes, start, sums, stride);
      case 4: return Tile<4, P>(depth, a, w, panel_bytes, start, sums, stride);
      case 5: return Tile<5, P>(depth, a, w, panel_bytes, start, sums, stride);
      default: return Tile<6, P>(depth, a, w, panel_bytes, start, sums, stride);
    }
  }

  static void run(int rows, int panels, int64_t depth, const uint8_t* a, const int8_t* w, int64_t panel_bytes,
                  const int32_t* start, int32_t* sums, int64_t stride) {
    switch (panels) {
      case 1: return Rows<1>(rows, depth, a, w, panel_bytes, start, sums, stride);
      case 2: return Rows<2>(rows, depth, a, w, panel_bytes, start, sums, stride);
      case 3: return Rows<3>(rows, depth, a, w, panel_bytes, start, sums, stride);
      default: return Rows<4>(rows, depth, a, w, panel_bytes, start, sums, stride);
    }
  }
};
#endif

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
