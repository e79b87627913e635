// The optimizer's step in one pass over the flat buffers. Learning rate, step, norm and token count are read on the
// device, so that a step can be recorded and replayed.
#include <cmath>
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/optimizer.h"
#include "engine/ops/optimizer/optimizer.h"

namespace linnet {
namespace {
constexpr int kThreads = 256, kTotalThreads = 1024;
constexpr int64_t kPerBlock = 16384;  // elements that a block of sum_of_squares adds up
constexpr int64_t kOneBlock = 65536;  // up to this many a single block adds all: one kernel instead of two
static_assert(kThreads == kMomentBlock);

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
  // 1 - beta^step without cancellation.
  factors.rate = call.adam ? learning_rate / -expm1f(step * call.log_beta1) : learning_rate;
  factors.root2 = call.adam ? sqrtf(-expm1f(step * call.log_beta2)) : 1;
  factors.shrink = 1 - learning_rate * call.weight_decay;
  factors.ema_rest = fmaxf(call.ema_rest, 9 / (10 + step));  // 1 - average_decay(ema_decay, step)
  return factors;
}

// The formulas and their order are those of engine/kernels/optimizer.h.
template <Rule kRule> LINNET_DEVICE void update(const OptimizerCall& call, const StepFactors& step, bool decays,
    float gradient, float& parameter, float& m, float& v, float& ema) {
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

// A call without moments. Operands: parameters and other states, then gradient, sum of squares, count, control.
OptimizerCall optimizer_call(const KernelArgs& args, const OptimizerAttrs& attrs) {
  const size_t states = args.out.size();
  OptimizerCall call;
  call.n = args.in[0].elements(), call.decay_count = attrs.weight_decay == 0 ? 0 : attrs.decay_count;
  call.parameters = args.in[0].as<float>(), call.to_parameters = args.out[0].as<float>();
  call.gradient = args.in[states].as<float>(), call.squares = args.in[states + 1].as<float>();
  call.count = args.in[states + 2].as<float>(), call.control = args.in[states + 3].as<float>();
  if (attrs.ema_decay > 0) call.ema = args.in[states - 1].as<float>(), call.to_ema = args.out[states - 1].as<float>();
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

// An output may be the input it replaces.
template <Rule kRule, int kVector> __global__ void __launch_bounds__(kThreads) optimizer_kernel(OptimizerCall call) {
  begin_kernel();
  constexpr bool kAdam = kRule == Rule::kAdam || kRule == Rule::kAdamW;
  __shared__ StepFactors shared_step;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  const bool inside = first < call.n;
  float g[kVector], w[kVector], m[kVector], v[kVector] = {}, ema[kVector] = {};
  if (inside) {
    load_vector(call.parameters + first, w);
    load_vector(call.moment1 + first, m);
    load_vector(call.gradient + first, g);
    if (kAdam) load_vector(call.moment2 + first, v);
    if (call.ema) load_vector(call.ema + first, ema);
  }
  if (threadIdx.x == 0) shared_step = step_factors(call);
  __syncthreads();
  const StepFactors step = shared_step;
  if (!inside || (!step.finite && call.in_place)) return;
  if (step.finite) {
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      update<kRule>(call, step, first + i < call.decay_count, g[i], w[i], m[i], v[i], ema[i]);
  }
  store_vector(call.to_parameters + first, w);
  store_vector(call.to_moment1 + first, m);
  if (kAdam) store_vector(call.to_moment2 + first, v);
  if (call.ema) store_vector(call.to_ema + first, ema);
}

// Threads sum squares in fp32, in a fixed order, each at most one of those beyond the last whole vector; one block adds
// the sums in float64.
template <class T, int kVector, int kBlock, class Sum> __global__ void __launch_bounds__(kBlock)
    squares_kernel(int64_t n, int64_t per_block, const T* __restrict__ x, float* __restrict__ sums) {
  begin_kernel();
  const int64_t end = min(n, (blockIdx.x + 1) * per_block), whole = end / kVector * kVector;
  float sum = 0;
#pragma unroll 4
  for (int64_t i = blockIdx.x * per_block + threadIdx.x * kVector; i < whole; i += kBlock * kVector) {
    float v[kVector];
    load_vector(x + i, v);
#pragma unroll
    for (const float value : v) sum += value * value;
  }
  if (const int64_t i = whole + threadIdx.x; i < end) {
    const float value = to_float(x[i]);
    sum += value * value;
  }
  const Sum total = block_sum(static_cast<Sum>(sum));
  if (threadIdx.x == 0) sums[blockIdx.x] = static_cast<float>(total);
}

size_t squares_workspace(const KernelQuery& query) {
  return blocks_for(query.in[0].shape.elements(), kPerBlock) * sizeof(float);
}

void run_squares(const KernelArgs& args) {
  const int64_t n = args.in[0].elements();
  auto *sums = reinterpret_cast<float*>(args.workspace), *total = args.out[0].as<float>();
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    const T* x = args.in[0].as<T>();
    const auto run_with = [&]<int kVector>() {
      if (n <= kOneBlock)
        return launch(args.device, squares_kernel<T, kVector, kTotalThreads, double>, 1, kTotalThreads, 0, n, kOneBlock,
            x, total);
      const unsigned blocks = blocks_for(n, kPerBlock);
      launch(args.device, squares_kernel<T, kVector, kThreads, float>, blocks, kThreads, 0, n, kPerBlock, x, sums);
      add_all<double>(args.device, blocks, sums, total);
    };
    if (aligned16(x)) run_with.template operator()<kWide<T>>();
    else run_with.template operator()<1>();
  });
}

void run(const KernelArgs& args) {
  const auto& attrs = args.attrs<OptimizerAttrs>();
  OptimizerCall call = optimizer_call(args, attrs);
  call.moment1 = args.in[1].as<float>(), call.to_moment1 = args.out[1].as<float>();
  if (call.adam) call.moment2 = args.in[2].as<float>(), call.to_moment2 = args.out[2].as<float>();
  const bool aligned =
      call.n % 4 == 0 && aligned16(call.parameters, call.moment1, call.moment2, call.ema, call.gradient,
                             call.to_parameters, call.to_moment1, call.to_moment2, call.to_ema);
  const auto run_with = [&]<Rule kRule>() {
    if (aligned) launch(args.device, optimizer_kernel<kRule, 4>, blocks_for(call.n, 4 * kThreads), kThreads, 0, call);
    else launch(args.device, optimizer_kernel<kRule, 1>, blocks_for(call.n, kThreads), kThreads, 0, call);
  };
  switch (attrs.kind) {
    case OptimizerAttrs::Kind::kAdam:
      return attrs.decoupled ? run_with.template operator()<Rule::kAdamW>()
                             : run_with.template operator()<Rule::kAdam>();
    case OptimizerAttrs::Kind::kSgd: return run_with.template operator()<Rule::kSgd>();
    case OptimizerAttrs::Kind::kLion: return run_with.template operator()<Rule::kLion>();
    default: fail_internal("optimizer_step was given an optimizer of other ops");
  }
}

constexpr float kMostM = 127, kMostV = 255, kLeastScale = 1e-30f;

// Codes and scales before and after the step; they may be the same memory.
struct Moment {
  const uint8_t* codes;
  const float* scales;
  uint8_t* to_codes;
  float* to_scales;
};

LINNET_DEVICE float old_m(const Moment& moment, int64_t i) {
  const auto q = static_cast<float>(static_cast<int8_t>(moment.codes[i]));
  return q * fabsf(q) * (moment.scales[blockIdx.x] / (kMostM * kMostM));
}
LINNET_DEVICE float old_root(const Moment& moment, int64_t i) {
  const auto c = static_cast<float>(moment.codes[i]);
  return c * c * (moment.scales[blockIdx.x] / (kMostV * kMostV));
}
// The code, without its sign, of a value that is at most `largest`; all threads call it.
LINNET_DEVICE float code_of(float value, float largest, float most) {
  return largest >= kLeastScale ? fminf(rintf(sqrtf(value * (most * most / largest))), most) : 0;
}

// A thread block has one block of moments, a thread one of them; the largest are found by the block.
template <bool kDecoupled> __global__ void __launch_bounds__(kThreads)
    adam_8bit_kernel(OptimizerCall call, Moment m1, Moment m2) {
  begin_kernel();
  __shared__ StepFactors shared_step;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const bool inside = i < call.n;
  if (threadIdx.x == 0) shared_step = step_factors(call);
  float w = 0, m = 0, root = 0, ema = 0;
  if (inside) {
    w = call.parameters[i], m = old_m(m1, i), root = old_root(m2, i);
    if (call.ema) ema = call.ema[i];
  }
  __syncthreads();
  const StepFactors step = shared_step;
  if (!step.finite) {  // the same in all threads
    if (call.in_place) return;
    if (inside) {
      call.to_parameters[i] = w, m1.to_codes[i] = m1.codes[i], m2.to_codes[i] = m2.codes[i];
      if (call.ema) call.to_ema[i] = ema;
    }
    if (threadIdx.x == 0)
      m1.to_scales[blockIdx.x] = m1.scales[blockIdx.x], m2.to_scales[blockIdx.x] = m2.scales[blockIdx.x];
    return;
  }
  if (inside) {
    float v = root * root;
    update<kDecoupled ? Rule::kAdamW : Rule::kAdam>(call, step, i < call.decay_count, call.gradient[i], w, m, v, ema);
    root = sqrtf(v);
    call.to_parameters[i] = w;
    if (call.ema) call.to_ema[i] = ema;
  }
  const float top1 = block_max(fabsf(m)), top2 = block_max(root);
  if (inside) {
    const float q = code_of(fabsf(m), top1, kMostM), c = code_of(root, top2, kMostV);
    m1.to_codes[i] = static_cast<uint8_t>(static_cast<int8_t>(copysignf(q, m)));
    m2.to_codes[i] = static_cast<uint8_t>(root > 0 ? fmaxf(c, 1) : 0);
  }
  if (threadIdx.x == 0) {
    m1.to_scales[blockIdx.x] = top1 >= kLeastScale ? top1 : 0;
    m2.to_scales[blockIdx.x] = top2 >= kLeastScale ? top2 : 0;
  }
}

void run_8bit(const KernelArgs& args) {
  const auto& attrs = args.attrs<OptimizerAttrs>();
  const OptimizerCall call = optimizer_call(args, attrs);
  const auto moment = [&](size_t codes) {
    return Moment{args.in[codes].as<uint8_t>(), args.in[codes + 1].as<float>(), args.out[codes].as<uint8_t>(),
        args.out[codes + 1].as<float>()};
  };
  launch(args.device, attrs.decoupled ? adam_8bit_kernel<true> : adam_8bit_kernel<false>,
      blocks_for(call.n, kMomentBlock), kThreads, 0, call, moment(1), moment(3));
}

__global__ void update_factors_kernel(OptimizerCall call, float* scale, float* finite, float* ema_rest) {
  begin_kernel();
  const StepFactors step = step_factors(call);
  *scale = step.scale, *finite = step.finite ? 1 : 0, *ema_rest = step.ema_rest;
}

void run_factors(const KernelArgs& args) {
  const auto& attrs = args.attrs<OptimizerAttrs>();
  OptimizerCall call;
  call.squares = args.in[0].as<float>(), call.count = args.in[1].as<float>(), call.control = args.in[2].as<float>();
  call.clip_norm = static_cast<float>(attrs.clip_norm), call.ema_rest = static_cast<float>(1 - attrs.ema_decay);
  launch(args.device, update_factors_kernel, 1, 1, 0, call, args.out[0].as<float>(), args.out[1].as<float>(),
      args.out[2].as<float>());
}
}  // namespace

LINNET_KERNELS(optimizer_step_cuda, {"elements", run})
LINNET_KERNELS(adam_8bit_step_cuda, {"blocks", run_8bit})
LINNET_KERNELS(update_factors_cuda, {"one", run_factors})
LINNET_KERNELS(sum_of_squares_cuda, {"blocks", run_squares, nullptr, squares_workspace})
}  // namespace linnet
