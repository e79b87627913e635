// Tests of ops, with any test framework: check_op() says what is wrong with one.
//
//   const auto problems = linnet::testing::check_op({
//       .inputs = {{.shape = {3, 5}}},
//       .build = [](const std::vector<Tensor>& in) { return std::vector{snake(in[0], {}, {2.0})}; }});
//   EXPECT_EQ(problems, std::vector<std::string>{});
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>
#include "linnet/tensor.h"

// What tests use.
namespace linnet::testing {
// An operand, which is filled with random numbers.
struct OpInput {
  // Its shape.
  Shape shape;
  // Whether it is i32; else it is floating-point.
  bool integer = false;
  // Integers are in [low, high).
  int32_t low = 0;
  // Integers are in [low, high).
  int32_t high = 0;
  // Floats are uniform in center +- spread.
  double center = 0;
  // Floats are uniform in center +- spread.
  double spread = 1;
};

// What is checked: an op, or a composition of several.
struct OpCase {
  // The operands.
  std::vector<OpInput> inputs;
  // Records the ops and returns the results to check. It is called several times, with tensors of f32 and of f64.
  std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)> build;
  // How far float32 may be from float64: ||a - b|| / ||b||.
  double tolerance = 2e-5;
  // Whether gradients are checked.
  bool differentiate = true;
};

// Checks an op, and returns a line for each thing that is wrong; none when all is well:
//
//   - gradients in float64 against finite differences, for every floating-point operand;
//   - the op against its decomposition in float64;
//   - the kernel in float32 against float64, values and gradients;
//   - the optimized and planned graph against the same graph node by node, bit for bit;
//   - 1, 2 and 3 threads, bit for bit.
//
// Throws Error when the ops cannot be recorded.
std::vector<std::string> check_op(const OpCase& op);
}  // namespace linnet::testing
