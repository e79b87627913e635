#include <cstring>
#include "base/functions.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/stored_floats.h"

#define HWY_TARGET_INCLUDE "engine/kernels/rounding_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/random/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
HWY_INLINE Floats RoundToHalf(Floats x) {
  const IntTag di;
  const auto number = [&](int32_t bits) LINNET_LAMBDA { return hn::Set(di, bits); };
  constexpr int32_t kLeastNormal = 0x38800000, kMost = 0x477fe000, kInfinity = 0x7f800000;  // 2^-14, 65504
  const Floats magnitude = hn::Abs(x), half = SetAll(0.5f);
  const auto bits = hn::BitCast(di, magnitude);
  // Rounds the 13 bits that fp16 lacks away, ties to even. The last bit of a float in [0.5, 1) is 2^-24.
  const auto odd = hn::And(hn::ShiftRight<13>(bits), number(1));
  const auto normal = hn::And(hn::Add(hn::Add(bits, number(0xfff)), odd), number(~0x1fff));
  const auto small = hn::BitCast(di, hn::Sub(hn::Add(magnitude, half), half));
  auto rounded = hn::IfThenElse(hn::Lt(bits, number(kLeastNormal)), small, normal);
  rounded = hn::IfThenElse(hn::Gt(rounded, number(kMost)), number(kInfinity), rounded);
  rounded = hn::IfThenElse(hn::Gt(bits, number(kInfinity)), bits, rounded);  // NaN
  return hn::CopySign(hn::BitCast(FloatTag(), rounded), x);
}

void RoundToHalfRange(const float* from, float* to, int64_t begin, int64_t end) {
  ForRow(end - begin, [&](const auto& at) LINNET_LAMBDA { at.store(RoundToHalf(at.load(from + begin)), to + begin); });
}

void RoundBlock(const float* HWY_RESTRICT x, const uint16_t* HWY_RESTRICT random, uint16_t* HWY_RESTRICT y) {
  const hn::Rebind<uint32_t, FloatTag> du;
  const hn::Rebind<uint16_t, FloatTag> half;
  const auto exponent = hn::Set(du, 0x7f800000u), quiet = hn::Set(du, 0x00400000u);
  for (size_t i = 0; i < kPhiloxValues; i += hn::Lanes(du)) {
    const auto bits = hn::BitCast(du, hn::LoadU(FloatTag(), x + i));
    const auto moved = hn::Add(bits, hn::PromoteTo(du, hn::LoadU(half, random + i)));
    const auto is_finite = hn::Ne(hn::And(bits, exponent), exponent);
    // NaN's upper half alone could be infinity.
    const auto is_infinite = hn::Eq(hn::AndNot(hn::Set(du, 0x80000000u), bits), exponent);
    const auto special = hn::IfThenElse(is_infinite, bits, hn::Or(bits, quiet));
    const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_finite, moved, special));
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(IntTag(), upper)), half, y + i);
  }
}

void RoundRange(int64_t begin, int64_t end, const float* x, uint16_t* y, uint64_t key) {  // `begin` is a multiple of 8
  HWY_ALIGN uint16_t random[kPhiloxValues];
  for (int64_t first = begin; first < end; first += kPhiloxValues) {
    PhiloxKeep16(static_cast<uint32_t>(first / 8), kBf16Rounding, 0, 0, key, random);
    const int64_t count = std::min<int64_t>(kPhiloxValues, end - first);
    if (count == static_cast<int64_t>(kPhiloxValues)) {
      RoundBlock(x + first, random, y + first);
      continue;
    }
    HWY_ALIGN float rest[kPhiloxValues] = {};
    HWY_ALIGN uint16_t rounded[kPhiloxValues];
    std::copy_n(x + first, count, rest);
    RoundBlock(rest, random, rounded);
    std::copy_n(rounded, count, y + first);
  }
}

constexpr int kColumns = 16;  // whose errors are added up side by side, on every instruction set
constexpr int kVectors = kColumns / kFloatLanes;

float round_codes(const float* w, int64_t count, float scale, float low, float high, int8_t* codes) {
  const FloatTag d;
  const hn::Rebind<int8_t, FloatTag> d8;
  // Adding 1.5 * 2^23 rounds to an integer, ties to even.
  const Floats inverse = SetAll(1 / scale), least = SetAll(low), most = SetAll(high), magic = SetAll(12582912.0f);
  Floats errors[kVectors];
  for (Floats& error : errors) error = hn::Zero(d);
  const auto round = [&](const float* from, int8_t* to) HWY_ATTR {
    for (int v = 0; v < kVectors; ++v) {
      const Floats x = hn::Mul(hn::LoadU(d, from + v * kFloatLanes), inverse);
      const Floats code = hn::Sub(hn::Add(hn::Min(hn::Max(x, least), most), magic), magic), missed = hn::Sub(code, x);
      errors[v] = hn::Add(errors[v], hn::Mul(missed, missed));
      hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(IntTag(), code)), d8, to + v * kFloatLanes);
    }
  };
  int64_t i = 0;
  for (; i + kColumns <= count; i += kColumns) round(w + i, codes + i);
  if (i < count) {
    float from[kColumns] = {};
    int8_t to[kColumns];
    std::memcpy(from, w + i, static_cast<size_t>(count - i) * sizeof(float));
    round(from, to);
    std::memcpy(codes + i, to, static_cast<size_t>(count - i));
  }
  HWY_ALIGN float columns[kColumns];
  for (int v = 0; v < kVectors; ++v) hn::Store(errors[v], d, columns + v * kFloatLanes);
  return sum_of<float>(columns);
}

