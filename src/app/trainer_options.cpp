#include "app/trainer_options.h"

#include "base/thread_pool.h"

namespace linnet {

Precision precision_of(const std::string& name) {
  for (const Precision precision : {Precision::kTf32, Precision::kBf16})
    if (name == precision_name(precision)) return precision;
  return Precision::kF32;
}

TrainerOptions trainer_options(const Config& config, bool training) {
  const TrainConfig& c = config.train;
  TrainerOptions options;
  OptimizerAttrs& o = options.optimizer;
  o.kind = c.optimizer == "sgd" ? OptimizerAttrs::Kind::kSgd : OptimizerAttrs::Kind::kAdam;
  o.decoupled = c.optimizer == "adamw";
  o.beta1 = c.beta1, o.beta2 = c.beta2, o.epsilon = c.epsilon, o.momentum = c.momentum;
  o.weight_decay = c.weight_decay, o.clip_norm = c.clip_norm, o.ema_decay = c.ema_decay;
  options.accumulate_steps = c.accumulate_steps;
  options.threads = c.threads > 0 ? static_cast<int>(c.threads) : available_threads();
  options.seed = static_cast<uint64_t>(c.seed);
  options.training = training;
  options.passes.precision = precision_of(c.precision);
  if (c.attention_precision != "same") options.passes.attention_precision = precision_of(c.attention_precision);
  if (c.device != "cpu" && c.precision == "bf16") options.passes.storage_type = DType::kBF16;
  return options;
}

}  // namespace linnet
