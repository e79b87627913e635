#include "linnet/initializers.h"
#include <algorithm>
#include <cmath>
#include <numbers>
#include "base/fail.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "linnet/random.h"
#include "models/nn/trace.h"

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

Initializer normal_of(double (*variance)(const Fans& fans)) {
  return [variance](std::span<float> values, const Shape& shape, const auto& uniform) {
    fill_normal(values, std::sqrt(variance(fans_of(shape))), uniform);
  };
}

// Each draw is identified by its module and the number of earlier draws.
Tensor draw(const Shape& shape, SourceLine where) {
  Trace& trace = Trace::current();
  const Graph& graph = trace.graph();
  int before = 0;
  for (const Node& node : graph.nodes()) before += node.op == &kRandomUniform;
  const uint64_t site = dropout_site(graph.scope_path(graph.scope()), "random " + std::to_string(before));
  return random_uniform(At(trace.random(), where), {trace.options().dtype, shape}, site);
}
}  // namespace

Initializer values_init(std::vector<float> given) {
  return [given = std::move(given)](std::span<float> values, const Shape& shape, const auto&) {
    if (given.size() != values.size())
      fail_user("a parameter of shape ", shape, " is initialized with ", given.size(), " values");
    std::ranges::copy(given, values.begin());
  };
}

Initializer xavier_normal() {
  return normal_of([](const Fans& fans) { return 2 / (fans.in + fans.out); });
}

Initializer he_uniform() {
  return [](std::span<float> values, const Shape& shape, const auto& uniform) {
    const double bound = std::sqrt(6 / fans_of(shape).in);
    for (float& value : values) value = static_cast<float>((2 * uniform() - 1) * bound);
  };
}

Initializer he_normal() {
  return normal_of([](const Fans& fans) { return 2 / fans.in; });
}

Initializer lecun_normal() {
  return normal_of([](const Fans& fans) { return 1 / fans.in; });
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

Tensor random_uniform(const Shape& shape, double low, double high, SourceLine where) {
  return At(At(draw(shape, where), where) * (high - low), where) + low;
}

// Box & Muller 1958.
Tensor random_normal(const Shape& shape, SourceLine where) {
  const std::array drawn{draw(shape, where), draw(shape, where)};
  ExpressionBuilder e;
  const auto rest = e.apply(Scalar::kSub, e.constant(1), e.input(0));  // never 0, whose logarithm is infinite
  const auto radius = e.apply(Scalar::kSqrt, e.apply(Scalar::kMul, e.constant(-2), e.apply(Scalar::kLog, rest)));
  const auto angle = e.apply(Scalar::kMul, e.constant(2 * std::numbers::pi), e.input(1));
  return pointwise(e.finish(e.apply(Scalar::kMul, radius, e.apply(Scalar::kCos, angle))), drawn, where);
}
}  // namespace linnet
