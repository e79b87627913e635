// The operands and results of a norm's node, with or without the residual stream, for any device. Null: missing.
#pragma once
#include "engine/ops/layer_norm/layer_norm.h"

namespace linnet {
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

template <bool kResidual> ResidualNormAttrs norm_attrs(const KernelArgs& args) {
  if constexpr (kResidual) return args.attrs<ResidualNormAttrs>();
  else return {.norm = args.attrs<LayerNormAttrs>()};
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
  const TensorView &dx, *dweight = nullptr, *dbias = nullptr, *df = nullptr;

  explicit NormGradOperands(const KernelArgs& args)
      : attrs(norm_attrs<kResidual>(args)), dropout(args, attrs, args.in[0].shape()), width(args.in[0].shape()[-1]),
        rows(args.in[3].elements()), dy(args.in[0]), x(args.in[1]), mean(args.in[2]), rstd(args.in[3]),
        dx(args.out[0]) {
    if (attrs.norm.has_weight) weight = &args.in[4], dweight = &args.out[1];
    if (attrs.norm.has_bias) dbias = &args.out[1u + attrs.norm.has_weight];
    if (attrs.dsum) dsum = &args.in[attrs.dsum_input()];
    if (attrs.probability > 0) df = &args.out.back();
  }
};
}  // namespace linnet
