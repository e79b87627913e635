// The policy of bf16 products: rounds values, joins them into pairs and multiplies pairs. For AVX-512 with its bf16
// extension, which including files enable, and for 64-bit ARM with its own. The arithmetic is the processor's: operands
// are rounded to nearest even (denormals to zero, NaN stays NaN); each pair's two products and the additions to the
// fp32 sum are rounded in turn (ARM: to odd), and fp32 denormals are flushed to zero.
#include "engine/kernels/gemm/gemm_tile-inl.h"
#include "engine/kernels/precision.h"

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {
struct Bf16 {
  static constexpr int kPair = 2;

#if HWY_TARGET == HWY_AVX3
  // sum + x[2i] y[2i] + x[2i + 1] y[2i + 1] in lane i
  static HWY_INLINE V MulAdd(V x, V y, V sum) {
    return V{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(x.raw), reinterpret_cast<__m512bh>(y.raw))};
  }

  // low[0], ..., low[15], high[0], ..., high[15] in half the width
  static HWY_INLINE V Round(V low, V high) {
    return V{reinterpret_cast<__m512>(_mm512_cvtne2ps_pbh(high.raw, low.raw))};
  }

  // Stores or splits what Round() made.
  static HWY_INLINE void StoreRounded(V rounded, Bfloat16* out) { _mm512_storeu_ps(out, rounded.raw); }
  static HWY_INLINE void SplitRounded(V rounded, V& low, V& high) {
    const __m512i bits = reinterpret_cast<__m512i>(rounded.raw);
    const auto widen = [](__m256i half) LINNET_LAMBDA {
      return V{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
    };
    low = widen(_mm512_castsi512_si256(bits)), high = widen(_mm512_extracti64x4_epi64(bits, 1));
  }

  // low[0], high[0], low[1], high[1], ... in half the width
  static HWY_INLINE V Pairs(V low, V high) {
    alignas(64) static constexpr uint16_t kZip[32] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9,
        25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i pairs = reinterpret_cast<__m512i>(Round(low, high).raw);
    return V{reinterpret_cast<__m512>(_mm512_permutexvar_epi16(_mm512_load_si512(kZip), pairs))};
  }

  static HWY_INLINE V LoadQuads(const float* const* rows, int64_t k) {
    const hn::Half<D> half;
    const V low = hn::Combine(d, hn::LoadU(half, rows[4] + k), hn::LoadU(half, rows[0] + k));
    const V high = hn::Combine(d, hn::LoadU(half, rows[12] + k), hn::LoadU(half, rows[8] + k));
    return Round(low, high);
  }

  // Values that are bf16 in memory are pairs already.
  static HWY_INLINE V LoadQuads(const Bfloat16* const* rows, int64_t k) {
    const auto load = [=](int row)
                          LINNET_LAMBDA { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + k)); };
    __m512i quads = _mm512_castsi128_si512(load(0));
    quads = _mm512_inserti32x4(quads, load(4), 1);
    quads = _mm512_inserti32x4(quads, load(8), 2);
    return V{_mm512_castsi512_ps(_mm512_inserti32x4(quads, load(12), 3))};
  }

