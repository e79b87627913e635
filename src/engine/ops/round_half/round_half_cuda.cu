#include "engine/kernels/cuda/launch.cuh"
#include "engine/ops/round_half/round_half.h"

namespace linnet {
namespace {
LINNET_DEVICE void round_one(int64_t i, const float* from, float* to) {
  constexpr float kLeastNormal = 0x1p-14f, kMost = 65504;
  const float x = from[i], magnitude = fabsf(x);
  float rounded = magnitude;
  if (magnitude < kLeastNormal) {
    rounded = __fadd_rn(__fadd_rn(magnitude, 0.5f), -0.5f);  // of a float in [0.5, 1) the last bit is 2^-24
  } else if (magnitude < INFINITY) {
    const unsigned bits = __float_as_uint(magnitude);
    rounded = __uint_as_float((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
    if (rounded > kMost) rounded = INFINITY;
  }
  to[i] = copysignf(rounded, x);
}

void run(const KernelArgs& args) {
  launch_elements<round_one>(args.device, args.in[0].elements(), args.in[0].as<float>(), args.out[0].as<float>());
}
}  // namespace

LINNET_KERNELS(round_half_cuda, {"elements", nullptr, nullptr, run})
}  // namespace linnet
