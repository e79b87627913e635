#include <Random123/philox.h>
#undef philox4x32  // a macro there, a function here

#include <algorithm>
#include <cmath>
#include "base/fail.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/random/philox.h"

#define HWY_TARGET_INCLUDE "engine/kernels/random/dropout_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/random/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
// Elements [begin, end) of one sample, begin a multiple of 8.
void DropoutRange(
    int64_t begin, int64_t end, StoredFloats x, MutableStoredFloats y, float p, uint32_t sample, uint64_t key) {
  const DropoutLanes dropout(p);
  HWY_ALIGN uint16_t values[kPhiloxValues];
  for (int64_t first = begin; first < end; first += kPhiloxValues) {
    PhiloxKeep16(static_cast<uint32_t>(first / 8), kDenseDropout, 0, sample, key, values);
    const int64_t count = std::min<int64_t>(kPhiloxValues, end - first);
    const StoredFloats from = x + first;
    const MutableStoredFloats to = y + first;
    ForRow(count, [&](const auto& at) LINNET_LAMBDA { at.store(dropout.apply(at.load(from), values + at.first), to); });
  }
}

void values16(
    uint64_t key, uint32_t first_block, int64_t blocks, uint32_t c1, uint32_t c2, uint32_t c3, uint16_t* values) {
  PhiloxRow16(first_block, blocks, c1, c2, c3, key, values);
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
HWY_EXPORT(DropoutRange);
HWY_EXPORT(values16);

void dropout(int64_t samples, int64_t elements_per_sample, StoredFloats x, MutableStoredFloats y, float p, uint64_t key,
    ThreadPool& pool, uint32_t first_sample) {
  const int64_t size = samples * elements_per_sample;
  if (size <= 0) return;
  if (dropout_threshold(p) == 0) {
    if (x.data != y.data) convert_floats(size, x, y, pool);
    return;
  }
  constexpr int64_t piece = 4096;  // a whole number of Philox blocks, in any vector length
  const int64_t pieces = ceil_div(elements_per_sample, piece);
  for_each_index(pool, samples * pieces, 2 * size / (samples * pieces), [&](int64_t task) {
    const int64_t sample = task / pieces, first = task % pieces * piece, offset = sample * elements_per_sample;
    HWY_DYNAMIC_DISPATCH(DropoutRange)
    (first, std::min(elements_per_sample, first + piece), x + offset, y + offset, p,
        first_sample + static_cast<uint32_t>(sample), key);
  });
}

void dropout_of_columns(int64_t samples, int64_t elements_per_sample, const DropoutColumns& columns, StoredFloats x,
    MutableStoredFloats y, float p, uint64_t key, ThreadPool& pool) {
  if (elements_per_sample <= 0) return;
  const int64_t rows = elements_per_sample / columns.count;
  for_each_index(pool, samples * rows, 2 * columns.count, [&](int64_t task) {
    // The row's first element in the sample of the whole tensor, and in memory.
    const int64_t first = task % rows * columns.all + columns.first, shift = task * columns.count - first;
    HWY_DYNAMIC_DISPATCH(DropoutRange)
    (first, first + columns.count, x + shift, y + shift, p, static_cast<uint32_t>(task / rows), key);
  });
}

void philox_values16(
    uint64_t key, uint32_t first_block, int64_t blocks, uint32_t c1, uint32_t c2, uint32_t c3, uint16_t* values) {
  HWY_DYNAMIC_DISPATCH(values16)(key, first_block, blocks, c1, c2, c3, values);
}

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint64_t key) {
  const r123::Philox4x32::ctr_type in = {{counter[0], counter[1], counter[2], counter[3]}};
  const r123::Philox4x32::key_type key_words = {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
  const auto out = r123::Philox4x32()(in, key_words);
  return {out[0], out[1], out[2], out[3]};
}

uint32_t dropout_threshold(float p) {
  if (!(p >= 0 && p < 1)) fail_internal("dropout probability ", p, " is outside [0, 1)");
  return std::min<uint32_t>(static_cast<uint32_t>(std::lround(p * 65536.0)), 65535);
}

float dropout_scale(float p) { return 65536.0f / static_cast<float>(65536 - dropout_threshold(p)); }

bool dropout_keeps(uint64_t key, int64_t index, uint32_t c1, uint32_t c2, uint32_t c3, float p) {
  const auto words = philox4x32({static_cast<uint32_t>(index / 8), c1, c2, c3}, key);
  const auto value = static_cast<int>(index % 8);
  return ((words[value / 2] >> (16 * (value % 2))) & 0xffff) >= dropout_threshold(p);
}
}  // namespace linnet
#endif
