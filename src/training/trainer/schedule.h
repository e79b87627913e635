// Learning rates: a linear warmup to the peak, then one of four decays. The warmup takes at most a quarter of
// max_steps, so that a short run reaches the peak too.
#pragma once
#include <cstdint>

namespace linnet {
// How the learning rate goes.
struct Schedule {
  // The decay from the peak.
  enum class Kind {
    kConstant,     // stays at the peak
    kLinear,       // a straight line to `final` at max_steps
    kCosine,       // half a cosine to `final` at max_steps (Loshchilov & Hutter 2017)
    kInverseSqrt,  // peak * sqrt(warmup / step) (Vaswani et al. 2017)
  };
  // The decay.
  Kind kind = Kind::kConstant;
  // The rate after the warmup.
  double peak = 1e-3;
  // The rate at max_steps, for kLinear and kCosine.
  double final = 0;
  // Steps in which the rate grows from 0 to the peak; at most a quarter of max_steps if that is set.
  int64_t warmup_steps = 0;
  // Steps of the whole training; 0: unknown, which kLinear and kCosine do not accept.
  int64_t max_steps = 0;
};

// The rate of `step`, from 1. Throws Error(kUser) for kLinear and kCosine without max_steps.
double learning_rate(const Schedule& schedule, int64_t step);
}  // namespace linnet
