// Convolution (cross-correlation) of images with filters, zero-padded; kernels/conv/convolution.h has the formula.
// x [N, H, W, C], weight [O, R, S, C / groups] -> y [N, H', W', O] with
// H' = (H + 2 padding - dilation (R - 1) - 1) / stride + 1, and W' likewise. groups = C = O is a depthwise convolution.
// If x is bf16 so is y; weights are f32 (on a GPU also bf16), and their gradient is f32. Channels are last in image and
// weight: PyTorch's channels_last. The pass fuse_convolution makes y = f(y * scale + bias + residual), with scale and
// bias [O] per filter, as in folded batch normalization, and residual of y's shape.
#pragma once
#include <span>
#include "engine/kernels/conv/convolution.h"
#include "engine/kernels/precision.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct Conv2dAttrs {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  Shape result;  // of a gradient: the shape of what it is taken for
  // Set by the lower_precision pass. On the CPU kBf16 rounds factors if the processor multiplies in bf16; on a GPU less
  // than fp32 allows TF32, and bf16 images are multiplied as such.
  Precision precision = Precision::kF32;
  // Of the fused forward op. The operands follow x and the weight in this order. CPU only.
  bool scale = false, bias = false, residual = false;
  GemmActivation activation = GemmActivation::kNone;
  // The last operand f32 [packed_filter_floats()] replaces the weight (engine/passes/passes.h).
  bool packed = false;

  bool is_fused() const { return scale || bias || residual || activation != GemmActivation::kNone; }
  void fields(FieldVisitor& visit) {
    visit("stride", stride), visit("padding", padding), visit("dilation", dilation), visit("groups", groups);
    visit("result", result), visit("precision", precision);
    visit("scale", scale), visit("bias", bias), visit("residual", residual), visit("activation", activation);
    visit("packed", packed);
  }
};

extern const OpDef kConv2d, kConv2dInputGrad, kConv2dWeightGrad;

// Finds x, the weight and y, or their gradients, among the operands and results (types, tensors) of the three ops.
template <class Item> struct Conv2dRoles { const Item &x, &weight, &y; };
template <ConvolutionPass pass, class Item>
Conv2dRoles<Item> conv2d_roles(std::span<const Item> in, std::span<const Item> out) {
  if constexpr (pass == ConvolutionPass::kForward) return {in[0], in[1], out[0]};
  if constexpr (pass == ConvolutionPass::kInputGradient) return {out[0], in[1], in[0]};
  if constexpr (pass == ConvolutionPass::kWeightGradient) return {in[0], out[0], in[1]};
}

// The sizes of a node's forward convolution.
ConvolutionSizes conv2d_sizes(const Shape& x, const Shape& weight, const Shape& y, const Conv2dAttrs& attrs);
template <ConvolutionPass pass> ConvolutionSizes conv2d_sizes(const KernelArgs& args) {
  const auto r = conv2d_roles<pass>(args.in, args.out);
  return conv2d_sizes(r.x.shape(), r.weight.shape(), r.y.shape(), args.attrs<Conv2dAttrs>());
}

// Add a bias with `+`.
Tensor conv2d(At x, Tensor weight, int64_t stride = 1, int64_t padding = 0, int64_t dilation = 1, int64_t groups = 1);

// The gradient of a convolution by its image: y [N, H', W', O], weight [O, R, S, C / groups] -> `result` [N, H, W, C],
// images whose convolution has y's shape.
Tensor conv2d_transposed(At y, Tensor weight, const Shape& result, int64_t stride = 1, int64_t padding = 0,
    int64_t dilation = 1, int64_t groups = 1);
}  // namespace linnet
