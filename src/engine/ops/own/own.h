// Ops that programs define (include/linnet/own_op.h). Each OpDef calls the program's functions; all share kernels.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "engine/ops/kernel.h"

namespace linnet {
// The program's functions, which several threads may call at once.
struct OwnOpFunctions {
  std::string name;
  std::function<std::vector<TensorType>(std::span<const TensorType> in, std::span<const double> numbers)> infer;
  // Empty: the op cannot be differentiated.
  std::function<std::vector<Tensor>(const GradientArgs& args, std::span<const double> numbers)> gradient;
  std::function<std::vector<Tensor>(std::span<const Tensor> in, std::span<const double> numbers)> decompose;
  std::function<void(const KernelArgs& args, std::span<const double> numbers)> run;  // float32
  std::function<void(const KernelArgs& args)> run_reference;
};

struct OwnOpAttrs {
  int64_t op = -1;  // the number of the op in the process
  std::vector<double> numbers;
  void fields(FieldVisitor& visit) { visit("op", op), visit("numbers", numbers); }
  std::string text() const;
};

// Makes an op that exists until the process ends. Throws Error(kUser) if there is an op of that name.
const OpDef& register_own_op(OwnOpFunctions functions);
OwnOpAttrs own_op_attrs(const OpDef& op, std::span<const double> numbers);

const OpDef* find_own_op(std::string_view name);
KernelList own_op_kernels();
}  // namespace linnet
