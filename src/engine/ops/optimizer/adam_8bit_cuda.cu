// A thread block has one block of 256 moments, a thread one of them; the largest are found by the block.
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/optimizer_8bit.h"
#include "engine/ops/kernel.h"
#include "engine/ops/optimizer/adam_8bit.h"
#include "engine/ops/optimizer/optimizer_update.cuh"

namespace linnet {
namespace {

constexpr int kThreads = static_cast<int>(kMomentBlock);
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
// The code, without its sign, of a value that is at most `largest`; call it in all threads.
LINNET_DEVICE float code_of(float value, float largest, float most) {
  return largest >= kLeastScale ? fminf(rintf(sqrtf(value * (most * most / largest))), most) : 0;
}

template <bool kDecoupled>
__global__ void __launch_bounds__(kThreads) adam_8bit_kernel(OptimizerCall call, Moment m1, Moment m2) {
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

void run(const KernelArgs& args) {
  const auto& attrs = args.attrs<OptimizerAttrs>();
  OptimizerCall call = optimizer_call(args, attrs);
  if (attrs.ema_decay > 0) call.ema = args.in[5].as<float>(), call.to_ema = args.out[5].as<float>();
  const auto moment = [&](size_t codes) {
    return Moment{args.in[codes].as<uint8_t>(), args.in[codes + 1].as<float>(), args.out[codes].as<uint8_t>(),
                  args.out[codes + 1].as<float>()};
  };
  launch(args.device, attrs.decoupled ? adam_8bit_kernel<true> : adam_8bit_kernel<false>,
         blocks_for(call.n, kMomentBlock), kThreads, 0, call, moment(1), moment(3));
}

}  // namespace

LINNET_KERNELS(adam_8bit_step_cuda, {"blocks", nullptr, nullptr, run})

}  // namespace linnet
