// An expression made ready to run on blocks: inputs and constants are read where they are, every other instruction is
// a step that writes a register (a block of scratch memory), and a register is reused once its value is dead.
#pragma once
#include "engine/kernels/pointwise/expression.h"

namespace linnet {

struct PointwiseSource {
  enum Kind : uint8_t { kOperand, kConstant, kRegister } kind = kOperand;
  uint8_t index = 0;  // of the operand, the constant or the register
};

struct PointwiseStep {
  Scalar function;  // kInput copies its argument
  uint8_t target;   // a register; the last step writes the output instead
  PointwiseSource argument[3];
};

struct PointwiseProgram {
  PointwiseStep steps[kMaxInstructions];
  float constants[kMaxInstructions];
  int step_count = 0, constant_count = 0, register_count = 0;
};

// For a checked expression.
PointwiseProgram compile_pointwise(const Expression& expression);

}  // namespace linnet
