// Products of a warp's matrix units in TF32: 8 bits of exponent, 10 of mantissa, sums in fp32 (PTX ISA,
// mma.sync.m16n8k8).
#pragma once
#include <cstring>
#include "engine/kernels/cuda/launch.cuh"

namespace linnet {

// x rounded to the nearest TF32, as bits of a float.
LINNET_DEVICE unsigned to_tf32(float x) {
#ifdef LINNET_CUDA_EMULATION
  const unsigned bits = __float_as_uint(x);
  return x != x ? 0x7fffffffu : (bits + 0x1000u) & ~0x1fffu;
#else
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#endif
}

// A thread's part of a [16, 8] (rows lane / 4 and + 8, columns lane % 4 and + 4: x is the first row's first column, y
// the second row's, z and w the second column's), of b [8, 8] (rows lane % 4 and + 4, column lane / 4) and of c [16, 8]
// (rows as a's; columns lane % 4 * 2 and + 1, the first row's two before the second's). Then c += a b. All lanes call
// it.
#ifdef LINNET_CUDA_EMULATION
inline void multiply_tf32(uint4 a, uint2 b, float (&c)[4], emulation::Site site = emulation::Site::current()) {
  using emulation::lane, emulation::lane_slot, emulation::sync_warp;
  float rows[2][8], columns[2][8];
  std::memcpy(lane_slot(lane()), &a, sizeof a);
  sync_warp(site);
  for (int k = 0; k < 8; ++k) {
    uint4 part;
    std::memcpy(&part, lane_slot(lane() / 4 * 4 + k % 4), sizeof part);
    rows[0][k] = __uint_as_float(k < 4 ? part.x : part.z), rows[1][k] = __uint_as_float(k < 4 ? part.y : part.w);
  }
  sync_warp(site);
  std::memcpy(lane_slot(lane()), &b, sizeof b);
  sync_warp(site);
  for (int column = 0; column < 2; ++column)
    for (int k = 0; k < 8; ++k) {
      uint2 part;
      std::memcpy(&part, lane_slot((lane() % 4 * 2 + column) * 4 + k % 4), sizeof part);
      columns[column][k] = __uint_as_float(k < 4 ? part.x : part.y);
    }
  sync_warp(site);
  for (int i = 0; i < 4; ++i) {
    float sum = 0;
    for (int k = 0; k < 8; ++k) sum += rows[i / 2][k] * columns[i % 2][k];
    c[i] += sum;
  }
}
#else
LINNET_DEVICE void multiply_tf32(uint4 a, uint2 b, float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
#endif

// A factor of such a product. With kExact it is kept in two parts, whose three largest products have 21 bits of
// mantissa: about fp32's.
template <class Words, bool kExact>
struct Factor {
  Words large, small;
};
template <bool kExact>
LINNET_DEVICE unsigned rest_of(float x, unsigned large) {
  return kExact ? to_tf32(x - __uint_as_float(large)) : 0;
}
template <bool kExact>
LINNET_DEVICE Factor<uint4, kExact> left_factor(float x, float y, float z, float w) {
  const uint4 large{to_tf32(x), to_tf32(y), to_tf32(z), to_tf32(w)};
  return {large,
          {rest_of<kExact>(x, large.x), rest_of<kExact>(y, large.y), rest_of<kExact>(z, large.z),
           rest_of<kExact>(w, large.w)}};
}
template <bool kExact>
LINNET_DEVICE Factor<uint2, kExact> right_factor(float x, float y) {
  const uint2 large{to_tf32(x), to_tf32(y)};
  return {large, {rest_of<kExact>(x, large.x), rest_of<kExact>(y, large.y)}};
}
template <bool kExact>
LINNET_DEVICE void multiply(const Factor<uint4, kExact>& a, const Factor<uint2, kExact>& b, float (&c)[4]) {
  if constexpr (kExact) {  // small ones first
    multiply_tf32(a.small, b.large, c);
    multiply_tf32(a.large, b.small, c);
  }
  multiply_tf32(a.large, b.large, c);
}

}  // namespace linnet
