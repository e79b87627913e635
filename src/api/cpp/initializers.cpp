#include "linnet/initializers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace linnet {
namespace {

struct Fans {
  double in, out;
};

Fans fans_of(const Shape& shape) {
  const auto elements = static_cast<double>(shape.elements());
  if (shape.rank() < 2) return {elements, elements};
  return {elements / static_cast<double>(shape[0]), elements / static_cast<double>(shape[-1])};
}

// Two independent numbers from N(0, deviation^2) (Box & Muller 1958).
std::array<double, 2> two_normal(double deviation, const std::function<double()>& uniform) {
  const double radius = deviation * std::sqrt(-2 * std::log(1 - uniform()));
  const double angle = 2 * std::numbers::pi * uniform();
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

void fill_normal(std::span<float> values, double deviation, const std::function<double()>& uniform) {
  for (size_t i = 0; i < values.size(); i += 2) {
    const auto [first, second] = two_normal(deviation, uniform);
    values[i] = static_cast<float>(first);
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(second);
  }
}

void fill_uniform(std::span<float> values, double bound, const std::function<double()>& uniform) {
  for (float& value : values) value = static_cast<float>((2 * uniform() - 1) * bound);
}

}  // namespace

Initializer values_init(std::vector<float> given) {
  return [given = std::move(given)](std::span<float> values, const Shape& shape, const auto&) {
    if (given.size() != values.size())
      fail_user("a parameter of shape " + shape.text() + " is initialized with " + std::to_string(given.size()) +
                " values");
    std::ranges::copy(given, values.begin());
  };
}

Initializer xavier_normal() {
  return [](std::span<float> values, const Shape& shape, const auto& uniform) {
    const Fans fans = fans_of(shape);
    fill_normal(values, std::sqrt(2 / (fans.in + fans.out)), uniform);
  };
}

Initializer he_uniform() {
  return [](std::span<float> values, const Shape& shape, const auto& uniform) {
    fill_uniform(values, std::sqrt(6 / fans_of(shape).in), uniform);
  };
}

Initializer he_normal() {
  return [](std::span<float> values, const Shape& shape, const auto& uniform) {
    fill_normal(values, std::sqrt(2 / fans_of(shape).in), uniform);
  };
}

Initializer lecun_normal() {
  return [](std::span<float> values, const Shape& shape, const auto& uniform) {
    fill_normal(values, std::sqrt(1 / fans_of(shape).in), uniform);
  };
}

Initializer truncated_normal_init(double deviation) {
  return [deviation](std::span<float> values, const Shape&, const auto& uniform) {
    for (float& value : values) {
      double drawn = two_normal(deviation, uniform)[0];
      while (std::abs(drawn) > 2 * deviation) drawn = two_normal(deviation, uniform)[0];
      value = static_cast<float>(drawn);
    }
  };
}

}  // namespace linnet
