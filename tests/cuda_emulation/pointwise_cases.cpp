#include "cuda_emulation/pointwise_cases.h"
#include <numbers>
#include "engine/ops/pointwise/pointwise.h"

namespace linnet::testing {
namespace {
constexpr auto kF32 = DType::kF32, kBF16 = DType::kBF16;
constexpr auto kFull = Broadcast::kFull, kSuffix = Broadcast::kSuffix, kPrefix = Broadcast::kPrefix,
               kScalar = Broadcast::kScalar;

Expression of_function(Scalar function) {
  ExpressionBuilder e;
  const int arity = scalar_arity(function);
  const auto a = e.input(0);
  return e.finish(e.apply(function, a, arity > 1 ? e.input(1) : -1, arity > 2 ? e.input(2) : -1));
}

// x * Phi(x + bias) * column + scalar, with a constant that is no short decimal and an infinite one.
Expression of_many() {
  ExpressionBuilder e;
  const auto x = e.apply(Scalar::kAdd, e.input(0), e.input(1));
  const auto erf = e.apply(Scalar::kErf, e.apply(Scalar::kMul, x, e.constant(1 / std::numbers::sqrt2)));
  const auto phi = e.apply(Scalar::kMul, e.apply(Scalar::kAdd, erf, e.constant(1)), e.constant(0.5));
  const auto gelu = e.apply(Scalar::kMul, x, phi);
  const auto sum = e.apply(Scalar::kAdd, e.apply(Scalar::kMul, gelu, e.input(2)), e.input(3));
  return e.finish(e.apply(Scalar::kMin, sum, e.constant(INFINITY)));
}
}  // namespace

std::vector<PointwiseCase> pointwise_cases() {
  std::vector<PointwiseCase> cases;
  for (int f = static_cast<int>(Scalar::kAdd); f <= static_cast<int>(kLastScalar); ++f) {
    const auto function = static_cast<Scalar>(f);
    const std::vector<PointwiseSource::Operand> operands(static_cast<size_t>(scalar_arity(function)), {kF32, kFull});
    cases.push_back(
        {std::string("all_") + scalar_name(function), of_function(function), operands, kF32, f % 2 ? 1 : 4, false});
  }
  for (const int step : {1, 4, 8})
    for (const DType wide : {kF32, kBF16})
      for (const DType narrow : {kF32, kBF16})
        cases.push_back({"many_" + std::to_string(cases.size()), of_many(),
            {{wide, kFull}, {narrow, kSuffix}, {wide, kPrefix}, {narrow, kScalar}}, narrow, step, step == 4});
  return cases;
}
}  // namespace linnet::testing
