// Optimizer steps over the flat buffers: every parameter in one pass, including clipping. `gradient` is that of a SUM
// of losses; the step divides by `count` (tokens), which gradient accumulation has summed over micro-steps, and clips
// by the global norm. `control` f32/f64 [2] = {learning rate, step number from 1}. If the norm is not finite the state
// does not change, and the trainer finds the cause.
#pragma once
#include <algorithm>
#include "engine/ops/kernel.h"

namespace linnet {
// optimizer_step() computes the first four, training/trainer/range_update.h the others.
enum class OptimizerKind { kAdam, kSgd, kLion, kAdam8bit, kMuon, kAdafactor };
template <>
inline constexpr std::array kEnumNames<OptimizerKind>{"adam", "sgd", "lion", "adam8bit", "muon", "adafactor"};

struct OptimizerAttrs {
  using Kind = OptimizerKind;
  Kind kind = Kind::kAdam;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // Kingma & Ba 2015; Lion has no epsilon (Chen et al. 2023)
  double momentum = 0;                                // SGD, Muon
  double weight_decay = 0;
  bool decoupled =
      false;  // AdamW (Loshchilov & Hutter 2019): decay the weight itself, not the gradient. Lion always does
  int64_t decay_count = 0;   // weight decay touches the first this many elements only
  double clip_norm = 0;      // 0: no clipping
  double rate_factor = 1;    // of the learning rate
  double ema_decay = 0;      // 0: no moving average of the weights; see average_decay()
  double decay_power = 0.8;  // Adafactor: the decay of its second moment in step t is 1 - t^-decay_power
  void fields(FieldVisitor& visit) {
    visit("kind", kind), visit("beta1", beta1), visit("beta2", beta2), visit("epsilon", epsilon);
    visit("momentum", momentum), visit("weight_decay", weight_decay), visit("decoupled", decoupled);
    visit("decay_count", decay_count), visit("clip_norm", clip_norm), visit("rate_factor", rate_factor);
    visit("ema_decay", ema_decay), visit("decay_power", decay_power);
  }
};

// The decay of the moving average in step `step` (from 1): min(ema_decay, (1 + step) / (10 + step)). A constant 0.999
// would still hold 67% of the initial weights after 400 steps; this averages about the last ninth of the steps until
// ema_decay is reached.
inline double average_decay(double ema_decay, int64_t step) {
  return std::min(ema_decay, (1 + static_cast<double>(step)) / (10 + static_cast<double>(step)));
}

// A step's shared numbers, for updates composed of other ops (Muon, Adafactor).
struct UpdateFactors {
  Tensor scale;     // [] of the gradient: 1 / count, and the clip factor
  Tensor finite;    // [] 1, or 0 when the norm is not finite: then nothing may change
  Tensor ema_rest;  // [] 1 - average_decay()
};

extern const OpDef kOptimizerStep, kAdam8bitStep, kSumOfSquares, kUpdateFactors;

// The next states. `states`: parameters [P], moment1 [P], of Adam moment2 [P], and the average [P] if ema_decay > 0.
//
// kAdam8bit keeps Adam's moments in 8 bits: see engine/kernels/optimizer.h for the codes. Its states are
//
//   parameters [P], codes1 u8 [P], scales1 [blocks], codes2 u8 [P], scales2 [blocks], [ema [P]]
//
// blocks = ceil(P / 256), cut through the flat buffer, so a block may span several tensors.
std::vector<Tensor> optimizer_step(std::vector<Tensor> states, At gradient, Tensor sum_of_squares, Tensor count,
    Tensor control, const OptimizerAttrs& attrs);

// The types of codes and scales for a buffer of `count` parameters.
TensorType moment_codes_type(int64_t count);
TensorType moment_scales_type(int64_t count, DType dtype);

Tensor sum_of_squares(At x);  // [] ; accumulated in float64

// After this op a step is not abandoned any more (base/thread_pool.h), so it precedes all that changes a state.
UpdateFactors update_factors(At squares, Tensor count, Tensor control, const OptimizerAttrs& attrs);
}  // namespace linnet
