#include "engine/ops/optimizer/optimizer.h"
#include <cmath>
#include <tuple>
#include "engine/kernels/optimizer.h"
#include "engine/kernels/reduce/reduce.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {
// parameters, moment1, [moment2], [ema], gradient, sum of squares, count, control -> the states
std::vector<TensorType> infer_optimizer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<OptimizerAttrs>();
  expect(attrs.kind <= OptimizerAttrs::Kind::kLion, "got an optimizer that has ops of its own");
  const size_t states = (attrs.kind == OptimizerAttrs::Kind::kAdam ? 3u : 2u) + (attrs.ema_decay > 0 ? 1u : 0u);
  expect_inputs(args, states + 4);
  for (size_t i = 1; i <= states; ++i)
    expect(args.in[i] == args.in[0], "got parameters ", args.in[0], " beside ", args.in[i]);
  expect(args.in.back().shape == Shape{2}, "got control ", args.in.back(), ", expected [2]");
  expect(
      attrs.decay_count >= 0 && attrs.decay_count <= args.in[0].shape.elements(), "decay_count beyond the parameters");
  return std::vector<TensorType>(states, args.in[0]);
}

enum Operand : size_t { kParameters, kCodes1, kScales1, kCodes2, kScales2, kEma };

std::vector<TensorType> infer_adam_8bit(const InferArgs& args) {
  const auto& attrs = args.attrs.as<OptimizerAttrs>();
  const size_t states = kEma + (attrs.ema_decay > 0 ? 1 : 0);
  expect_inputs(args, states + 4);
  const TensorType& parameters = args.in[kParameters];
  const int64_t count = parameters.shape.elements();
  expect(parameters.shape.rank() == 1 && is_float(parameters.dtype), "got parameters ", parameters);
  for (const Operand codes : {kCodes1, kCodes2})
    expect(args.in[codes] == moment_codes_type(count), "got codes ", args.in[codes]);
  for (const Operand scales : {kScales1, kScales2})
    expect(args.in[scales] == moment_scales_type(count, parameters.dtype), "got scales ", args.in[scales]);
  if (attrs.ema_decay > 0) expect(args.in[kEma] == parameters, "got average ", args.in[kEma]);
  expect(args.in[states] == parameters, "got gradient ", args.in[states]);
  expect(args.in.back().shape == Shape{2}, "got control ", args.in.back(), ", expected [2]");
  return {args.in.begin(), args.in.begin() + states};
}

std::vector<TensorType> infer_squares(const InferArgs& args) {
  expect(is_float(args.in[0].dtype), "got ", args.in[0]);
  return {{args.in[0].dtype, {}}};
}

// sum of squares, count, control -> scale, finite, ema_rest
std::vector<TensorType> infer_factors(const InferArgs& args) {
  expect(args.in[2].shape == Shape{2}, "got control ", args.in[2], ", expected [2]");
  return std::vector<TensorType>(3, args.in[0]);
}

// The factor of the gradient of a sum over `count`, clipped by the norm, and whether the norm is finite.
std::pair<double, bool> gradient_scale(const OptimizerAttrs& attrs, double squares, double count) {
  const double norm = std::sqrt(squares) / count;
  return {(attrs.clip_norm > 0 && norm > attrs.clip_norm ? attrs.clip_norm / norm : 1) / count, std::isfinite(norm)};
}

// The operands of a step: first the parameters and other states, then gradient, sum of squares, count and control.
struct OptimizerOperands {
  explicit OptimizerOperands(const KernelArgs& args) : attrs(args.attrs<OptimizerAttrs>()), states(args.out.size()) {
    for_float(args.in[0].type.dtype, [&]<class T>() {
      std::tie(scale, finite) = gradient_scale(attrs, args.in[states + 1].as<T>()[0], args.in[states + 2].as<T>()[0]);
      learning_rate = attrs.rate_factor * args.in[states + 3].as<T>()[0];
      step = static_cast<int64_t>(args.in[states + 3].as<T>()[1]);
    });
    n = args.in[0].elements();
    ema_decay = average_decay(attrs.ema_decay, step);
    correction1 = 1 - std::pow(attrs.beta1, step);
    correction2 = std::sqrt(1 - std::pow(attrs.beta2, step));
  }
  double decay_of(int64_t i) const { return i < attrs.decay_count ? attrs.weight_decay : 0; }