// Four numbers of each column become a word.
void round_columns(const float* w, int64_t stride, int64_t columns, int64_t depth, float most, int8_t* codes,
    float* scales, int32_t* sums) {
  const FloatTag d;
  const IntTag di;
  const auto magnitude = hn::Set(di, 0x7fffffff);
  for (int64_t first = 0; first < kColumns; first += kFloatLanes) {
    const int64_t left = columns - first;
    const auto load = [=](int64_t k) HWY_ATTR {
      const float* from = w + k * stride + first;
      return left >= kFloatLanes ? hn::LoadU(d, from) : left > 0 ? LoadPart(from, left) : hn::Zero(d);
    };
    auto top_bits = hn::Zero(di);  // as integers magnitudes have the order of their values, NaN above infinity
    for (int64_t k = 0; k < depth; ++k) top_bits = hn::Max(top_bits, hn::And(hn::BitCast(di, load(k)), magnitude));
    const Floats top = hn::BitCast(d, top_bits), scale = hn::Mul(top, SetAll(1 / most));
    const auto is_large = hn::Ge(top, SetAll(1e-30f)), is_number = hn::Lt(top, SetAll(HUGE_VALF));
    const auto rounds = hn::And(is_large, is_number);
    const Floats inverse = hn::Div(SetAll(1), scale), limit = SetAll(most), magic = SetAll(12582912.0f);
    auto sum = hn::Zero(di);
    for (int64_t k = 0; k < round_up(depth, 32); k += 4) {
      auto word = hn::Zero(di);
      for (int64_t t = 3; t >= 0; --t) {
        const Floats x = k + t < depth ? hn::IfThenElseZero(rounds, hn::Mul(load(k + t), inverse)) : hn::Zero(d);
        const auto bits = hn::BitCast(di, hn::Add(hn::Min(hn::Max(x, hn::Neg(limit)), limit), magic));
        sum = hn::Add(sum, hn::Sub(bits, hn::BitCast(di, magic)));
        word = hn::Or(hn::ShiftLeft<8>(word), hn::And(bits, hn::Set(di, 0xff)));
      }
      hn::StoreU(word, di, reinterpret_cast<int32_t*>(codes) + k / 4 * kColumns + first);
    }
    const Floats not_number = SetAll(std::numeric_limits<float>::quiet_NaN());
    hn::StoreU(hn::IfThenElse(is_number, hn::IfThenElseZero(is_large, scale), not_number), d, scales + first);
    hn::StoreU(sum, di, sums + first);
  }
}

template <class From, class To> HWY_INLINE void Copy(int64_t n, const From* from, To* to) {
  ForRow(n, [=](const auto& at) LINNET_LAMBDA { at.store(at.load(from), to); });
}

void NarrowRange(int64_t n, const float* from, Bfloat16* to) { Copy(n, from, to); }
void WidenRange(int64_t n, const Bfloat16* from, float* to) { Copy(n, from, to); }
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(RoundToHalfRange);
HWY_EXPORT(RoundRange);
HWY_EXPORT(round_codes);
HWY_EXPORT(round_columns);
HWY_EXPORT(NarrowRange);
HWY_EXPORT(WidenRange);

void round_to_half(int64_t n, const float* from, float* to, ThreadPool& pool) {
  for_ranges(pool, n, 1, [&](auto... range) { HWY_DYNAMIC_DISPATCH(RoundToHalfRange)(from, to, range...); });
}

void round_to_bf16_stochastic(int64_t count, const float* x, uint16_t* y, uint64_t key, ThreadPool& pool) {
  if (count <= 0) return;
  constexpr int64_t piece = 4096;  // a whole number of Philox blocks, in any vector length
  for_ranges(pool, ceil_div(count, piece), 2 * piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RoundRange)(begin * piece, std::min(count, end * piece), x, y, key);
  });
}

uint16_t round_to_bf16_by(float x, uint16_t r) {
  auto bits = std::bit_cast<uint32_t>(x);
  const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u, is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  if (is_finite) bits += r;
  if (is_nan) bits |= 0x00400000u;
  return static_cast<uint16_t>(bits >> 16);
}

float round_codes(const float* w, int64_t count, float scale, float low, float high, int8_t* codes) {
  return HWY_DYNAMIC_DISPATCH(round_codes)(w, count, scale, low, high, codes);
}

void round_columns(const float* w, int64_t stride, int64_t columns, int64_t depth, float most, int8_t* codes,
    float* scales, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(round_columns)(w, stride, columns, depth, most, codes, scales, sums);
}

#if HWY_ARCH_X86
const bool kProcessorRoundsToBf16 = __builtin_cpu_supports("avx512bf16");
#else
const bool kProcessorRoundsToBf16 = false;
#endif

void convert_floats(int64_t n, StoredFloats from, MutableStoredFloats to, ThreadPool& pool) {
  for_ranges(pool, n, 1, [&](int64_t begin, int64_t end) { convert_floats(end - begin, from + begin, to + begin); });
}

void convert_floats(int64_t n, StoredFloats from, MutableStoredFloats to) {
  if (from.is_bf16 == to.is_bf16) std::memmove(to.data, from.data, static_cast<size_t>(n) * (from.is_bf16 ? 2 : 4));
  else if (from.is_bf16) HWY_DYNAMIC_DISPATCH(WidenRange)(n, from.bf16(), to.f32());
  else HWY_DYNAMIC_DISPATCH(NarrowRange)(n, from.f32(), to.bf16());
}
}  // namespace linnet
#endif
