#include "engine/kernels/pointwise/pointwise_program.h"
#include <algorithm>

namespace linnet {
namespace {

// last_use[i] = the last instruction that reads instruction i, -1 if none does.
void find_last_uses(const Expression& expression, int* last_use) {
  const auto count = static_cast<int>(expression.code.size());
  std::fill(last_use, last_use + count, -1);
  for (int i = 0; i < count; ++i) {
    const Instruction& in = expression.code[static_cast<size_t>(i)];
    const int16_t arguments[3] = {in.a, in.b, in.c};
    for (int k = 0; k < scalar_arity(in.function); ++k) last_use[arguments[k]] = i;
  }
}

class Registers {
 public:
  uint8_t take() {
    const auto slot = std::find(busy_, busy_ + kMaxInstructions, false);
    *slot = true;
    const auto index = static_cast<int>(slot - busy_);
    count_ = std::max(count_, index + 1);
    return static_cast<uint8_t>(index);
  }
  void give_back(uint8_t index) { busy_[index] = false; }
  int count() const { return count_; }

 private:
  bool busy_[kMaxInstructions] = {};
  int count_ = 0;
};

}  // namespace

PointwiseProgram compile_pointwise(const Expression& expression) {
  PointwiseProgram program;
  PointwiseSource where[kMaxInstructions];
  int last_use[kMaxInstructions];
  Registers registers;
  find_last_uses(expression, last_use);
  const auto count = static_cast<int>(expression.code.size());
  for (int i = 0; i < count; ++i) {
    const Instruction& in = expression.code[static_cast<size_t>(i)];
    const bool is_result = i + 1 == count;
    if (in.function == Scalar::kInput) {
      where[i] = {PointwiseSource::kOperand, static_cast<uint8_t>(in.a)};
    } else if (in.function == Scalar::kConstant) {
      where[i] = {PointwiseSource::kConstant, static_cast<uint8_t>(program.constant_count)};
      program.constants[program.constant_count++] = static_cast<float>(in.constant);
    } else if (is_result || last_use[i] >= 0) {  // a value nobody reads is not computed
      PointwiseStep& step = program.steps[program.step_count++];
      step.function = in.function;
      const int16_t arguments[3] = {in.a, in.b, in.c};
      for (int k = 0; k < scalar_arity(in.function); ++k) {
        const PointwiseSource source = step.argument[k] = where[arguments[k]];
        // Freed before the target is taken: a step may overwrite its own argument.
        if (source.kind == PointwiseSource::kRegister && last_use[arguments[k]] == i) registers.give_back(source.index);
      }
      if (!is_result) where[i] = {PointwiseSource::kRegister, step.target = registers.take()};
    }
    const bool is_leaf = in.function == Scalar::kInput || in.function == Scalar::kConstant;
    if (is_result && is_leaf) {
      PointwiseStep& copy = program.steps[program.step_count++];
      copy.function = Scalar::kInput;
      copy.argument[0] = where[i];
    }
  }
  program.register_count = registers.count();
  return program;
}

}  // namespace linnet
