// The largest element of each window of an image, channel by channel, and its gradient. x [N, H, W, C] -> y [N, H', W',
// C] and the offset of the first largest element in its window, row * size + column, u8 of y's shape. NaN counts as
// largest. x and y, or dx and dy, are both fp32 or both bf16; gradients of overlapping windows are summed in fp32. The
// bits do not depend on the number of threads or the instruction set.
#pragma once
#include <cstddef>
#include <cstdint>
#include "engine/kernels/stored_floats.h"

namespace linnet {
struct MaxPoolSizes {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  int64_t out_height = 0, out_width = 0;
  int64_t size = 2, stride = 2;  // of windows; size at most 15, so that places fit a byte

  int64_t row_floats() const { return width * channels; }
};

void max_pool_forward(
    const MaxPoolSizes& sizes, StoredFloats x, MutableStoredFloats y, uint8_t* places, ThreadPool& pool);
// workspace: sizes.row_floats() floats for each thread.
void max_pool_backward(const MaxPoolSizes& sizes, StoredFloats dy, const uint8_t* places, MutableStoredFloats dx,
    std::byte* workspace, ThreadPool& pool);
}  // namespace linnet
