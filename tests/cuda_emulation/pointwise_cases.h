// Generated elementwise kernels (engine/ops/pointwise/pointwise.h) that are compiled for the CPU while building,
// and by NVRTC where it is installed: every function, every kind and type of operand.
#pragma once
#include <span>
#include <string>
#include <vector>
#include "engine/ops/pointwise/pointwise.h"

namespace linnet::testing {
struct PointwiseCase {
  std::string name;
  Expression expression;
  std::vector<PointwiseSource::Operand> operands;
  DType result;
  int step;
  bool wide_indices;
  PointwiseSource source() const { return {expression, operands, result, step, wide_indices}; }
};

std::vector<PointwiseCase> pointwise_cases();

using PointwiseFunction = void (*)(PointwiseArguments);
// In the order of the cases: from the generated file.
std::span<const PointwiseFunction> generated_pointwise();
}  // namespace linnet::testing