#else
  static constexpr hn::Repartition<uint16_t, D> kBits = {};

  // As assembly it needs no other instruction set for the functions around it, which other processors run, too.
  static HWY_INLINE V MulAdd(V x, V y, V sum) {
    asm(".arch_extension bf16\n\tbfdot %0.4s, %1.8h, %2.8h" : "+w"(sum.raw) : "w"(x.raw), "w"(y.raw));
    return sum;
  }

  static HWY_INLINE V Round(V low, V high) {
    return hn::BitCast(d, hn::Combine(kBits, RoundToBf16(high), RoundToBf16(low)));
  }
  static HWY_INLINE void StoreRounded(V rounded, Bfloat16* out) {
    hn::StoreU(hn::BitCast(kBits, rounded), kBits, Bits(out));
  }
  static HWY_INLINE void SplitRounded(V rounded, V& low, V& high) {
    const auto bits = hn::BitCast(kBits, rounded);
    low = Widen(hn::LowerHalf(bits)), high = Widen(hn::UpperHalf(Bf16Tag(), bits));
  }
  static HWY_INLINE V Pairs(V low, V high) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = [du](V x) LINNET_LAMBDA { return hn::PromoteTo(du, RoundToBf16(x)); };
    return hn::BitCast(d, hn::Or(bits(low), hn::ShiftLeft<16>(bits(high))));
  }
  static HWY_INLINE V LoadQuads(const float* const* rows, int64_t k) {
    return Round(hn::LoadU(d, rows[0] + k), hn::LoadU(d, rows[0] + k + kLanes));
  }
  static HWY_INLINE V LoadQuads(const Bfloat16* const* rows, int64_t k) {
    return hn::BitCast(d, hn::LoadU(kBits, Bits(rows[0] + k)));
  }
#endif

  static HWY_INLINE float Element(const Bfloat16* row, int64_t k, int64_t depth) {
    return std::bit_cast<float>(row[k].bits | (k + 1 < depth ? static_cast<uint32_t>(row[k + 1].bits) << 16 : 0));
  }

  static HWY_INLINE float Element(const float* row, int64_t k, int64_t depth) {
    const auto bits = [](float x) { return std::bit_cast<uint32_t>(round_to_bf16(x)); };
    return std::bit_cast<float>(bits(row[k]) >> 16 | (k + 1 < depth ? bits(row[k + 1]) : 0));
  }

  template <class Lanes>
  static HWY_INLINE V LoadAcross(const float* source, int64_t stride, int64_t rows, const Lanes& at) {
    return Pairs(at.load(source), rows > 1 ? at.load(source + stride) : hn::Zero(d));
  }

  template <class Lanes>
  static HWY_INLINE V LoadAcross(const Bfloat16* source, int64_t stride, int64_t rows, const Lanes& at) {
    const hn::RebindToUnsigned<D> du;
    const V low = at.load(source), high = rows > 1 ? at.load(source + stride) : hn::Zero(d);
    return hn::BitCast(d, hn::Or(hn::ShiftRight<16>(hn::BitCast(du, low)), hn::BitCast(du, high)));
  }

#if HWY_TARGET == HWY_AVX3
  static HWY_INLINE V LoadAcross(const Bfloat16* source, int64_t stride, int64_t rows, const WholeLanes& at) {
    alignas(64) static constexpr uint16_t kZip[32] = {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9,
        41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const auto load = [&](const Bfloat16* row) LINNET_LAMBDA {
      return _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + at.first)));
    };
    const __m512i low = load(source), high = rows > 1 ? load(source + stride) : _mm512_setzero_si512();
    return V{_mm512_castsi512_ps(_mm512_permutex2var_epi16(low, _mm512_load_si512(kZip), high))};
  }
#endif

  static HWY_INLINE void PackRow(const Bfloat16* source, int64_t depth, float* out) {
    if (depth % 2) out[depth / 2] = 0;
    std::memcpy(out, source, static_cast<size_t>(depth) * sizeof(Bfloat16));
  }

  static HWY_INLINE void PackRow(const float* source, int64_t depth, float* out) {
    int64_t k = 0;
    for (; k + 2 * kLanes <= depth; k += 2 * kLanes)
      hn::StoreU(Round(hn::LoadU(d, source + k), hn::LoadU(d, source + k + kLanes)), d, out + k / 2);
    if (k == depth) return;
    const int64_t low = std::min<int64_t>(kLanes, depth - k), high = depth - k - low;
    const V x = low == kLanes ? hn::LoadU(d, source + k) : LoadPart(source + k, low);
    StorePart(Round(x, LoadPart(source + k + low, high)), out + k / 2, (depth - k + 1) / 2);
  }
};
}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();
#endif
