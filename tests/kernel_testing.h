// What the tests of kernels share: random arrays, every instruction set times several thread counts.
#pragma once
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>
#include "base/thread_pool.h"
#include "engine/kernels/processor.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// An instruction set for as long as this lives.
struct ForcedIsa {
  explicit ForcedIsa(const std::string& name) { force_isa(name); }
  ~ForcedIsa() { force_isa("auto"); }
};

// Memory for operands and workspaces of kernels, from a multiple of 64 bytes on.
struct AlignedBytes {
  explicit AlignedBytes(size_t bytes) : memory(bytes + 64) {}
  std::byte* data() {
    return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  }
  std::vector<std::byte> memory;
};

inline std::vector<float> random_floats(int64_t n, uint32_t seed, float low = -2, float high = 2) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = uniform(random);
  return x;
}

inline std::vector<Bfloat16> to_bf16(const std::vector<float>& x) { return {x.begin(), x.end()}; }
inline std::vector<float> to_floats(const std::vector<Bfloat16>& x) { return {x.begin(), x.end()}; }
inline std::vector<float> rounded_to_bf16(std::vector<float> x) {
  for (float& v : x) v = round_to_bf16(v);
  return x;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Calls run(pool) -> std::vector<float> on every instruction set with 1, 2 and 3 threads, expects the same bits for
// every number of threads, and hands each instruction set's result to check(result).
template <class Run, class Check> void for_every_isa(const Run& run, const Check& check) {
  ThreadPool one(1), two(2), three(3);
  for (const auto& isa : available_isas()) {
    force_isa(isa);
    SCOPED_TRACE(isa);
    const std::vector<float> result = run(one);
    EXPECT_TRUE(same_bits(result, run(two))) << "two threads differ from one";
    EXPECT_TRUE(same_bits(result, run(three))) << "three threads differ from one";
    check(result);
  }
  force_isa("auto");
}

// NaN compares unequal to itself, and its sign and payload may differ.
inline void expect_same(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << "element " << i << " is " << got[i] << ", not " << want[i];
}

// |got - want| <= tolerance * max(1, |want|) everywhere, where NaN and infinities must be met exactly.
template <class T> void expect_close(const std::vector<float>& got, const std::vector<T>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const auto w = static_cast<double>(want[i]);
    const bool close = std::isnan(w)   ? std::isnan(got[i])
                       : std::isinf(w) ? static_cast<double>(got[i]) == w
                                       : std::fabs(got[i] - w) <= tolerance * std::max(1.0, std::fabs(w));
    ASSERT_TRUE(close) << "element " << i << " is " << got[i] << ", not " << w;
  }
}
}  // namespace linnet
