// Rotary positions (engine/ops/rope/rope.h).
#pragma once
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
constexpr int64_t kRopeMaxHeadSize = 512;

// Row (b, t) of x has `width` elements: `heads` heads to rotate by position * frequencies[i], the rest to copy. In a
// head the pairs (i, i + half), i < half, are rotated and multiplied by `magnitude`, the rest is copied. y has x's type
// and may be x. Angles are reduced in double, so that far positions are as exact as near ones.
struct RopeArgs {
  int64_t batch = 0, length = 0, width = 0, heads = 0, head_size = 0;
  int64_t half = 0;  // 0: head_size / 2
  float magnitude = 1;
  bool inverse = false;
  const int32_t* positions = nullptr;   // [batch, length], or with stride 0 [length] for all; null: 0 to length - 1
  int64_t position_stride = 0;          // between samples
  const double* frequencies = nullptr;  // [half]
  StoredFloats x;
  int64_t x_batch_stride = 0, x_row_stride = 0;
  MutableStoredFloats y;
  int64_t y_batch_stride = 0, y_row_stride = 0;
};
void rope_rows(const RopeArgs& args, ThreadPool& pool);
}  // namespace linnet
