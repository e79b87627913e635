// The learning rate of each step: a linear warmup to the peak, then one of four ways down. The warmup takes at most a
// quarter of max_steps, so that a short run reaches the peak, too.
#pragma once
#include <cstdint>

namespace linnet {

struct Schedule {
  enum class Kind {
    kConstant,
    kLinear,       // a straight line to `final` at max_steps
    kCosine,       // half a cosine to `final` at max_steps (Loshchilov & Hutter 2017)
    kInverseSqrt,  // peak * sqrt(warmup / step) (Vaswani et al. 2017)
  } kind = Kind::kConstant;
  double peak = 1e-3, final = 0;
  int64_t warmup_steps = 0, max_steps = 1;
};

// `step` counts from 1.
double learning_rate(const Schedule& schedule, int64_t step);

}  // namespace linnet
