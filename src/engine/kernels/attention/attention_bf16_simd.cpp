// Attention with bf16 products (engine/kernels/precision.h), compiled apart as it needs another instruction set.
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/attention_blocking.h"
#include "engine/kernels/gemm/gemm.h"

#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_bf16_simd.cpp"
#include <hwy/foreach_target.h>

// As in gemm_bf16_simd.cpp.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
#endif
#include "engine/kernels/attention/attention_passes-inl.h"
#include "engine/kernels/gemm/gemm_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
using attention_blocking::BackwardTask;
using attention_blocking::ForwardTask;

#if HWY_TARGET == HWY_AVX3

// A packed element has two neighbors along a product's depth: two keys of a query for products along the keys, two
// queries of a key for those along the queries.
struct Bf16Weights : tile::Bf16 {
  static constexpr int kExpDegree = 4;
  static constexpr bool kOneForm = false;
  static constexpr int kKeyRow = 48;  // elements of two values
  static constexpr int kAlongKeys = attention_blocking::kScoreStride, kAlongQueries = 48;

  template <int kVectors>
  static HWY_INLINE void StoreAlongKeys(const tile::V (&x)[2][kVectors], int64_t j, int64_t i, float* out) {
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h)
      hn::Store(Pairs(x[0][h], x[1][h]), tile::d, out + j / 2 * kAlongKeys + i + h * tile::kLanes);
  }
  template <int kVectors>
  static HWY_INLINE void StoreAlongQueries(const tile::V (&x)[2][kVectors], int64_t j, int64_t i, float* out) {
#pragma GCC unroll 2
    for (int row = 0; row < 2; ++row) {
      const tile::V pairs = Round(x[row][0], kVectors > 1 ? x[row][kVectors - 1] : hn::Zero(tile::d));
      hn::StoreU(pairs, tile::d, out + (j + row) * kAlongQueries + i / 2);  // zeros after a single vector
    }
  }
  static float along_keys(const float* weights, int64_t j, int64_t i) {
    return unpack(weights[j / 2 * kAlongKeys + i], j % 2);
  }
  static float along_queries(const float* weights, int64_t j, int64_t i) {
    return unpack(weights[j * kAlongQueries + i / 2], i % 2);
  }
  static float unpack(float element, int64_t which) {
    const auto bits = std::bit_cast<uint32_t>(element);
    return std::bit_cast<float>(which == 0 ? bits << 16 : bits & 0xffff0000u);
  }
  template <class T> static HWY_INLINE void PackScaled(const T* source, int64_t width, float factor, float* out) {
    if constexpr (std::is_same_v<T, Bfloat16>)
      if (factor == 1) return PackRow(source, width, out);
    const auto load = [&](int64_t k) LINNET_LAMBDA {
      if (k + tile::kLanes <= width) return hn::Mul(SetAll(factor), LoadFloats(source + k));
      return k < width ? hn::Mul(SetAll(factor), LoadPart(source + k, width - k)) : hn::Zero(tile::d);
    };
    for (int64_t k = 0; k < width; k += 2 * tile::kLanes)  // rows have room for whole vectors
      hn::Store(Round(load(k), load(k + tile::kLanes)), tile::d, out + k / 2);
  }
};

ForwardTask forward_task() { return gemm_has_bf16() ? attention::ForwardTask<Bf16Weights> : nullptr; }
BackwardTask backward_task() { return gemm_has_bf16() ? attention::BackwardTask<Bf16Weights> : nullptr; }

#else
ForwardTask forward_task() { return nullptr; }
BackwardTask backward_task() { return nullptr; }
#endif
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_TARGET == HWY_AVX3
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace linnet::attention_blocking {
HWY_EXPORT(forward_task);
HWY_EXPORT(backward_task);

ForwardTask bf16_forward_task() { return HWY_DYNAMIC_DISPATCH(forward_task)(); }
BackwardTask bf16_backward_task() { return HWY_DYNAMIC_DISPATCH(backward_task)(); }
}  // namespace linnet::attention_blocking
#endif
