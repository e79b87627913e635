#include "linnet/random.h"

#include <array>
#include <numbers>

#include "engine/ops/dropout/dropout.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/expression_builder.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/random_uniform/random_uniform.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {

// Draws are told apart by their module and by how many came before them.
Tensor draw(const Shape& shape, SourceLine where) {
  Trace& trace = Trace::current();
  const Graph& graph = trace.graph();
  int before = 0;
  for (const Node& node : graph.nodes()) before += node.op == &kRandomUniform;
  const uint64_t site = dropout_site(graph.scope_path(graph.scope()), "random " + std::to_string(before));
  return random_uniform(At(trace.random(), where), {trace.options().dtype, shape}, site);
}

}  // namespace

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
