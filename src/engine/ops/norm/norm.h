// Normalization over the last axis: layer normalization (Ba, Kiros & Hinton 2016) and, not centered, root-mean-square
// normalization (Zhang & Sennrich 2019).
//
//   y = (x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(variance + epsilon), variance over N, not N - 1
//  x [..., D], weight [D], bias [D] -> y [..., D], mean [..., 1], rstd [..., 1] If x is bf16 only y is, too. Weight and
// bias are optional. Not centered: y = x / sqrt(mean(x^2) + epsilon) * weight.
#pragma once
#include <algorithm>
#include "base/numbers.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct LayerNormAttrs {
  double epsilon = 1e-5;
  bool centered = true, has_weight = true, has_bias = true;
  // Of the gradient, set by the pass join_norm_sums: in place of dweight and dbias there is one result, their sums over
  // parts of the rows, [norm_part_count(rows), parameters(), D]. GPU only.
  bool in_parts = false;
  size_t parameters() const { return size_t{has_weight} + has_bias; }
  void fields(FieldVisitor& visit) {
    visit("epsilon", epsilon), visit("centered", centered), visit("has_weight", has_weight);
    visit("has_bias", has_bias), visit("in_parts", in_parts);
  }
};

// A GPU's blocks sum dweight and dbias over a part of the rows each. At most two blocks for each of a large GPU's
// multiprocessors, all resident at once, with whole warps' rows.
constexpr int64_t norm_rows_per_part(int64_t rows) { return std::max<int64_t>(round_up(ceil_div(rows, 256), 8), 8); }
constexpr int64_t norm_part_count(int64_t rows) { return ceil_div(rows, norm_rows_per_part(rows)); }

extern const OpDef kLayerNorm;      // x, [weight], [bias] -> y, mean, rstd
extern const OpDef kLayerNormGrad;  // dy, x, mean, rstd, [weight] -> dx, [dweight], [dbias] (or the sums in parts)
// Adds up the parts of several norms' gradients in one kernel: each [P, K, D] -> K results [D]
extern const OpDef kNormSums;

// Weight and bias may be undefined.
Tensor layer_norm(At x, Tensor weight, Tensor bias, double epsilon = 1e-5);
Tensor rms_norm(At x, Tensor weight, double epsilon = 1e-6);

// The end of a Transformer's sub-layer in one op: dropout of its result, addition to the residual stream, and the
// following norm (ops/dropout). Made by the pass fuse_residual_norm.
//
//   sum = x + dropout(f),  y = layer_norm(sum) or rms_norm(sum)
//
// x, f [..., D], weight, bias [D] (where the norm has them), random i32 [4] (with dropout)
// -> sum, y [..., D], mean, rstd [..., 1]
struct ResidualNormAttrs {
  LayerNormAttrs norm = {};
  float probability = 0;  // of dropout; 0: none
  uint64_t site = 0;
  bool dsum = false;  // of the gradient: something flows into `sum` from elsewhere
  size_t dsum_input() const { return 4u + norm.has_weight; }  // of the gradient
  void fields(FieldVisitor& visit) {
    visit("norm", norm), visit("probability", probability), visit("site", site), visit("dsum", dsum);
  }
};

extern const OpDef kResidualNorm;  // x, f, [weight], [bias], [random] -> sum, y, mean, rstd
// dy, sum, mean, rstd, [weight], [dsum], [random] -> dx, [dweight], [dbias], [df]. dx = dsum + the gradient of the
// norm, df = dropout(dx). Without dropout df is dx.
extern const OpDef kResidualNormGrad;

struct ResidualNorm {
  Tensor sum, normal;
};
// Operands that attrs exclude may be undefined.
ResidualNorm residual_norm(At x, Tensor f, Tensor weight, Tensor bias, Tensor random, const ResidualNormAttrs& attrs);

// For kernels of any device: operands and results of a norm, with or without the residual stream. Null: missing.
template <class T> T* elements_of(const TensorView* view) { return view ? view->as<T>() : nullptr; }

struct NormDropout {  // of f
  float probability = 0;
  uint64_t site = 0;
  const int32_t* random = nullptr;
  int64_t rows_per_sample = 1;  // the mask's samples are the first axis, as for the op dropout

