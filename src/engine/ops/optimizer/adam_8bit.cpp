#include "engine/ops/optimizer/adam_8bit.h"
#include <algorithm>
#include <array>
#include "engine/kernels/optimizer_8bit.h"
#include "engine/ops/optimizer/optimizer_operands.h"

namespace linnet {

namespace {

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
  return {args.in.begin(), args.in.begin() + static_cast<std::ptrdiff_t>(states)};
}

// The codes and scales of a node's results.
template <class T>
struct States {
  explicit States(const KernelArgs& args)
      : codes1(args.out[1].as<uint8_t>()),
        codes2(args.out[3].as<uint8_t>()),
        scales1(args.out[2].as<T>()),
        scales2(args.out[4].as<T>()) {}
  uint8_t *codes1, *codes2;
  T *scales1, *scales2;
};

// A block by the formulas of engine/kernels/optimizer_8bit.h, in double.
template <class T>
void reference_block(const KernelArgs& args, const OptimizerOperands& x, int64_t block) {
  const OptimizerAttrs& attrs = x.attrs;
  const States<T> states(args);
  T *p = args.out[0].as<T>(), *ema = attrs.ema_decay > 0 ? args.out.back().as<T>() : nullptr;
  const T* gradient = args.in[x.states].as<T>();
  const double correction1 = 1 - std::pow(attrs.beta1, x.step),
               correction2 = std::sqrt(1 - std::pow(attrs.beta2, x.step));
  const int64_t first = block * kMomentBlock, end = std::min(first + kMomentBlock, x.n);
  std::array<double, kMomentBlock> ms, roots;
  double scale1 = 0, scale2 = 0;
  for (int64_t i = first; i < end; ++i) {
    const double q = static_cast<int8_t>(states.codes1[i]), c = states.codes2[i];
    double g = gradient[i] * x.scale, w = p[i];
    const double decay = i < attrs.decay_count ? attrs.weight_decay : 0;
    if (attrs.decoupled) w -= x.learning_rate * decay * w;
    else g += decay * w;
    double &m = ms[static_cast<size_t>(i - first)], &root = roots[static_cast<size_t>(i - first)];
    m = states.scales1[block] * q * std::abs(q) / (127 * 127), root = states.scales2[block] * c * c / (255 * 255);
    m = attrs.beta1 * m + (1 - attrs.beta1) * g;
    root = std::sqrt(attrs.beta2 * root * root + (1 - attrs.beta2) * g * g);
    w -= x.learning_rate / correction1 * m / (root / correction2 + attrs.epsilon);
    p[i] = static_cast<T>(w);
    if (ema) ema[i] = static_cast<T>(x.ema_decay * ema[i] + (1 - x.ema_decay) * w);
    scale1 = std::max(scale1, std::abs(m)), scale2 = std::max(scale2, root);
  }
  states.scales1[block] = static_cast<T>(scale1), states.scales2[block] = static_cast<T>(scale2);
  for (int64_t i = first; i < end; ++i) {
    const double m = ms[static_cast<size_t>(i - first)], root = roots[static_cast<size_t>(i - first)];
    const double q = scale1 > 0 ? 127 * std::sqrt(std::abs(m) / scale1) : 0,
                 c = scale2 > 0 ? 255 * std::sqrt(root / scale2) : 0;
    states.codes1[i] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(std::copysign(q, m))));
    states.codes2[i] = static_cast<uint8_t>(std::nearbyint(root > 0 ? std::max(c, 1.0) : 0));
  }
}

void run_adam_8bit_reference(const KernelArgs& args) {
  copy_optimizer_states(args);
  const OptimizerOperands x(args, args.attrs<OptimizerAttrs>());
  if (!x.finite) return;
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for (int64_t block = 0; block < moment_blocks(x.n); ++block) reference_block<T>(args, x, block);
  });
}

void run_adam_8bit(const KernelArgs& args) {
  args.pool.stop_point();
  copy_optimizer_states(args);
  const OptimizerOperands x(args, args.attrs<OptimizerAttrs>());
  if (!x.finite) return;
  args.pool.pass_last_stop_point();  // an update is whole or has not begun
  const States<float> states(args);
  Adam8bitArgs adam;
  adam.n = x.n, adam.decay_count = x.attrs.decay_count;
  adam.param = args.out[0].as<float>(), adam.grad = args.in[x.states].as<float>();
  adam.m_codes = states.codes1, adam.m_scales = states.scales1;
  adam.v_codes = states.codes2, adam.v_scales = states.scales2;
  adam.ema = x.attrs.ema_decay > 0 ? args.out.back().as<float>() : nullptr, adam.ema_decay = x.ema_decay;
  adam.learning_rate = x.learning_rate, adam.beta1 = x.attrs.beta1, adam.beta2 = x.attrs.beta2;
  adam.epsilon = x.attrs.epsilon, adam.weight_decay = x.attrs.weight_decay, adam.decoupled = x.attrs.decoupled;
  adam.step = x.step, adam.grad_scale = static_cast<float>(x.scale);
  adam_8bit_update(adam, args.pool);
}

}  // namespace

const OpDef kAdam8bitStep{.name = "adam_8bit_step",
                          .infer = infer_adam_8bit,
                          .may_overwrite = [](const Node&, int output, int input) { return output == input; }};

TensorType moment_codes_type(int64_t count) { return {DType::kU8, {count}}; }
TensorType moment_scales_type(int64_t count, DType dtype) { return {dtype, {moment_blocks(count)}}; }

Adam8bitState adam_8bit_step(const Adam8bitState& s, At gradient, Tensor squares, Tensor count, Tensor control,
                             const OptimizerAttrs& attrs) {
  const bool ema = attrs.ema_decay > 0;
  std::vector<Tensor> in{s.parameters, s.codes1, s.scales1, s.codes2, s.scales2};
  if (ema) in.push_back(s.ema);
  in.insert(in.end(), {gradient.value, squares, count, control});
  const std::vector<Tensor> out = graph_of(gradient)->add(kAdam8bitStep, in, attrs, gradient.where);
  return {out[kParameters], out[kCodes1], out[kScales1], out[kCodes2], out[kScales2], ema ? out[kEma] : Tensor{}};
}

LINNET_KERNELS(adam_8bit_step, {"simd", all_f32, nullptr, run_adam_8bit},
               {"reference", nullptr, nullptr, run_adam_8bit_reference})

}  // namespace linnet
