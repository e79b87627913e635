#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include "engine/kernels/reduce/top_k.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/reduce/top_k_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "engine/kernels/lanes-inl.h"

#ifndef LINNET_KERNELS_TOP_K_LIST
#define LINNET_KERNELS_TOP_K_LIST
namespace linnet {
namespace {

// The best so far, falling. Elements are offered in order of their index, so an equal one that comes later goes behind.
struct TopList {
  int64_t k;
  float* values;
  int32_t* ids;
  int64_t count = 0;

  void offer(float value, int64_t index) {
    if (std::isnan(value)) value = -std::numeric_limits<float>::infinity();
    if (count == k && !(value > values[k - 1])) return;
    int64_t location = count < k ? count++ : k - 1;
    for (; location > 0 && value > values[location - 1]; --location) {
      values[location] = values[location - 1];
      ids[location] = ids[location - 1];
    }
    values[location] = value;
    ids[location] = static_cast<int32_t>(index);
  }
};

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 4 * kFloatLanes;
static_assert(kFloatLanes <= 16);

// Four vectors, with -inf for NaN, which comparisons would lose.
struct Block {
  Floats v0, v1, v2, v3;
};
HWY_INLINE Floats LoadNumbers(const float* x) {
  const Floats v = LoadFloats(x);
  return hn::IfThenElse(hn::Eq(v, v), v, SetAll(-std::numeric_limits<float>::infinity()));
}
HWY_INLINE Block LoadBlock(const float* x) {
  return {LoadNumbers(x), LoadNumbers(x + kFloatLanes), LoadNumbers(x + 2 * kFloatLanes),
          LoadNumbers(x + 3 * kFloatLanes)};
}

// At least k elements of the whole blocks are no smaller than this: the k-th largest of the maxima of interleaved parts
// of the row, each of which is an element of its own. Few others are larger, so the second pass rarely stops.
float LowerBound(int64_t width, int64_t k, const float* x) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  if (k > kBlock || width < kBlock) return lowest;
  Block most{SetAll(lowest), SetAll(lowest), SetAll(lowest), SetAll(lowest)};
  for (int64_t i = 0; i + kBlock <= width; i += kBlock) {
    const Block b = LoadBlock(x + i);
    most = {hn::Max(most.v0, b.v0), hn::Max(most.v1, b.v1), hn::Max(most.v2, b.v2), hn::Max(most.v3, b.v3)};
  }
  HWY_ALIGN float maxima[kBlock];
  StoreFloats(most.v0, maxima);
  StoreFloats(most.v1, maxima + kFloatLanes);
  StoreFloats(most.v2, maxima + 2 * kFloatLanes);
  StoreFloats(most.v3, maxima + 3 * kFloatLanes);
  std::nth_element(maxima, maxima + k - 1, maxima + kBlock, std::greater<float>());
  return maxima[k - 1];
}

HWY_INLINE void OfferLanes(Floats v, Floats bound, const float* x, int64_t first, TopList& top) {
  uint8_t bytes[8] = {};  // Highway writes at least eight
  hn::StoreMaskBits(FloatTag(), hn::Ge(v, bound), bytes);
  for (uint32_t bits = bytes[0] | static_cast<uint32_t>(bytes[1]) << 8; bits != 0; bits &= bits - 1) {
    const int64_t i = first + std::countr_zero(bits);
    top.offer(x[i], i);
  }
}

void TopRow(int64_t width, const float* x, TopList& top) {
  const Floats bound = SetAll(LowerBound(width, top.k, x));
  int64_t i = 0;
  for (; i + kBlock <= width; i += kBlock) {
    const Block b = LoadBlock(x + i);
    const Floats largest = hn::Max(hn::Max(b.v0, b.v1), hn::Max(b.v2, b.v3));
    if (hn::AllFalse(FloatTag(), hn::Ge(largest, bound))) continue;
    OfferLanes(b.v0, bound, x, i, top);
    OfferLanes(b.v1, bound, x, i + kFloatLanes, top);
    OfferLanes(b.v2, bound, x, i + 2 * kFloatLanes, top);
    OfferLanes(b.v3, bound, x, i + 3 * kFloatLanes, top);
  }
  for (; i < width; ++i) top.offer(x[i], i);
}

void TopRows(int64_t begin, int64_t end, int64_t width, int64_t k, const float* x, float* values, int32_t* ids) {
  for (int64_t row = begin; row < end; ++row) {
    TopList top{k, values + row * k, ids + row * k};
    TopRow(width, x + row * width, top);
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(TopRows);

void top_k_rows(int64_t rows, int64_t width, int64_t k, const float* x, float* values, int32_t* ids) {
  if (k > 0) HWY_DYNAMIC_DISPATCH(TopRows)(0, rows, width, k, x, values, ids);
}

}  // namespace linnet
#endif
