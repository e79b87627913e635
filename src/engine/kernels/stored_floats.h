// Floats in memory, as fp32 or as bfloat16: what kernels read and write where activations are stored in bf16. All
// arithmetic is fp32; engine/kernels/lanes-inl.h has the loads and stores of vectors.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include "base/thread_pool.h"
#include "engine/kernels/precision.h"

namespace linnet {

// The upper half of an fp32 number. From a float it rounds as round_to_bf16 (engine/kernels/precision.h).
struct Bfloat16 {
  Bfloat16() = default;
  explicit Bfloat16(float x) : bits(static_cast<uint16_t>(std::bit_cast<uint32_t>(round_to_bf16(x)) >> 16)) {}
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  uint16_t bits;
};
static_assert(sizeof(Bfloat16) == 2);

// Whether the processor has AVX-512-BF16.
extern const bool kProcessorRoundsToBf16;

// A pointer to floats of either type; null where an operand is left out. Offsets count elements.
struct StoredFloats {
  StoredFloats() = default;
  StoredFloats(std::nullptr_t) {}
  StoredFloats(const float* floats) : data(floats) {}
  StoredFloats(const Bfloat16* floats) : data(floats), is_bf16(true) {}
  StoredFloats(const void* floats, bool bf16) : data(floats), is_bf16(bf16) {}

  const float* f32() const { return static_cast<const float*>(data); }
  const Bfloat16* bf16() const { return static_cast<const Bfloat16*>(data); }
  template <class T>  // float or Bfloat16, as is_bf16 says
  const T* as() const {
    return static_cast<const T*>(data);
  }
  float operator[](int64_t i) const { return is_bf16 ? static_cast<float>(bf16()[i]) : f32()[i]; }
  StoredFloats operator+(int64_t offset) const {
    return is_bf16 ? StoredFloats(bf16() + offset) : StoredFloats(f32() + offset);
  }
  explicit operator bool() const { return data != nullptr; }

  const void* data = nullptr;
  bool is_bf16 = false;
};

struct MutableStoredFloats {
  MutableStoredFloats() = default;
  MutableStoredFloats(std::nullptr_t) {}
  MutableStoredFloats(float* floats) : data(floats) {}
  MutableStoredFloats(Bfloat16* floats) : data(floats), is_bf16(true) {}
  MutableStoredFloats(void* floats, bool bf16) : data(floats), is_bf16(bf16) {}

  float* f32() const { return static_cast<float*>(data); }
  Bfloat16* bf16() const { return static_cast<Bfloat16*>(data); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  MutableStoredFloats operator+(int64_t offset) const {
    return is_bf16 ? MutableStoredFloats(bf16() + offset) : MutableStoredFloats(f32() + offset);
  }
  operator StoredFloats() const { return {data, is_bf16}; }
  explicit operator bool() const { return data != nullptr; }

  void* data = nullptr;
  bool is_bf16 = false;
};

// to[i] = from[i] for i < n, rounded where only `to` is bf16. `to` may be `from` if both have the same type.
void convert_floats(int64_t n, StoredFloats from, MutableStoredFloats to, ThreadPool& pool);

}  // namespace linnet
