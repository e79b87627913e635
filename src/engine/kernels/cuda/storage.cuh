// How kernels read and write what is stored as fp32 or bf16, one by one or neighbors in accesses of up to 16 bytes.
// They compute in fp32.
#pragma once
#include "base/error.h"
#include "engine/ir/tensor_type.h"
#include "engine/kernels/cuda/launch.cuh"

namespace linnet {
struct bf16 {
  uint16_t bits;
};

LINNET_DEVICE float to_float(float x) { return x; }
LINNET_DEVICE float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

template <class T> LINNET_DEVICE T from_float(float x);
template <> LINNET_DEVICE float from_float<float>(float x) { return x; }
template <> LINNET_DEVICE bf16 from_float<bf16>(float x) {
#ifdef LINNET_CUDA_EMULATION
  unsigned bits = __float_as_uint(x);
  if (x != x) return {0x7fff};
  bits += 0x7fffu + (bits >> 16 & 1);
  return {static_cast<uint16_t>(bits >> 16)};
#else
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#endif
}

// Four neighbors per access: `location` is aligned to four elements.
template <class T> struct alignas(4 * sizeof(T)) Four { T at[4]; };
template <class T> LINNET_DEVICE void load4(const T* location, float (&to)[4]) {
  const Four<T> four = *reinterpret_cast<const Four<T>*>(location);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = to_float(four.at[i]);
}
template <class T> LINNET_DEVICE void store4(T* location, const float (&from)[4]) {
  Four<T> four;
#pragma unroll
  for (int i = 0; i < 4; ++i) four.at[i] = from_float<T>(from[i]);
  *reinterpret_cast<Four<T>*>(location) = four;
}

// The same for up to four, one by one unless `aligned`, which needs four. Missing ones are read as 0.
template <class T> LINNET_DEVICE void load_up_to_4(const T* location, int64_t count, bool aligned, float (&to)[4]) {
  if (aligned) return load4(location, to);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = i < count ? to_float(location[i]) : 0;
}
template <class T> LINNET_DEVICE void store_up_to_4(T* location, int64_t count, bool aligned, const float (&from)[4]) {
  if (aligned) return store4(location, from);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i < count) location[i] = from_float<T>(from[i]);
}

// Of `count` elements, the four from 4 i on.
template <class Word> LINNET_DEVICE void fill_four(int64_t i, int64_t count, Word value, bool aligned, Word* to) {
  const int64_t begin = i * 4;
  if (aligned && begin + 4 <= count) *reinterpret_cast<Four<Word>*>(to + begin) = {{value, value, value, value}};
  else
    for (int64_t k = begin; k < min(begin + 4, count); ++k) to[k] = value;
}

// On the host: whether load4() and store4() may begin there.
template <class T> bool aligned4(const T* location) {
  return reinterpret_cast<uintptr_t>(location) % sizeof(Four<T>) == 0;
}

// On the host: calls body.operator()<T>() with float or bf16.
template <class Body> void for_storage(DType dtype, Body&& body) {
  if (dtype == DType::kF32) return body.template operator()<float>();
  if (dtype == DType::kBF16) return body.template operator()<bf16>();
  fail_internal(std::string("a CUDA kernel was given ") + dtype_name(dtype));
}

// Floats or bf16, distinguished when read: small data, or data read by all threads alike. Perhaps none.
struct Numbers {
  const void* location = nullptr;
  bool is_bf16 = false;
  LINNET_DEVICE explicit operator bool() const { return location; }
  LINNET_DEVICE float operator[](int64_t i) const {
    return is_bf16 ? to_float(static_cast<const bf16*>(location)[i]) : static_cast<const float*>(location)[i];
  }
};
template <class View> Numbers numbers_of(const View& view) { return {view.data, view.type.dtype == DType::kBF16}; }

template <class T>  // elements in 16 bytes
constexpr int kWide = static_cast<int>(16 / sizeof(T));

// Whether all of these addresses are 16-byte aligned; null ones are.
template <class... T> bool aligned16(const T*... locations) {
  return ((reinterpret_cast<uintptr_t>(locations) % 16 == 0) && ...);
}

// N = 1, or a multiple of 4 for floats and of 4 or 8 for bf16, with `location` aligned to as much, up to 16 bytes.
template <int N> LINNET_DEVICE void load_vector(const float* location, float (&to)[N]) {
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

template <int N> LINNET_DEVICE void load_vector(const bf16* location, float (&to)[N]) {
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

template <int N> LINNET_DEVICE void store_vector(float* location, const float (&from)[N]) {
  if constexpr (N == 1) {
    location[0] = from[0];
  } else {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      reinterpret_cast<float4*>(location)[i] = float4{from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]};
  }
}

template <int N> LINNET_DEVICE void store_vector(bf16* location, const float (&from)[N]) {
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

// A vector requested now and used later: its words wait in registers if they are few, else it is read at its use.
// `location` as for load_vector.
template <class T, int N> struct LaterVector {
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
