#include <array>
#include <vector>
#include "engine/ops/pointwise/expression_builder.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

// The operands of a node, each once.
class Operands {
 public:
  explicit Operands(ExpressionBuilder& builder) : builder_(builder) {}

  ExpressionBuilder::Ref add(Tensor tensor) {
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (tensors_[i].graph == tensor.graph && tensors_[i].id == tensor.id) return builder_.input(static_cast<int>(i));
    tensors_.push_back(tensor);
    return builder_.input(static_cast<int>(tensors_.size()) - 1);
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  ExpressionBuilder& builder_;
  std::vector<Tensor> tensors_;
};

}  // namespace

Tensor apply_scalar(Scalar function, At x) {
  ExpressionBuilder e;
  return pointwise(e.finish(e.apply(function, e.input(0))), std::array{x.value}, x.where);
}

Tensor apply_scalar(Scalar function, At a, Tensor b) {
  ExpressionBuilder e;
  Operands operands(e);
  const auto x = operands.add(a.value), y = operands.add(b);
  return pointwise(e.finish(e.apply(function, x, y)), operands.tensors(), a.where);
}

Tensor apply_scalar(Scalar function, At a, Tensor b, Tensor c) {
  ExpressionBuilder e;
  Operands operands(e);
  const auto x = operands.add(a.value), y = operands.add(b), z = operands.add(c);
  return pointwise(e.finish(e.apply(function, x, y, z)), operands.tensors(), a.where);
}

Tensor apply_scalar(Scalar function, At a, double b) {
  ExpressionBuilder e;
  const auto x = e.input(0);
  return pointwise(e.finish(e.apply(function, x, e.constant(b))), std::array{a.value}, a.where);
}

Tensor apply_scalar(Scalar function, double a, At b) {
  ExpressionBuilder e;
  const auto x = e.constant(a);
  return pointwise(e.finish(e.apply(function, x, e.input(0))), std::array{b.value}, b.where);
}

}  // namespace linnet
