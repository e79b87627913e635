// Ops of a program's own: what an op computes, as a kernel for the CPU and as a composition of other ops, and its
// gradient.
//
//   const OwnOp snake({
//       .name = "snake",                                                       // x + sin(a x)^2 / a
//       .infer = [](const OpTypes& types) { return std::vector{types.in[0]}; },
//       .decompose = [](const OpOperands& op) -> std::vector<Tensor> {
//         return {op.in[0] + square(sin(op.in[0] * op.numbers[0])) / op.numbers[0]};
//       },
//       .gradient = ..., .kernel = ...});
//   Tensor y = snake(x, {}, {2.0});
//
// linnet/testing.h checks that gradient, decomposition and kernel agree. examples/library/own_op.cpp is a whole
// program.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>
#include "linnet/tensor.h"

namespace linnet {
struct OpDef;

// What the shape inference of an op is given.
struct OpTypes {
  // The types of the operands. Floats are f64 where a reference is computed.
  std::span<const TensorType> in;
  // The numbers that the op was called with.
  std::span<const double> numbers;
};

// What the decomposition of an op is given.
struct OpOperands {
  // The operands.
  std::span<const Tensor> in;
  // The numbers that the op was called with.
  std::span<const double> numbers;
};

// What the gradient of an op is given.
struct OpGradient {
  // The operands.
  std::span<const Tensor> in;
  // The results.
  std::span<const Tensor> out;
  // The gradients of the loss with respect to the results; undefined where no gradient flows into a result.
  std::span<const Tensor> out_grad;
  // The numbers that the op was called with.
  std::span<const double> numbers;
};

// An operand or a result in memory while the op runs, dense and row-major. Floats are f32.
struct OpArray {
  // The first element.
  void* data = nullptr;
  // Element type and shape.
  TensorType type;

  // The elements as float, int32_t or uint8_t, whichever the type says.
  template <class T> std::span<T> as() const {
    return {static_cast<T*>(data), static_cast<size_t>(type.shape.elements())};
  }
};

// What the kernel of an op is given. It writes every element of every result.
struct OpCall {
  // The operands; not to be written.
  std::span<const OpArray> in;
  // The results.
  std::span<const OpArray> out;
  // The numbers that the op was called with.
  std::span<const double> numbers;
  // Calls body(begin, end) for ranges that together are [0, count), on the threads of the caller. The ranges depend on
  // `count` alone, so that results need not depend on the number of threads. body throws nothing.
  std::function<void(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body)> parallel;
};

// What an op is. The functions may be called by several threads at once.
struct OpDefinition {
  // Names the op in messages and profiles. No other op has it.
  std::string name;
  // The types of the results. Throws Error(kShape) with what is wrong ("got f32[3], expected a matrix"); the line and
  // the module are added to it.
  std::function<std::vector<TensorType>(const OpTypes&)> infer;
  // The same computation by other ops, one tensor for each result: what the op is tested against, and what runs in f64
  // and on a GPU.
  std::function<std::vector<Tensor>(const OpOperands&)> decompose;
  // The gradient with respect to each operand, of its type; an undefined tensor for an operand without one. Empty: a
  // gradient through the op is an Error.
  std::function<std::vector<Tensor>(const OpGradient&)> gradient;
  // Computes the results on the CPU, in f32.
  std::function<void(const OpCall&)> kernel;
};

// An op, registered when it is constructed. It stays registered until the process ends; objects of static storage are
// fine.
class OwnOp {
 public:
  // Throws Error(kUser) when the name is empty or taken, and without infer, decompose or kernel.
  explicit OwnOp(OpDefinition definition);
  // Records the op and returns its first result. `numbers` are what the functions get. Throws Error(kShape) when the
  // shape inference does.
  Tensor operator()(At first, const std::vector<Tensor>& rest = {}, const std::vector<double>& numbers = {}) const;
  // The same with all results.
  std::vector<Tensor> all(
      At first, const std::vector<Tensor>& rest = {}, const std::vector<double>& numbers = {}) const;

 private:
  const OpDef* def_;
};
}  // namespace linnet
