// What the CPU kernels of optimizers read first.
#pragma once
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>
#include "engine/ops/optimizer/optimizer.h"

namespace linnet {

// The factor of a gradient of a sum over `count`, clipped by the norm, and whether the norm is finite.
inline std::pair<double, bool> gradient_scale(const OptimizerAttrs& attrs, double squares, double count) {
  const double norm = std::sqrt(squares) / count;
  return {(attrs.clip_norm > 0 && norm > attrs.clip_norm ? attrs.clip_norm / norm : 1) / count, std::isfinite(norm)};
}

// The operands of a step that begin with the parameters and end, after the states, with gradient, sum of squares, count
// and control.
struct OptimizerOperands {
  OptimizerOperands(const KernelArgs& args, const OptimizerAttrs& attrs) : attrs(attrs), states(args.out.size()) {
    for_float(args.in[0].type.dtype, [&]<class T>() {
      std::tie(scale, finite) = gradient_scale(attrs, args.in[states + 1].as<T>()[0], args.in[states + 2].as<T>()[0]);
      learning_rate = attrs.rate_factor * args.in[states + 3].as<T>()[0];
      step = static_cast<int64_t>(args.in[states + 3].as<T>()[1]);
    });
    n = args.in[0].elements();
    ema_decay = average_decay(attrs.ema_decay, step);
  }
  const OptimizerAttrs& attrs;
  size_t states;
  int64_t n, step;
  double learning_rate, scale, ema_decay;
  bool finite;
};

inline void copy_optimizer_states(const KernelArgs& args) {
  for (size_t i = 0; i < args.out.size(); ++i)
    if (args.in[i].data != args.out[i].data) std::memcpy(args.out[i].data, args.in[i].data, args.out[i].type.bytes());
}

}  // namespace linnet
