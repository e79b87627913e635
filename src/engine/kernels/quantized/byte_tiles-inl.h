// Sums of byte products, a tile at a time: rows of activations (u8, 128 added) by panels of 16 columns of a weight of
// WeightFormat::kInt8. A struct for each kind of processor; all give the same integers.
#include <bit>
#include <limits>
#include "engine/kernels/lanes-inl.h"

#if HWY_ARCH_ARM_A64
#include <arm_neon.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
// Contiguous rows of `depth` bytes each, a multiple of 32.
struct WholeRows {
  const uint8_t* a;
  int64_t depth;
  static constexpr int64_t pieces() { return 1; }
  HWY_INLINE int64_t begin(int64_t) const { return 0; }
  HWY_INLINE int64_t end(int64_t) const { return depth; }
  HWY_INLINE const uint8_t* row(int i) const { return a + i * depth; }
};

// Rows in pieces of `bytes`, a multiple of 4, at `offsets` from their first bytes: windows of images, read in place.
// The weight's columns follow each other through all pieces.
struct WindowRows {
  const uint8_t* const* a;
  const int64_t* offsets;
  int64_t count, bytes;
  HWY_INLINE int64_t pieces() const { return count; }
  HWY_INLINE int64_t begin(int64_t piece) const { return offsets[piece]; }
  HWY_INLINE int64_t end(int64_t piece) const { return offsets[piece] + bytes; }
  HWY_INLINE const uint8_t* row(int i) const { return a[i]; }
};

// Each has kRows and kPanels, the most of a tile, and
//   Tile<M, P>(rows, w, panel_bytes, start, sums, stride), for M rows and P panels:
//     sums[i * stride + j] = -start[j] + sum over k of row(i)[k] * w[k, j]
// with w[k, j] at w[j / 16 * panel_bytes + (k / 4 * 16 + j % 16) * 4 + k % 4].

// The largest magnitude of k numbers, load(position), as a float's bits, which are ordered alike, NaN on top.
template <class Load> HWY_INLINE int32_t LargestBits(int64_t k, const Load& load) {
  const IntTag di;
  const auto magnitude = hn::Set(di, 0x7fffffff);
  auto most = hn::Zero(di);
  ForRow(k, [&](const auto& at) LINNET_LAMBDA { most = hn::Max(most, hn::And(hn::BitCast(di, load(at)), magnitude)); });
  return hn::GetLane(hn::MaxOfLanes(di, most));
}

// The magnitude that codes are relative to: NaN if it is not finite, 0 if 255 / it may not be finite.
HWY_INLINE float CodedMagnitude(int32_t bits) {
  constexpr int32_t kInfinity = 0x7f800000;
  constexpr float kSmallest = 1e-30f;
  const auto top = std::bit_cast<float>(bits);
  return bits >= kInfinity ? std::numeric_limits<float>::quiet_NaN() : top < kSmallest ? 0 : top;
}

struct PlainTiles {
  static constexpr int kRows = 4, kPanels = 1;
  template <int M, int P, class Rows> static void Tile(
      const Rows& rows, const int8_t* first, int64_t, const int32_t* start, int32_t* sums, int64_t stride) {
    for (int i = 0; i < M; ++i) {
      int32_t total[16];
      for (int j = 0; j < 16; ++j) total[j] = -start[j];
      const int8_t* w = first;
      const uint8_t* x = rows.row(i);
      for (int64_t piece = 0; piece < rows.pieces(); ++piece)
        for (int64_t k = rows.begin(piece); k < rows.end(piece); k += 4, w += 64)
          for (int j = 0; j < 16; ++j)
            for (int t = 0; t < 4; ++t) total[j] += x[k + t] * w[j * 4 + t];
      std::memcpy(sums + i * stride, total, sizeof total);
    }
  }
};

#if HWY_ARCH_ARM_A64
// The instructions take bytes of one kind: 128 is subtracted from the activations, and 128 times the weights is added
// at the end. smull and sadalp add pairs of products in 32 bits, each column in two numbers.
struct NeonTiles {
  static constexpr int kRows = 2, kPanels = 1;

