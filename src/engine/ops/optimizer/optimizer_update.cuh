// What the kernels of optimizers share on a GPU: the numbers of a call, what all elements of a step have in common, and
// the update of one element.
#pragma once
#include <cmath>
#include "engine/kernels/cuda/launch.cuh"
#include "engine/ops/optimizer/optimizer.h"

namespace linnet {

enum class Rule { kAdam, kAdamW, kSgd, kLion };

struct OptimizerCall {
  int64_t n = 0, decay_count = 0;
  const float *parameters = nullptr, *moment1 = nullptr, *moment2 = nullptr, *ema = nullptr, *gradient = nullptr;
  float *to_parameters = nullptr, *to_moment1 = nullptr, *to_moment2 = nullptr, *to_ema = nullptr;
  const float *squares = nullptr, *count = nullptr, *control = nullptr;
  bool in_place = true;                // every output is its input
  bool adam = false;                   // has a second moment
  float log_beta1 = 0, log_beta2 = 0;  // of the decimal numbers, not of what fp32 makes of them
  float beta1 = 0, rest1 = 0, beta2 = 0, rest2 = 0, epsilon = 0, momentum = 0, weight_decay = 0, clip_norm = 0,
        rate_factor = 1, ema_rest = 0;
};

// What is the same for every element of a step.
struct StepFactors {
  float scale, rate, root2, shrink, ema_rest;
  bool finite;
};

LINNET_DEVICE StepFactors step_factors(const OptimizerCall& call) {
  const float count = *call.count, learning_rate = call.rate_factor * call.control[0], step = call.control[1];
  const float norm = sqrtf(*call.squares) / count;
  StepFactors factors;
  factors.finite = norm < INFINITY;  // false of NaN
  factors.scale = (call.clip_norm > 0 && norm > call.clip_norm ? call.clip_norm / norm : 1) / count;
  // 1 - beta^step without the cancellation of a difference of numbers near 1.
  factors.rate = call.adam ? learning_rate / -expm1f(step * call.log_beta1) : learning_rate;
  factors.root2 = call.adam ? sqrtf(-expm1f(step * call.log_beta2)) : 1;
  factors.shrink = 1 - learning_rate * call.weight_decay;
  factors.ema_rest = fmaxf(call.ema_rest, 9 / (10 + step));  // 1 - average_decay(ema_decay, step)
  return factors;
}

// The formulas and their order are those of engine/kernels/optimizer.h.
template <Rule kRule>
LINNET_DEVICE void update(const OptimizerCall& call, const StepFactors& step, bool decays, float gradient,
                          float& parameter, float& m, float& v, float& ema) {
  float g = gradient * step.scale, w = parameter;
  if (kRule == Rule::kAdamW || kRule == Rule::kLion) {
    if (decays) w *= step.shrink;
  } else if (decays) {
    g += call.weight_decay * w;
  }
  if (kRule == Rule::kLion) {
    const float mixed = call.beta1 * m + call.rest1 * g;
    m = call.beta2 * m + call.rest2 * g;
    w -= mixed == 0 ? 0 : copysignf(step.rate, mixed);
  } else if (kRule != Rule::kSgd) {
    const float change = g - m;
    m = call.beta1 > 0.5f ? m + call.rest1 * change : g - call.beta1 * change;
    v = v * call.beta2 + call.rest2 * g * g;
    w -= step.rate * m / (sqrtf(v) / step.root2 + call.epsilon);
  } else {
    m = call.momentum * m + g;
    w -= step.rate * m;
  }
  parameter = w;
  ema += step.ema_rest * (w - ema);
}

// A call without its moments and its average. The operands begin with the parameters and end, after the states, with
// gradient, sum of squares, count and control.
inline OptimizerCall optimizer_call(const KernelArgs& args, const OptimizerAttrs& attrs) {
  const size_t states = args.out.size();
  OptimizerCall call;
  call.n = args.in[0].elements(), call.decay_count = attrs.weight_decay == 0 ? 0 : attrs.decay_count;
  call.parameters = args.in[0].as<float>(), call.to_parameters = args.out[0].as<float>();
  call.gradient = args.in[states].as<float>(), call.squares = args.in[states + 1].as<float>();
  call.count = args.in[states + 2].as<float>(), call.control = args.in[states + 3].as<float>();
  for (size_t i = 0; i < states; ++i) call.in_place = call.in_place && args.in[i].data == args.out[i].data;
  call.adam = attrs.kind == OptimizerAttrs::Kind::kAdam || attrs.kind == OptimizerAttrs::Kind::kAdam8bit;
  const auto f = [](double x) { return static_cast<float>(x); };
  call.log_beta1 = f(std::log(attrs.beta1)), call.log_beta2 = f(std::log(attrs.beta2));
  call.beta1 = f(attrs.beta1), call.rest1 = f(1 - attrs.beta1);
  call.beta2 = f(attrs.beta2), call.rest2 = f(1 - attrs.beta2);
  call.epsilon = f(attrs.epsilon), call.momentum = f(attrs.momentum), call.weight_decay = f(attrs.weight_decay);
  call.clip_norm = f(attrs.clip_norm), call.rate_factor = f(attrs.rate_factor), call.ema_rest = f(1 - attrs.ema_decay);
  return call;
}

}  // namespace linnet
