// Sums of products of bytes whose rows lie in pieces: windows of images, read where they are. As sum_tiles-inl.h, which
// is for rows that are whole. Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_QUANTIZED_WINDOW_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_QUANTIZED_WINDOW_TILES_INL_H_
#undef LINNET_KERNELS_QUANTIZED_WINDOW_TILES_INL_H_
#else
#define LINNET_KERNELS_QUANTIZED_WINDOW_TILES_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

// The pieces of a window: `bytes` codes each, a multiple of 4, at `offsets` from the window's first. The weight's
// columns follow each other through all of them.
struct WindowPieces {
  const int64_t* offsets;
  int64_t count, bytes;
};

// A tile: rows of windows by panels of 16 filters. Each struct has kMostPanels and rows_of(panels), its rows, all of
// which are computed;
//   run(panels, pieces, a, w, panel_bytes, start, sums):
//     sums[i * panels * 16 + j] = -start[j] + sum over k of a[i][k] * w[k, j]
// with w[k, j] as of sum_tiles-inl.h.

// In plain C++.
struct PlainWindows {
  static constexpr int kMostPanels = 1;
  static constexpr int rows_of(int) { return 4; }
  static void run(int, const WindowPieces& pieces, const uint8_t* const* a, const int8_t* w, int64_t,
                  const int32_t* start, int32_t* sums) {
    for (int i = 0; i < rows_of(1); ++i) {
      int32_t total[16];
      for (int j = 0; j < 16; ++j) total[j] = -start[j];
      const int8_t* next = w;
      for (int64_t piece = 0; piece < pieces.count; ++piece) {
        const uint8_t* x = a[i] + pieces.offsets[piece];
        for (int64_t k = 0; k < pieces.bytes; k += 4, next += 64)
          for (int j = 0; j < 16; ++j)
            for (int t = 0; t < 4; ++t) total[j] += x[k + t] * next[j * 4 + t];
      }
      std::memcpy(sums + i * 16, total, sizeof total);
    }
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// vpmaddubsw adds two products in 16 bits, which the weights' format keeps from saturating. With `kSplit` the even and
// the odd columns are multiplied apart, so that any weights can be.
template <bool kSplit>
struct PairWindowsOf {
  static constexpr int kMostPanels = 1, kRows = 4;
  static constexpr int rows_of(int) { return kRows; }

  static HWY_INLINE __m256i Dot(__m256i x, __m256i w) {
    const __m256i one = _mm256_set1_epi16(1);
    if constexpr (!kSplit) return _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), one);
    const __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(0xff)), odd = _mm256_sub_epi8(w, even);
    return _mm256_add_epi32(_mm256_madd_epi16(_mm256_maddubs_epi16(x, even), one),
                            _mm256_madd_epi16(_mm256_maddubs_epi16(x, odd), one));
  }

  static void run(int, const WindowPieces& pieces, const uint8_t* const* a, const int8_t* w, int64_t,
                  const int32_t* start, int32_t* sums) {
    __m256i r[kRows][2];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h)
        r[i][h] = _mm256_sub_epi32(_mm256_setzero_si256(),
                                   _mm256_loadu_si256(reinterpret_cast<const __m256i*>(start + 8 * h)));
    for (int64_t piece = 0; piece < pieces.count; ++piece) {
      const int64_t offset = pieces.offsets[piece];
      for (int64_t k = 0; k < pieces.bytes; k += 4, w += 64) {
        const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
        const __m256i w1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
          int32_t four;
          std::memcpy(&four, a[i] + offset + k, sizeof four);
          const __m256i x = _mm256_set1_epi32(four);
          r[i][0] = _mm256_add_epi32(r[i][0], Dot(x, w0));
          r[i][1] = _mm256_add_epi32(r[i][1], Dot(x, w1));
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + i * 16 + 8 * h), r[i][h]);
  }
};
using PairWindows = PairWindowsOf<false>;
using SplitPairWindows = PairWindowsOf<true>;
#endif

#if HWY_TARGET == HWY_AVX3
// vpdpbusd adds four products in 32 bits.
struct VnniWindows {
  static constexpr int kMostPanels = 4;
  static constexpr int rows_of(int panels) { return panels == 4 ? 6 : 8; }

  template <int P>
  static void Tile(const WindowPieces& pieces, const uint8_t* const* a, const int8_t* w, int64_t panel_bytes,
                   const int32_t* start, int32_t* sums) {
    constexpr int M = rows_of(P);
    __m512i r[M][P];
    const uint8_t* x[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      x[i] = a[i];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
        r[i][p] = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(start + 16 * p));
    }
    for (int64_t piece = 0; piece < pieces.count; ++piece) {
      const int64_t first = pieces.offsets[piece], last = first + pieces.bytes;
      for (int64_t k = first; k < last; k += 4, w += 64) {
        __m512i y[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) y[p] = _mm512_loadu_si512(w + p * panel_bytes);
#pragma GCC unroll 8
        for (int i = 0; i < M; ++i) {
          int32_t four;
          std::memcpy(&four, x[i] + k, sizeof four);
          const __m512i codes = _mm512_set1_epi32(four);
#pragma GCC unroll 4
          for (int p = 0; p < P; ++p) r[i][p] = _mm512_dpbusd_epi32(r[i][p], codes, y[p]);
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) _mm512_storeu_si512(sums + (i * P + p) * 16, r[i][p]);
  }

  static void run(int panels, const WindowPieces& pieces, const uint8_t* const* a, const int8_t* w, int64_t panel_bytes,
                  const int32_t* start, int32_t* sums) {
    switch (panels) {
      case 1: return Tile<1>(pieces, a, w, panel_bytes, start, sums);
      case 2: return Tile<2>(pieces, a, w, panel_bytes, start, sums);
      case 3: return Tile<3>(pieces, a, w, panel_bytes, start, sums);
      default: return Tile<4>(pieces, a, w, panel_bytes, start, sums);
    }
  }
};
#endif

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
