// How kernels read and write what is stored as fp32 or bf16. They compute in fp32.
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

template <class T>
LINNET_DEVICE T from_float(float x);
template <>
LINNET_DEVICE float from_float<float>(float x) {
  return x;
}
template <>
LINNET_DEVICE bf16 from_float<bf16>(float x) {
#ifdef LINNET_CUDA_EMULATION
  unsigned bits = __float_as_uint(x);
  if (x != x) return {0x7fff};
  bits += 0x7fffu + (bits >> 16 & 1);
  return {static_cast<uint16_t>(bits >> 16)};
#else
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#endif
}

// Four neighbors in one access: `location` is aligned to four elements.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};
template <class T>
LINNET_DEVICE void load4(const T* location, float (&to)[4]) {
  const Four<T> four = *reinterpret_cast<const Four<T>*>(location);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = to_float(four.at[i]);
}
template <class T>
LINNET_DEVICE void store4(T* location, const float (&from)[4]) {
  Four<T> four;
#pragma unroll
  for (int i = 0; i < 4; ++i) four.at[i] = from_float<T>(from[i]);
  *reinterpret_cast<Four<T>*>(location) = four;
}

// The same of up to four, and one by one unless `aligned`; with fewer than four `aligned` is false. What there is not
// is read as 0.
template <class T>
LINNET_DEVICE void load_up_to_4(const T* location, int64_t count, bool aligned, float (&to)[4]) {
  if (aligned) return load4(location, to);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = i < count ? to_float(location[i]) : 0;
}
template <class T>
LINNET_DEVICE void store_up_to_4(T* location, int64_t count, bool aligned, const float (&from)[4]) {
  if (aligned) return store4(location, from);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i < count) location[i] = from_float<T>(from[i]);
}

// On the host: whether load4() and store4() may begin there.
template <class T>
bool aligned4(const T* location) {
  return reinterpret_cast<uintptr_t>(location) % sizeof(Four<T>) == 0;
}

// On the host: calls body.operator()<T>() with float or bf16.
template <class Body>
void for_storage(DType dtype, Body&& body) {
  if (dtype == DType::kF32) return body.template operator()<float>();
  if (dtype == DType::kBF16) return body.template operator()<bf16>();
  fail_internal(std::string("a CUDA kernel was given ") + dtype_name(dtype));
}

}  // namespace linnet
