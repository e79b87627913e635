// Products of a warp's matrix units, with sums in fp32, or of bytes in 32 bits (PTX ISA, mma.sync and ldmatrix). In a
// factor a of 16 rows a lane has rows lane / 4 and + 8, in a factor b the column lane / 4, in the result c rows as a's
// and columns lane % 4 * 2 and + 1, the first row's two before the second's.
#pragma once
#include <cstring>
#include "engine/kernels/cuda/storage.cuh"

namespace linnet {
#ifdef LINNET_CUDA_EMULATION
// c += the products of four steps. A step's words of the rows of a are those of lane / 4 * 4 + step, its words of
// column j of b those of lane j * 4 + step. dot(a's words of a row, b's words) is a step's product.
template <class A, class B, class C, class Dot>
void multiply_by_lanes(const A& a, const B& b, C (&c)[4], emulation::Site site, const Dot& dot) {
  const int lane = emulation::lane();
  for (int step = 0; step < 4; ++step) {
    const A rows = emulation::exchange(a, lane / 4 * 4 + step, site);
    for (int column = 0; column < 2; ++column) {
      const B words = emulation::exchange(b, (lane % 4 * 2 + column) * 4 + step, site);
      c[column] += dot(rows.x, rows.z, words);
      c[2 + column] += dot(rows.y, rows.w, words);
    }
  }
}

// In TF32 (8 bits of exponent, 10 of mantissa): columns lane % 4 (x, y) and + 4 (z, w) of a [16, 8], the same rows of
// b.
inline void multiply_tf32(uint4 a, uint2 b, float (&c)[4], emulation::Site site = emulation::Site::current()) {
  multiply_by_lanes(a, b, c, site, [](unsigned first, unsigned second, uint2 words) {
    return __uint_as_float(first) * __uint_as_float(words.x) + __uint_as_float(second) * __uint_as_float(words.y);
  });
}

// In bf16: columns lane % 4 * 2 and + 1 (x, y: the first in the low half), and 8 beyond (z, w), of a [16, 16], the same
// rows of b.
inline void multiply_bf16(uint4 a, uint2 b, float (&c)[4], emulation::Site site = emulation::Site::current()) {
  multiply_by_lanes(a, b, c, site, [](unsigned first, unsigned second, uint2 words) {
    const auto pair = [](unsigned x, unsigned y) {
      return __uint_as_float(x << 16) * __uint_as_float(y << 16) +
             __uint_as_float(x & 0xffff0000u) * __uint_as_float(y & 0xffff0000u);
    };
    return pair(first, words.x) + pair(second, words.y);
  });
}

// Signed bytes by unsigned ones: columns lane % 4 * 4 to + 3 (x, y: the first in the lowest byte), and 16 beyond (z,
// w), of a [16, 32], the same rows of b.
inline void multiply_bytes(uint4 a, uint2 b, int (&c)[4], emulation::Site site = emulation::Site::current()) {
  multiply_by_lanes(a, b, c, site, [](unsigned first, unsigned second, uint2 words) {
    int sum = 0;
    for (int bit = 0; bit < 32; bit += 8)
      sum += static_cast<signed char>(first >> bit) * static_cast<unsigned char>(words.x >> bit) +
             static_cast<signed char>(second >> bit) * static_cast<unsigned char>(words.y >> bit);
    return sum;
  });
}

// Four matrices of 8 rows of 8 numbers in shared memory, transposed: lane i gives row i % 8 of matrix i / 8, and gets
// of each rows lane % 4 * 2 and + 1 (low and high half) in column lane / 4.
inline uint4 load_transposed(const bf16* row, emulation::Site site = emulation::Site::current()) {
  unsigned words[4] = {};
  const int lane = emulation::lane();
  for (int i = 0; i < 8; ++i)
    words[i / 2] |= unsigned{emulation::exchange(row, i / 2 * 8 + lane % 4 * 2 + i % 2, site)[lane / 4].bits}
                    << 16 * (i % 2);
  return {words[0], words[1], words[2], words[3]};
}
#else
LINNET_DEVICE void multiply_tf32(uint4 a, uint2 b, float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
LINNET_DEVICE void multiply_bf16(uint4 a, uint2 b, float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
LINNET_DEVICE void multiply_bytes(uint4 a, uint2 b, int (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
LINNET_DEVICE uint4 load_transposed(const bf16* row) {
  uint4 words;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
  return words;
}
#endif
}  // namespace linnet
