// Optimizer updates over one flat buffer of parameters, in one pass over memory. The formulas and their order are
// PyTorch's (torch.optim.Adam, AdamW and SGD) and the paper's (Lion), and every instruction set gives the same bits.
#pragma once
#include <cstdint>
#include "base/thread_pool.h"

namespace linnet {

// g = grad * grad_scale
// not decoupled (Adam):  g += weight_decay * param;      decoupled (AdamW):  param *= 1 - learning_rate * weight_decay
// m += (1 - beta1) * (g - m),   v = beta2 * v + (1 - beta2) * g * g
// param -= learning_rate / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
// ema += (1 - ema_decay) * (param - ema)
struct AdamArgs {
  int64_t n = 0, decay_count = 0;  // weights decay in the first decay_count elements alone
  float* param = nullptr;
  const float* grad = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  float* ema = nullptr;  // an average of the parameters, or null
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool decoupled = true;
  int64_t step = 1;      // of this update, from 1
  float grad_scale = 1;  // the clip factor, and 1 / count
  double ema_decay = 0;
};

void adam_update(const AdamArgs& args, ThreadPool& pool);

// g = grad * grad_scale + weight_decay * param
// with momentum: g = buffer = momentum * buffer + g (which starts as zeros)
// param -= learning_rate * g, and the average as above
struct SgdArgs {
  int64_t n = 0, decay_count = 0;
  float* param = nullptr;
  const float* grad = nullptr;
  float* buffer = nullptr;  // null without momentum
  float* ema = nullptr;
  double learning_rate = 1e-2, momentum = 0, weight_decay = 0;
  float grad_scale = 1;
  double ema_decay = 0;
};

void sgd_update(const SgdArgs& args, ThreadPool& pool);

// Lion (Chen et al. 2023): only the sign of the step is used, so one moment is enough.
// g = grad * grad_scale
// param *= 1 - learning_rate * weight_decay,   param -= learning_rate * sign(beta1 * m + (1 - beta1) * g)
// m = beta2 * m + (1 - beta2) * g, and the average as above.
struct LionArgs {
  int64_t n = 0, decay_count = 0;
  float* param = nullptr;
  const float* grad = nullptr;
  float* m = nullptr;
  float* ema = nullptr;
  double learning_rate = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  float grad_scale = 1;
  double ema_decay = 0;
};

void lion_update(const LionArgs& args, ThreadPool& pool);

}  // namespace linnet
