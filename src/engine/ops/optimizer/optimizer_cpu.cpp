#include <cmath>
#include "engine/kernels/optimizer.h"
#include "engine/kernels/reduce/reduce.h"
#include "engine/ops/optimizer/optimizer_operands.h"

namespace linnet {
namespace {

template <class T>
void reference_step(const KernelArgs& args, const OptimizerOperands& x) {
  const OptimizerAttrs& attrs = x.attrs;
  using Kind = OptimizerAttrs::Kind;
  const bool adam = attrs.kind == Kind::kAdam, lion = attrs.kind == Kind::kLion;
  T *p = args.out[0].as<T>(), *m = args.out[1].as<T>(), *v = adam ? args.out[2].as<T>() : nullptr;
  T* ema = attrs.ema_decay > 0 ? args.out.back().as<T>() : nullptr;
  const T* gradient = args.in[x.states].as<T>();
  const double correction1 = 1 - std::pow(attrs.beta1, x.step),
               correction2 = std::sqrt(1 - std::pow(attrs.beta2, x.step));
  for (int64_t i = 0; i < x.n; ++i) {
    double g = gradient[i] * x.scale, w = p[i];
    const double decay = i < attrs.decay_count ? attrs.weight_decay : 0;
    if (lion || (adam && attrs.decoupled)) w -= x.learning_rate * decay * w;
    else g += decay * w;
    if (adam) {
      m[i] = static_cast<T>(attrs.beta1 * m[i] + (1 - attrs.beta1) * g);
      v[i] = static_cast<T>(attrs.beta2 * v[i] + (1 - attrs.beta2) * g * g);
      w -= x.learning_rate / correction1 * m[i] / (std::sqrt(static_cast<double>(v[i])) / correction2 + attrs.epsilon);
    } else if (lion) {
      const double mixed = attrs.beta1 * m[i] + (1 - attrs.beta1) * g;
      m[i] = static_cast<T>(attrs.beta2 * m[i] + (1 - attrs.beta2) * g);
      w -= x.learning_rate * ((mixed > 0) - (mixed < 0));
    } else {
      m[i] = static_cast<T>(attrs.momentum * m[i] + g);
      w -= x.learning_rate * m[i];
    }
    p[i] = static_cast<T>(w);
    if (ema) ema[i] = static_cast<T>(x.ema_decay * ema[i] + (1 - x.ema_decay) * w);
  }
}

void run_optimizer_reference(const KernelArgs& args) {
  copy_optimizer_states(args);
  const OptimizerOperands x(args, args.attrs<OptimizerAttrs>());
  if (x.finite) for_float(args.in[0].type.dtype, [&]<class T>() { reference_step<T>(args, x); });
}

void run_optimizer(const KernelArgs& args) {
  args.pool.stop_point();
  copy_optimizer_states(args);
  const OptimizerOperands x(args, args.attrs<OptimizerAttrs>());
  if (!x.finite) return;
  args.pool.pass_last_stop_point();  // an update is whole or has not begun
  float* ema = x.attrs.ema_decay > 0 ? args.out.back().as<float>() : nullptr;
  // The kernels only read the gradient unless they are asked to clear it.
  float* gradient = args.in[x.states].as<float>();
  if (x.attrs.kind == OptimizerAttrs::Kind::kAdam) {
    AdamArgs adam{};
    adam.n = x.n, adam.decay_count = x.attrs.decay_count;
    adam.param = args.out[0].as<float>(), adam.grad = gradient, adam.m = args.out[1].as<float>(),
    adam.v = args.out[2].as<float>();
    adam.ema = ema, adam.ema_decay = x.ema_decay;
    adam.learning_rate = x.learning_rate, adam.beta1 = x.attrs.beta1;
    adam.beta2 = x.attrs.beta2, adam.epsilon = x.attrs.epsilon;
    adam.weight_decay = x.attrs.weight_decay, adam.decoupled = x.attrs.decoupled;
    adam.step = x.step, adam.grad_scale = static_cast<float>(x.scale);
    adam_update(adam, args.pool);
  } else if (x.attrs.kind == OptimizerAttrs::Kind::kLion) {
    LionArgs lion{};
    lion.n = x.n, lion.decay_count = x.attrs.decay_count;
    lion.param = args.out[0].as<float>(), lion.grad = gradient, lion.m = args.out[1].as<float>();
    lion.ema = ema, lion.ema_decay = x.ema_decay;
    lion.learning_rate = x.learning_rate, lion.beta1 = x.attrs.beta1, lion.beta2 = x.attrs.beta2;
    lion.weight_decay = x.attrs.weight_decay, lion.grad_scale = static_cast<float>(x.scale);
    lion_update(lion, args.pool);
  } else {
    SgdArgs sgd{};
    sgd.n = x.n, sgd.decay_count = x.attrs.decay_count;
    sgd.param = args.out[0].as<float>(), sgd.grad = gradient, sgd.buffer = args.out[1].as<float>();
    sgd.ema = ema, sgd.ema_decay = x.ema_decay;
    sgd.learning_rate = x.learning_rate, sgd.momentum = x.attrs.momentum;
    sgd.weight_decay = x.attrs.weight_decay, sgd.grad_scale = static_cast<float>(x.scale);
    sgd_update(sgd, args.pool);
  }
}

void run_squares_reference(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() {
    double sum = 0;
    for (int64_t i = 0; i < args.in[0].elements(); ++i)
      sum += static_cast<double>(args.in[0].as<T>()[i]) * args.in[0].as<T>()[i];
    args.out[0].as<T>()[0] = static_cast<T>(sum);
  });
}

void run_factors(const KernelArgs& args) {
  args.pool.stop_point();
  const auto& attrs = args.attrs<OptimizerAttrs>();
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T* control = args.in[2].as<T>();
    const auto [scale, finite] = gradient_scale(attrs, args.in[0].as<T>()[0], args.in[1].as<T>()[0]);
    args.out[0].as<T>()[0] = static_cast<T>(scale);
    args.out[1].as<T>()[0] = finite;
    args.out[2].as<T>()[0] = static_cast<T>(1 - average_decay(attrs.ema_decay, static_cast<int64_t>(control[1])));
  });
  args.pool.pass_last_stop_point();
}

size_t squares_workspace(const KernelQuery& query) { return sum_workspace(query.in[0].shape.elements()); }

void run_squares(const KernelArgs& args) {
  args.out[0].as<float>()[0] =
      static_cast<float>(sum_of_squares(args.in[0].elements(), args.in[0].as<float>(), args.workspace, args.pool));
}

}  // namespace

LINNET_KERNELS(update_factors, {"reference", nullptr, nullptr, run_factors})
LINNET_KERNELS(optimizer_step, {"simd", all_f32, nullptr, run_optimizer},
               {"reference", nullptr, nullptr, run_optimizer_reference})
LINNET_KERNELS(sum_of_squares, {"simd", all_f32, squares_workspace, run_squares},
               {"reference", nullptr, nullptr, run_squares_reference})

}  // namespace linnet
