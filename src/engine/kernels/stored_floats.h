// Floats in memory as fp32 or bfloat16, for kernels whose activations may be stored in bf16. All arithmetic is fp32;
// engine/kernels/lanes-inl.h loads and stores vectors.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include "base/thread_pool.h"
#include "engine/kernels/precision.h"

namespace linnet {
// The upper half of an fp32 number. Rounds a float like round_to_bf16 (engine/kernels/precision.h).
struct Bfloat16 {
  Bfloat16() = default;
  explicit Bfloat16(float x) : bits(static_cast<uint16_t>(std::bit_cast<uint32_t>(round_to_bf16(x)) >> 16)) {}
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  uint16_t bits;
};
static_assert(sizeof(Bfloat16) == 2);

extern const bool kProcessorRoundsToBf16;  // AVX-512-BF16

// A pointer to floats of either type; null for a missing operand. Offsets count elements.
template <bool kMutable> struct BasicStoredFloats {
  template <class T> using Pointer = std::conditional_t<kMutable, T*, const T*>;

  BasicStoredFloats() = default;
  BasicStoredFloats(std::nullptr_t) {}
  BasicStoredFloats(Pointer<float> floats) : data(floats) {}
  BasicStoredFloats(Pointer<Bfloat16> floats) : data(floats), is_bf16(true) {}
  BasicStoredFloats(Pointer<void> floats, bool bf16) : data(floats), is_bf16(bf16) {}
  template <bool kOther>
  requires(kOther && !kMutable) BasicStoredFloats(const BasicStoredFloats<kOther>& other)
      : data(other.data), is_bf16(other.is_bf16) {}

  template <class T>  // float or Bfloat16, as is_bf16 says
  Pointer<T> as() const {
    return static_cast<Pointer<T>>(data);
  }
  Pointer<float> f32() const { return as<float>(); }
  Pointer<Bfloat16> bf16() const { return as<Bfloat16>(); }
  float operator[](int64_t i) const { return is_bf16 ? static_cast<float>(bf16()[i]) : f32()[i]; }
  BasicStoredFloats operator+(int64_t offset) const {
    return is_bf16 ? BasicStoredFloats(bf16() + offset) : BasicStoredFloats(f32() + offset);
  }
  explicit operator bool() const { return data != nullptr; }

  Pointer<void> data = nullptr;
  bool is_bf16 = false;
};
using StoredFloats = BasicStoredFloats<false>;
using MutableStoredFloats = BasicStoredFloats<true>;

// to[i] = from[i] for i < n, rounded if only `to` is bf16. `to` may be `from` if both have the same type.
void convert_floats(int64_t n, StoredFloats from, MutableStoredFloats to, ThreadPool& pool);
void convert_floats(int64_t n, StoredFloats from, MutableStoredFloats to);  // on the calling thread
}  // namespace linnet
