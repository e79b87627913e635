// Summed token cross-entropy with label smoothing (Szegedy et al. 2016); a row with a negative target is ignored.
//
//   loss of a row = lse(x) - (1 - s) * x[target] - s * mean(x),   lse(x) = log sum exp x
//
// logits [..., V], targets i32 [...] -> sum of losses [], lse [rows]. The caller divides the sum by a count of tokens,
// which gradient accumulation first adds up over micro-steps.
#pragma once
#include <optional>
#include "engine/kernels/precision.h"
#include "engine/ops/kernel.h"
#include "engine/ops/quantized/quantized.h"

namespace linnet {
struct CrossEntropyAttrs {
  double label_smoothing = 0;
  void fields(FieldVisitor& visit) { visit("label_smoothing", label_smoothing); }
};

struct CountAttrs {
  DType dtype = DType::kF32;
  void fields(FieldVisitor& visit) { visit("dtype", dtype); }
};

struct OneHotAttrs {
  int64_t classes = 0;
  DType dtype = DType::kF32;
  void fields(FieldVisitor& visit) { visit("classes", classes), visit("dtype", dtype); }
};

extern const OpDef kCrossEntropy, kCrossEntropyGrad, kMaskTargets, kCountTargets, kOneHot;

Tensor cross_entropy_sum(At logits, Tensor targets, double label_smoothing = 0);

// targets i32 [B, T], lengths i32 [B]: -1 from each length on. Lengths, never a token's value, define padding.
Tensor mask_targets(At targets, Tensor lengths);

// targets i32 [...] -> [..., classes] of type `dtype`: 1 at the target, 0 elsewhere; zeros for a negative target.
Tensor one_hot(At targets, int64_t classes, DType dtype);

// The number of targets that are not negative, as a scalar of type `dtype`.
Tensor count_targets(At targets, DType dtype);

// The loss of a classifier over many classes without its logits in memory: a linear layer and the cross-entropy of its
// result, computed chunk by chunk of rows (engine/kernels/loss/cross_entropy.h).
//
//   x = hidden weight^T [+ bias],  loss of a row = lse(x) - (1 - s) * x[target] - s * mean(x)
//
// hidden [..., D], weight [V, D], targets i32 [...], bias [V] -> sum of losses []. A row with a negative target is
// skipped: it costs nothing, and its hidden state gets no gradient. The gradient recomputes a chunk's logits; in
// training graphs the pass fuse_loss lets it give the loss as well, in place of the forward node.
struct LinearCrossEntropyAttrs {
  double label_smoothing = 0;
  bool bias = false;
  Precision precision = Precision::kF32;
  // Of the gradient, set by passes: its last result is the loss; its last operand is added to dweight.
  bool loss = false, accumulate = false;
  bool weight_gradient = true;  // of the gradient: false where the weight is frozen, which has no dweight
  // Set by fuse_quantized: the weight is packed.
  bool packed = false;
  QuantizedAttrs weight = {};
  // If ranks divide the classes (distributed/comm/tensor_group.h): weight and bias are this rank's, the targets count
  // through all classes, the loss is that of all, and dhidden is this rank's summand. all_classes 0: whole.
  int64_t all_classes = 0, first_class = 0;
  int ranks = 1;
  void fields(FieldVisitor& visit) {
    visit("label_smoothing", label_smoothing), visit("bias", bias), visit("precision", precision);
    visit("loss", loss), visit("accumulate", accumulate), visit("weight_gradient", weight_gradient);
    visit("packed", packed), visit("weight", weight);
    visit("all_classes", all_classes), visit("first_class", first_class), visit("ranks", ranks);
  }
  // [V, D] of the operand `weight`.
  const Shape& weight_shape(const TensorType& operand) const { return packed ? weight.weight.shape : operand.shape; }
};

extern const OpDef kLinearCrossEntropy;  // hidden, weight, targets, [bias] -> loss
// hidden, weight, targets, [bias], dloss, [accumulator [V, D]] -> dhidden, [dweight], [dbias], [loss]
extern const OpDef kLinearCrossEntropyGrad;

Tensor linear_cross_entropy_sum(
    At hidden, Tensor weight, std::optional<Tensor> bias, Tensor targets, double label_smoothing = 0);

// On a GPU: what comes between the matrix products of a chunk of rows.
//
// x = logits + bias; loss of a row = lse(x) - (1 - s) x[target] - s mean(x), 0 if the target is negative. With `dloss`,
// the logits become their gradients: dloss (softmax(x) - (1 - s) onehot(target) - s / width), 0 if the target is
// negative. A target beyond the classes makes both NaN.
struct SoftmaxLoss {
  int64_t rows = 0, width = 0, stride = 0;  // stride: elements from row to row, a multiple of 8; rows begin at 16 bytes
  DType type = DType::kF32;                 // of the logits
  void* logits = nullptr;
  const float* bias = nullptr;       // [width], may be null
  const int32_t* targets = nullptr;  // [rows]
  float smoothing = 0;
  const float* dloss = nullptr;  // one number; null: no gradient
  float* losses = nullptr;       // [rows], may be null
};
void softmax_loss(Device* device, const SoftmaxLoss& loss);

// to[j] = (add ? to[j] : 0) + sum over rows of x[row][j], in an order that depends on the sizes alone. parts:
// column_parts(rows) * width floats.
int64_t column_parts(int64_t rows);
void sum_columns(Device* device, DType type, int64_t rows, int64_t width, int64_t stride, const void* x, float* parts,
    float* to, bool add);

void sum_numbers(Device* device, int64_t n, const float* from, float* to);  // in a fixed order
}  // namespace linnet