  NormDropout(const KernelArgs& args, const ResidualNormAttrs& attrs, const Shape& x) {
    if (attrs.probability == 0) return;
    probability = attrs.probability, site = attrs.site, random = args.in.back().as<int32_t>();
    if (x.elements(1, x.rank() - 1) > 1) rows_per_sample = x.elements(1, x.rank() - 1);
  }
};

// Of KernelArgs or KernelQuery.
template <bool kResidual, class Args> ResidualNormAttrs norm_attrs(const Args& args) {
  if constexpr (kResidual) return args.template attrs<ResidualNormAttrs>();
  else return {.norm = args.template attrs<LayerNormAttrs>()};
}

// rows x width elements; without kResidual y is of x, and there is neither f nor sum.
template <bool kResidual> struct NormOperands {
  ResidualNormAttrs attrs;
  NormDropout dropout;
  int64_t width, rows;
  const TensorView &x, *f = nullptr, *weight = nullptr, *bias = nullptr;
  const TensorView *sum = nullptr, &y, &mean, &rstd;

  explicit NormOperands(const KernelArgs& args)
      : attrs(norm_attrs<kResidual>(args)), dropout(args, attrs, args.in[0].shape()), width(args.in[0].shape()[-1]),
        rows(args.out[1 + kResidual].elements()), x(args.in[0]), y(args.out[kResidual]), mean(args.out[1 + kResidual]),
        rstd(args.out[2 + kResidual]) {
    size_t next = 1;
    if (kResidual) f = &args.in[next++], sum = &args.out[0];
    if (attrs.norm.has_weight) weight = &args.in[next++];
    if (attrs.norm.has_bias) bias = &args.in[next];
  }
};

template <bool kResidual>  // x: the norm's operand
struct NormGradOperands {
  ResidualNormAttrs attrs;
  NormDropout dropout;
  int64_t width, rows;
  const TensorView &dy, &x, &mean, &rstd, *weight = nullptr, *dsum = nullptr;
  const TensorView &dx, *dweight = nullptr, *dbias = nullptr, *parts = nullptr, *df = nullptr;

  explicit NormGradOperands(const KernelArgs& args)
      : attrs(norm_attrs<kResidual>(args)), dropout(args, attrs, args.in[0].shape()), width(args.in[0].shape()[-1]),
        rows(args.in[3].elements()), dy(args.in[0]), x(args.in[1]), mean(args.in[2]), rstd(args.in[3]),
        dx(args.out[0]) {
    if (attrs.norm.has_weight) weight = &args.in[4];
    if (attrs.norm.in_parts) {
      parts = &args.out[1];
    } else {
      if (attrs.norm.has_weight) dweight = &args.out[1];
      if (attrs.norm.has_bias) dbias = &args.out[1u + attrs.norm.has_weight];
    }
    if (attrs.dsum) dsum = &args.in[attrs.dsum_input()];
    if (attrs.probability > 0) df = &args.out.back();
  }
};

// Batch normalization in training (Ioffe & Szegedy 2015), over all axes but the last, the channels.
//
//   y = (x - mean) / sqrt(variance + epsilon) * weight + bias
//
// x [..., C], weight [C], bias [C] -> y [..., C], mean [C], variance [C]: the batch's, the variance over a channel's N
// elements, not N - 1. Mean and variance have no gradient; they are for running statistics. The pass fuse_batch_norm
// makes y = relu(... + residual). The gradient of a fused ReLU recomputes from x which elements were above zero.
struct BatchNormAttrs {
  double epsilon = 1e-5;
  // Set by fuse_batch_norm, which runs after gradients are traced. CPU only.
  bool residual = false, relu = false;
  void fields(FieldVisitor& visit) { visit("epsilon", epsilon), visit("residual", residual), visit("relu", relu); }
};

extern const OpDef kBatchNorm;  // x, weight, bias[, residual of x's shape] -> y, mean, variance
// dy, x, weight, mean, variance[, bias: with relu] -> dx, dweight, dbias
extern const OpDef kBatchNormGrad;

struct BatchNormResult {
  Tensor y, mean, variance;
};
BatchNormResult batch_norm(At x, Tensor weight, Tensor bias, double epsilon = 1e-5);
}  // namespace linnet
