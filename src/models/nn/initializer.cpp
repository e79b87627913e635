#include "models/nn/initializer.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include "base/hash.h"
#include "engine/kernels/random/philox.h"

namespace linnet {
Initializer constant_init(double value) {
  return [value](std::span<float> values, const Shape&, const auto&) {
    std::ranges::fill(values, static_cast<float>(value));
  };
}

Initializer xavier_uniform(int64_t parts) {
  return [parts](std::span<float> values, const Shape& shape, const auto& uniform) {
    const auto elements = static_cast<double>(shape.elements());
    const bool is_vector = shape.rank() < 2;  // whose fans are its size
    const double in = is_vector ? elements : elements / static_cast<double>(shape[0]);
    const double out = is_vector ? elements : elements / static_cast<double>(shape[-1]);
    uniform_init(std::sqrt(6.0 / (in + out / static_cast<double>(parts))))(values, shape, uniform);
  };
}

Initializer uniform_init(double bound) {
  return [bound](std::span<float> values, const Shape&, const auto& uniform) {
    for (float& value : values) value = static_cast<float>((2 * uniform() - 1) * bound);
  };
}

Initializer normal_init(double deviation) {
  return [deviation](std::span<float> values, const Shape&, const auto& uniform) {
    for (size_t i = 0; i < values.size(); i += 2) {  // Box & Muller 1958
      const double radius = deviation * std::sqrt(-2 * std::log(1 - uniform()));
      const double angle = 2 * std::numbers::pi * uniform();
      values[i] = static_cast<float>(radius * std::cos(angle));
      if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
  };
}

Initializer sinusoidal_positions(bool halves) {
  return [halves](std::span<float> values, const Shape& shape, const auto&) {
    const int64_t width = shape[1];
    for (int64_t position = 0; position < shape[0]; ++position)
      for (int64_t i = 0; i < width; ++i) {
        const double angle = static_cast<double>(position) /
                             std::pow(10000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(width));
        const int64_t column = halves ? i / 2 + i % 2 * ((width + 1) / 2) : i;
        values[position * width + column] = static_cast<float>(i % 2 ? std::cos(angle) : std::sin(angle));
      }
  };
}

void initialize(
    const Initializer& initializer, std::string_view name, uint64_t seed, const Shape& shape, std::span<float> values) {
  const uint64_t key = fnv1a(name, 0xcbf29ce484222325u ^ seed * 0x9e3779b97f4a7c15u);
  uint64_t count = 0;
  std::array<uint32_t, 4> words{};
  const auto uniform = [&] {
    const uint64_t counter = count / 2;  // four words are two numbers
    if (count % 2 == 0)
      words = philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
    const size_t first = count++ % 2 * 2;
    return static_cast<double>((static_cast<uint64_t>(words[first]) << 32 | words[first + 1]) >> 11) * 0x1p-53;
  };
  initializer(values, shape, uniform);
}
}  // namespace linnet
