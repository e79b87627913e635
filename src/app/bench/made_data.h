// Whole numbers for made data: the same on every machine.
#pragma once
#include <cstdint>
#include <cstring>

#include "app/bench/workload.h"

namespace linnet {

// splitmix64 (Steele, Lea & Flood 2014).
class MadeNumbers {
 public:
  explicit MadeNumbers(uint64_t seed) : state_(seed) {}
  // Uniform in [low, high).
  int32_t next(int64_t low, int64_t high) {
    return static_cast<int32_t>(low + static_cast<int64_t>(word() % static_cast<uint64_t>(high - low)));
  }

 private:
  uint64_t word() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

template <class T>
WorkloadInput workload_input(std::string name, DType dtype, Shape shape, const std::vector<T>& values) {
  WorkloadInput input{std::move(name), {dtype, shape}, std::vector<std::byte>(values.size() * sizeof(T))};
  std::memcpy(input.data.data(), values.data(), input.data.size());
  return input;
}

}  // namespace linnet
