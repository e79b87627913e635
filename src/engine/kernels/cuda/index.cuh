// Indices that divide into places along axes.
#pragma once
#include "engine/kernels/cuda/launch.cuh"

namespace linnet {

struct Divided {
  int64_t quotient, remainder;
};

// Of numbers that are not negative. A GPU divides 64 bits in some hundred instructions and 32 in twenty, and most
// tensors have fewer than 2^32 elements.
LINNET_DEVICE Divided divided(int64_t i, int64_t by) {
  int64_t quotient;
  if (((i | by) >> 32) == 0) quotient = static_cast<unsigned>(i) / static_cast<unsigned>(by);
  else quotient = i / by;
  return {quotient, i - quotient * by};
}

}  // namespace linnet
