// Neighbors in memory in accesses of up to 16 bytes. Kernels compute in fp32.
#pragma once
#include "engine/kernels/cuda/storage.cuh"

namespace linnet {

// How many elements 16 bytes hold.
template <class T>
constexpr int kWide = static_cast<int>(16 / sizeof(T));

// Whether accesses of 16 bytes may begin at all of these addresses. Null ones may: nothing is read there.
template <class... T>
bool aligned16(const T*... locations) {
  return ((reinterpret_cast<uintptr_t>(locations) % 16 == 0) && ...);
}

// N = 1, or a multiple of 4 for floats and of 4 or 8 for bf16, with `location` aligned to as much, up to 16 bytes.
template <int N>
LINNET_DEVICE void load_vector(const float* location, float (&to)[N]) {
  if constexpr (N == 1) {
    to[0] = location[0];
  } else {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const float4 four = reinterpret_cast<const float4*>(location)[i];
      to[4 * i] = four.x, to[4 * i + 1] = four.y, to[4 * i + 2] = four.z, to[4 * i + 3] = four.w;
    }
  }
}

LINNET_DEVICE void unpack_bf16(unsigned word, float& low, float& high) {
  low = __uint_as_float(word << 16);
  high = __uint_as_float(word & 0xffff0000u);
}
LINNET_DEVICE unsigned pack_bf16(float low, float high) {
  return static_cast<unsigned>(from_float<bf16>(low).bits) | static_cast<unsigned>(from_float<bf16>(high).bits) << 16;
}

template <int N>
LINNET_DEVICE void load_vector(const bf16* location, float (&to)[N]) {
  if constexpr (N == 1) {
    to[0] = to_float(location[0]);
  } else if constexpr (N == 4) {
    const uint2 words = *reinterpret_cast<const uint2*>(location);
    unpack_bf16(words.x, to[0], to[1]);
    unpack_bf16(words.y, to[2], to[3]);
  } else {
    static_assert(N % 8 == 0);
#pragma unroll
    for (int i = 0; i < N / 8; ++i) {
      const uint4 words = reinterpret_cast<const uint4*>(location)[i];
      unpack_bf16(words.x, to[8 * i], to[8 * i + 1]);
      unpack_bf16(words.y, to[8 * i + 2], to[8 * i + 3]);
      unpack_bf16(words.z, to[8 * i + 4], to[8 * i + 5]);
      unpack_bf16(words.w, to[8 * i + 6], to[8 * i + 7]);
    }
  }
}

template <int N>
LINNET_DEVICE void store_vector(float* location, const float (&from)[N]) {
  if constexpr (N == 1) {
    location[0] = from[0];
  } else {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      reinterpret_cast<float4*>(location)[i] = float4{from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]};
  }
}

template <int N>
LINNET_DEVICE void store_vector(bf16* location, const float (&from)[N]) {
  if constexpr (N == 1) {
    location[0] = from_float<bf16>(from[0]);
  } else if constexpr (N == 4) {
    *reinterpret_cast<uint2*>(location) = uint2{pack_bf16(from[0], from[1]), pack_bf16(from[2], from[3])};
  } else {
    static_assert(N % 8 == 0);
#pragma unroll
    for (int i = 0; i < N / 8; ++i)
      reinterpret_cast<uint4*>(location)[i] =
          uint4{pack_bf16(from[8 * i], from[8 * i + 1]), pack_bf16(from[8 * i + 2], from[8 * i + 3]),
                pack_bf16(from[8 * i + 4], from[8 * i + 5]), pack_bf16(from[8 * i + 6], from[8 * i + 7])};
  }
}

// A vector that is asked for now and needed later: its words wait in registers where they are few, else it is read when
// it is needed. `location` as for load_vector.
template <class T, int N>
struct LaterVector {
  static constexpr bool kWaits = N > 1 && sizeof(T) == 2;

  LINNET_DEVICE void ask(const T* from) {
    location = from;
    if constexpr (kWaits) words = *reinterpret_cast<const uint4*>(from);
  }
  LINNET_DEVICE void take(float (&to)[N]) const {
    if constexpr (kWaits) load_vector(reinterpret_cast<const T*>(&words), to);
    else load_vector(location, to);
  }

  const T* location = nullptr;
  uint4 words;
};

}  // namespace linnet