  const OptimizerAttrs& attrs;
  size_t states;
  int64_t n, step;
  double learning_rate, scale, ema_decay;
  double correction1, correction2;  // of Adam's moments
  bool finite;
};

void copy_states(const KernelArgs& args) {
  for (size_t i = 0; i < args.out.size(); ++i) copy_operand(args.in[i], args.out[i]);
}

template <class T> void reference_step(const KernelArgs& args, const OptimizerOperands& x) {
  const OptimizerAttrs& attrs = x.attrs;
  using Kind = OptimizerAttrs::Kind;
  const bool adam = attrs.kind == Kind::kAdam, lion = attrs.kind == Kind::kLion;
  T *p = args.out[0].as<T>(), *m = args.out[1].as<T>(), *v = adam ? args.out[2].as<T>() : nullptr;
  T* ema = attrs.ema_decay > 0 ? args.out.back().as<T>() : nullptr;
  const T* gradient = args.in[x.states].as<T>();
  for (int64_t i = 0; i < x.n; ++i) {
    double g = gradient[i] * x.scale, w = p[i];
    if (lion || (adam && attrs.decoupled)) w -= x.learning_rate * x.decay_of(i) * w;
    else g += x.decay_of(i) * w;
    if (adam) {
      m[i] = static_cast<T>(attrs.beta1 * m[i] + (1 - attrs.beta1) * g);
      v[i] = static_cast<T>(attrs.beta2 * v[i] + (1 - attrs.beta2) * g * g);
      w -= x.learning_rate / x.correction1 * m[i] /
           (std::sqrt(static_cast<double>(v[i])) / x.correction2 + attrs.epsilon);
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

// A block by the formulas of engine/kernels/optimizer.h, in double.
template <class T> void reference_block(const KernelArgs& args, const OptimizerOperands& x, int64_t block) {
  const OptimizerAttrs& attrs = x.attrs;
  auto *codes1 = args.out[1].as<uint8_t>(), *codes2 = args.out[3].as<uint8_t>();
  T &scale_of_m = args.out[2].as<T>()[block], &scale_of_v = args.out[4].as<T>()[block];
  T *p = args.out[0].as<T>(), *ema = attrs.ema_decay > 0 ? args.out.back().as<T>() : nullptr;
  const T* gradient = args.in[x.states].as<T>();
  const int64_t first = block * kMomentBlock, end = std::min(first + kMomentBlock, x.n);
  std::array<double, kMomentBlock> ms, roots;
  double scale1 = 0, scale2 = 0;
  for (int64_t i = first; i < end; ++i) {
    const double q = static_cast<int8_t>(codes1[i]), c = codes2[i];
    double g = gradient[i] * x.scale, w = p[i];
    if (attrs.decoupled) w -= x.learning_rate * x.decay_of(i) * w;
    else g += x.decay_of(i) * w;
    double &m = ms[i - first], &root = roots[i - first];
    m = scale_of_m * q * std::abs(q) / (127 * 127), root = scale_of_v * c * c / (255 * 255);
    m = attrs.beta1 * m + (1 - attrs.beta1) * g;
    root = std::sqrt(attrs.beta2 * root * root + (1 - attrs.beta2) * g * g);
    w -= x.learning_rate / x.correction1 * m / (root / x.correction2 + attrs.epsilon);
    p[i] = static_cast<T>(w);
    if (ema) ema[i] = static_cast<T>(x.ema_decay * ema[i] + (1 - x.ema_decay) * w);
    scale1 = std::max(scale1, std::abs(m)), scale2 = std::max(scale2, root);
  }
  scale_of_m = static_cast<T>(scale1), scale_of_v = static_cast<T>(scale2);
  for (int64_t i = first; i < end; ++i) {
    const double m = ms[i - first], root = roots[i - first];
    const double q = scale1 > 0 ? 127 * std::sqrt(std::abs(m) / scale1) : 0,
                 c = scale2 > 0 ? 255 * std::sqrt(root / scale2) : 0;
    codes1[i] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(std::copysign(q, m))));
    codes2[i] = static_cast<uint8_t>(std::nearbyint(root > 0 ? std::max(c, 1.0) : 0));
  }
}

void run_optimizer_reference(const KernelArgs& args) {
  copy_states(args);
  const OptimizerOperands x(args);
  if (!x.finite) return;
  for_float(args.in[0].type.dtype, [&]<class T>() {
    if (x.attrs.kind != OptimizerAttrs::Kind::kAdam8bit) return reference_step<T>(args, x);
    for (int64_t block = 0; block < moment_blocks(x.n); ++block) reference_block<T>(args, x, block);
  });
}

void run_optimizer(const KernelArgs& args) {
  args.pool.stop_point();
  copy_states(args);
  const OptimizerOperands x(args);
  if (!x.finite) return;
  args.pool.pass_last_stop_point();  // an update is whole or has not begun
  UpdateArgs update{.n = x.n,
      .decay_count = x.attrs.decay_count,
      .param = args.out[0].as<float>(),
      .grad = args.in[x.states].as<float>(),
      .ema = x.attrs.ema_decay > 0 ? args.out.back().as<float>() : nullptr,
      .learning_rate = x.learning_rate,
      .beta1 = x.attrs.beta1,
      .beta2 = x.attrs.beta2,
      .epsilon = x.attrs.epsilon,
      .momentum = x.attrs.momentum,
      .weight_decay = x.attrs.weight_decay,
      .decoupled = x.attrs.decoupled,
      .step = x.step,
      .grad_scale = static_cast<float>(x.scale),
      .ema_decay = x.ema_decay};
  if (x.attrs.kind == OptimizerAttrs::Kind::kAdam8bit)
    return adam_8bit_update(update,
        {args.out[1].as<uint8_t>(), args.out[2].as<float>(), args.out[3].as<uint8_t>(), args.out[4].as<float>()},
        args.pool);
  update.m = args.out[1].as<float>();
  if (x.attrs.kind == OptimizerAttrs::Kind::kLion) return lion_update(update, args.pool);
  if (x.attrs.kind == OptimizerAttrs::Kind::kSgd) return sgd_update(update, args.pool);
  update.v = args.out[2].as<float>();
  adam_update(update, args.pool);
}

void run_squares_reference(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const auto sum = sum_of<double>(args.in[0].numbers<T>(), [](double x) { return x * x; });
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

const OpDef kOptimizerStep{.name = "optimizer_step", .infer = infer_optimizer, .may_overwrite = overwrites_same};
const OpDef kAdam8bitStep{.name = "adam_8bit_step", .infer = infer_adam_8bit, .may_overwrite = overwrites_same};
const OpDef kSumOfSquares{.name = "sum_of_squares",
    .infer = takes<1, infer_squares>,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      return {args.in[0] * (args.out_grad[0] * 2.0)};
    }};
const OpDef kUpdateFactors{.name = "update_factors", .infer = takes<3, infer_factors>};

std::vector<Tensor> optimizer_step(std::vector<Tensor> states, At gradient, Tensor squares, Tensor count,
    Tensor control, const OptimizerAttrs& attrs) {
  states.insert(states.end(), {gradient.value, squares, count, control});
  const OpDef& op = attrs.kind == OptimizerAttrs::Kind::kAdam8bit ? kAdam8bitStep : kOptimizerStep;
  return graph_of(gradient)->add(op, states, attrs, gradient.where);
}

TensorType moment_codes_type(int64_t count) { return {DType::kU8, {count}}; }
TensorType moment_scales_type(int64_t count, DType dtype) { return {dtype, {moment_blocks(count)}}; }

Tensor sum_of_squares(At x) { return op_result(kSumOfSquares, x); }

UpdateFactors update_factors(At squares, Tensor count, Tensor control, const OptimizerAttrs& attrs) {
  const std::vector<Tensor> out = op_results(kUpdateFactors, squares, {count, control}, attrs);
  return {out[0], out[1], out[2]};
}

LINNET_KERNELS(update_factors, {"reference", run_factors})
LINNET_KERNELS(optimizer_step, {"simd", run_optimizer, all_f32}, {"reference", run_optimizer_reference})
LINNET_KERNELS(adam_8bit_step, {"simd", run_optimizer, all_f32}, {"reference", run_optimizer_reference})
LINNET_KERNELS(sum_of_squares, {"simd", run_squares, all_f32, squares_workspace}, {"reference", run_squares_reference})
}  // namespace linnet
