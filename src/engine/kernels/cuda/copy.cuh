// Copies between strided locations: a thread for each word of up to 16 bytes that is contiguous on both sides.
#pragma once
#include "engine/ir/tensor_type.h"
#include "engine/kernels/cuda/launch.cuh"

namespace linnet {
struct alignas(16) Word16 {
  uint32_t words[4];
};

// Axes are right-aligned; those before `first` do not exist. Sizes and strides are in words.
struct CopyPlan {
  int first = kMaxRank;
  int64_t size[kMaxRank], from[kMaxRank], to[kMaxRank];
};

namespace copying {
constexpr int kThreads = 256;

template <class Word, class Index> __global__ void __launch_bounds__(kThreads)
    copy_kernel(Index count, CopyPlan plan, const Word* __restrict__ from, Word* __restrict__ to) {
  begin_kernel();
  Index rest = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (rest >= count) return;
  int64_t source = 0, target = 0;
#pragma unroll
  for (int axis = kMaxRank - 1; axis >= 0; --axis) {
    if (axis < plan.first) break;
    const auto size = static_cast<Index>(plan.size[axis]);
    const Index location = axis > plan.first ? rest % size : rest;
    rest /= size;
    source += static_cast<int64_t>(location) * plan.from[axis];
    target += static_cast<int64_t>(location) * plan.to[axis];
  }
  to[target] = from[source];
}

template <class Word> void copy_words(Device* device, const CopyPlan& plan, const void* from, void* to) {
  int64_t count = 1;
  for (int axis = plan.first; axis < kMaxRank; ++axis) count *= plan.size[axis];
  const unsigned blocks = blocks_for(count, kThreads);
  const auto* source = static_cast<const Word*>(from);
  auto* target = static_cast<Word*>(to);
  if (count < (int64_t{1} << 31))
    launch(
        device, copy_kernel<Word, uint32_t>, blocks, kThreads, 0, static_cast<uint32_t>(count), plan, source, target);
  else launch(device, copy_kernel<Word, int64_t>, blocks, kThreads, 0, count, plan, source, target);
}

// Drops axes of one element and joins neighbors that are contiguous on both sides.
inline CopyPlan collapsed(const Shape& shape, const Shape& from, const Shape& to) {
  CopyPlan plan;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    const int inner = plan.first;
    if (inner < kMaxRank && from[axis] == plan.from[inner] * plan.size[inner] &&
        to[axis] == plan.to[inner] * plan.size[inner]) {
      plan.size[inner] *= shape[axis];
      continue;
    }
    const int location = --plan.first;
    plan.size[location] = shape[axis], plan.from[location] = from[axis], plan.to[location] = to[axis];
  }
  return plan;
}

// The most bytes, up to 16, that are contiguous and aligned on both sides wherever a word begins.
inline int64_t word_bytes(const CopyPlan& plan, int64_t element, const void* from, const void* to) {
  const int last = kMaxRank - 1;
  if (plan.first > last || plan.from[last] != 1 || plan.to[last] != 1) return element;
  for (int64_t bytes = 16; bytes > element; bytes /= 2) {
    const int64_t elements = bytes / element;
    bool whole = reinterpret_cast<uintptr_t>(from) % static_cast<uintptr_t>(bytes) == 0 &&
                 reinterpret_cast<uintptr_t>(to) % static_cast<uintptr_t>(bytes) == 0 &&
                 plan.size[last] % elements == 0;
    for (int axis = plan.first; axis < last; ++axis)
      whole = whole && plan.from[axis] % elements == 0 && plan.to[axis] % elements == 0;
    if (whole) return bytes;
  }
  return element;
}

inline void widen(CopyPlan& plan, int64_t elements) {
  if (elements == 1) return;
  plan.size[kMaxRank - 1] /= elements;
  for (int axis = plan.first; axis < kMaxRank - 1; ++axis) plan.from[axis] /= elements, plan.to[axis] /= elements;
}
}  // namespace copying

// Copies `shape` elements of `element` bytes each; strides in elements. No-op if both locations are one.
inline void copy_strided(Device* device, const Shape& shape, int64_t element, const void* from,
    const Shape& from_strides, void* to, const Shape& to_strides) {
  if (shape.elements() == 0 || (from == to && from_strides == to_strides)) return;
  CopyPlan plan = copying::collapsed(shape, from_strides, to_strides);
  const int64_t bytes = copying::word_bytes(plan, element, from, to);
  copying::widen(plan, bytes / element);
  switch (bytes) {
    case 16: return copying::copy_words<Word16>(device, plan, from, to);
    case 8: return copying::copy_words<uint64_t>(device, plan, from, to);
    case 4: return copying::copy_words<uint32_t>(device, plan, from, to);
    case 2: return copying::copy_words<uint16_t>(device, plan, from, to);
    default: return copying::copy_words<uint8_t>(device, plan, from, to);
  }
}
}  // namespace linnet