  template <int M, int P> static HWY_NOINLINE void Tile(
      const WholeRows& rows, const int8_t* w, int64_t, const int32_t* start, int32_t* sums, int64_t stride) {
    int32x4_t r[M][8], of_weights[8];
    for (int c = 0; c < 8; ++c) {
      of_weights[c] = vdupq_n_s32(0);
      for (int i = 0; i < M; ++i) r[i][c] = vdupq_n_s32(0);
    }
    for (int64_t k = 0; k < rows.depth; k += 4, w += 64) {
      int8x8_t x[M];
      for (int i = 0; i < M; ++i) {
        const auto four = static_cast<uint32_t>(FourBytes(rows.row(i) + k));
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
};

// sdot adds four products in 32 bits.
struct DotTiles {
  static constexpr int kRows = 4, kPanels = 1;

  template <int M, int P> __attribute__((target("arch=armv8.2-a+dotprod"))) static void Tile(
      const WholeRows& rows, const int8_t* w, int64_t, const int32_t* start, int32_t* sums, int64_t stride) {
    const int8x16_t one = vdupq_n_s8(1);
    int32x4_t r[M][4], of_weights[4];
    for (int c = 0; c < 4; ++c) {
      of_weights[c] = vdupq_n_s32(0);
      for (int i = 0; i < M; ++i) r[i][c] = vdupq_n_s32(0);
    }
    for (int64_t k = 0; k < rows.depth; k += 4, w += 64) {
      int8x16_t x[M];
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        const auto four = static_cast<uint32_t>(FourBytes(rows.row(i) + k));
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
// vpmaddubsw adds two products in 16 bits, which the weights' format keeps from saturating. With `kSplit` even and odd
// columns are multiplied apart, for any weights, in about twice the time.
template <bool kSplit> struct PairTilesOf {
  static constexpr int kRows = 4, kPanels = 1;

  static HWY_INLINE __m256i Dot(__m256i x, __m256i w) {
    const __m256i one = _mm256_set1_epi16(1);
    if constexpr (!kSplit) return _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), one);
    const __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(0xff)), odd = _mm256_sub_epi8(w, even);
    return _mm256_add_epi32(
        _mm256_madd_epi16(_mm256_maddubs_epi16(x, even), one), _mm256_madd_epi16(_mm256_maddubs_epi16(x, odd), one));
  }

  template <int M, int P, class Rows> static HWY_NOINLINE void Tile(
      const Rows& rows, const int8_t* w, int64_t, const int32_t* start, int32_t* sums, int64_t stride) {
    __m256i r[M][2];
    const uint8_t* x[M];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      x[i] = rows.row(i);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h)
        r[i][h] = _mm256_sub_epi32(
            _mm256_setzero_si256(), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(start + 8 * h)));
    }
    for (int64_t piece = 0; piece < rows.pieces(); ++piece)
      for (int64_t k = rows.begin(piece), end = rows.end(piece); k < end; k += 4, w += 64) {
        const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
        const __m256i w1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) {
          const __m256i four = _mm256_set1_epi32(FourBytes(x[i] + k));
          r[i][0] = _mm256_add_epi32(r[i][0], Dot(four, w0));
          r[i][1] = _mm256_add_epi32(r[i][1], Dot(four, w1));
        }
      }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + i * stride + 8 * h), r[i][h]);
  }
};
using PairTiles = PairTilesOf<false>;
using SplitPairTiles = PairTilesOf<true>;
#endif

#if HWY_TARGET == HWY_AVX3
// vpdpbusd adds four products in 32 bits.
struct VnniTiles {
  static constexpr int kRows = 6, kPanels = 4;

  template <int M, int P, class Rows> static HWY_NOINLINE void Tile(
      const Rows& rows, const int8_t* w, int64_t panel_bytes, const int32_t* start, int32_t* sums, int64_t stride) {
    __m512i r[M][P];
    const uint8_t* x[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      x[i] = rows.row(i);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
        r[i][p] = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(start + 16 * p));
    }
    for (int64_t piece = 0; piece < rows.pieces(); ++piece)
      for (int64_t k = rows.begin(piece), end = rows.end(piece); k < end; k += 4, w += 64) {
        __m512i y[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) y[p] = _mm512_loadu_si512(w + p * panel_bytes);
#pragma GCC unroll 8
        for (int i = 0; i < M; ++i) {
          const __m512i four = _mm512_set1_epi32(FourBytes(x[i] + k));
#pragma GCC unroll 4
          for (int p = 0; p < P; ++p) r[i][p] = _mm512_dpbusd_epi32(r[i][p], four, y[p]);
        }
      }
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) _mm512_storeu_si512(sums + i * stride + 16 * p, r[i][p]);
  }
};
#endif
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
