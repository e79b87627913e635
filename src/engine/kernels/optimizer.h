// Optimizer updates of one flat buffer of parameters, in one pass over memory. The formulas and their order are
// PyTorch's (torch.optim.Adam, AdamW and SGD) and the paper's (Lion); every instruction set gives the same bits.
#pragma once
#include <cstdint>
#include "base/numbers.h"
#include "base/thread_pool.h"

namespace linnet {
// Of all optimizers; each reads what its formulas name. In all of them, at last:
// ema += (1 - ema_decay) * (param - ema)
struct UpdateArgs {
  int64_t n = 0, decay_count = 0;  // weights decay in the first decay_count elements alone
  float* param = nullptr;
  const float* grad = nullptr;
  float *m = nullptr, *v = nullptr;
  float* ema = nullptr;  // an average of the parameters, or null
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, momentum = 0, weight_decay = 0;
  bool decoupled = true;
  int64_t step = 1;      // of this update, from 1
  float grad_scale = 1;  // the clip factor, and 1 / count
  double ema_decay = 0;
};

// g = grad * grad_scale
// not decoupled (Adam):  g += weight_decay * param;      decoupled (AdamW):  param *= 1 - learning_rate * weight_decay
// m += (1 - beta1) * (g - m),   v = beta2 * v + (1 - beta2) * g * g
// param -= learning_rate / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
void adam_update(const UpdateArgs& args, ThreadPool& pool);

// g = grad * grad_scale + weight_decay * param
// with momentum: g = m = momentum * m + g (which starts as zeros); without it m is null
// param -= learning_rate * g
void sgd_update(const UpdateArgs& args, ThreadPool& pool);

// Lion (Chen et al. 2023) uses only the sign of the step, so one moment is enough.
// g = grad * grad_scale
// param *= 1 - learning_rate * weight_decay,   param -= learning_rate * sign(beta1 * m + (1 - beta1) * g)
// m = beta2 * m + (1 - beta2) * g
void lion_update(const UpdateArgs& args, ThreadPool& pool);

// Both moments of Adam in 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"): blocks of 256
// neighbors share a scale, so a parameter takes 2 + 8 / 256 bytes of moments instead of 8.
//
// Codes are finer near zero. In a block, with q a signed and c an unsigned byte:
//   m       = scale q |q| / 127^2,   scale = largest |m|
//   sqrt(v) = scale c^2 / 255^2,     scale = largest sqrt(v)
// The spacing is 1.6% (m) and 0.8% (sqrt(v)) of the largest value there; the least value is 6e-5 and 1.5e-5 of the
// largest. A positive v never becomes 0, since a step divides by its root. Moments are decoded, updated and applied in
// fp32 and rounded to the nearest code, so every instruction set and number of threads gives the same bits. All-zero
// bytes and scales are zero moments.
constexpr int64_t kMomentBlock = 256;
constexpr int64_t moment_blocks(int64_t n) { return ceil_div(n, kMomentBlock); }

struct Moments8bit {
  uint8_t* m_codes = nullptr;  // [n], two's complement
  float* m_scales = nullptr;   // [moment_blocks(n)]
  uint8_t* v_codes = nullptr;
  float* v_scales = nullptr;
};

// adam_update() of these moments; those of `args` are not used.
void adam_8bit_update(const UpdateArgs& args, const Moments8bit& moments, ThreadPool& pool);
}  // namespace linnet
