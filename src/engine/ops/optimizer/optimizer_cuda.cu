// The optimizer's step in one pass over the flat buffers. Learning rate, step, norm and token count are read on the
// device: nothing of a step depends on the host, so that it can be recorded and replayed.

#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/cuda/vectors.cuh"
#include "engine/ops/kernel.h"
#include "engine/ops/optimizer/optimizer_update.cuh"

namespace linnet {
namespace {

constexpr int kThreads = 256, kTotalThreads = 1024;
constexpr int64_t kPerBlock = 16384;  // elements that a block of sum_of_squares adds up
constexpr int64_t kOneBlock = 65536;  // up to this many a single block adds all: one kernel instead of two

// An output may be the input it replaces.
template <Rule kRule, int kVector>
__global__ void __launch_bounds__(kThreads) optimizer_kernel(OptimizerCall call) {
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

// Squares are added up in fp32 by threads, in a fixed order; their sums, at most a few hundred for each thread of the
// last block, in float64.
template <class T, int kVector, int kBlock, class Sum>
__global__ void __launch_bounds__(kBlock)
    squares_kernel(int64_t n, int64_t per_block, const T* __restrict__ x, float* __restrict__ sums) {
  begin_kernel();
  const int64_t end = min(n, (blockIdx.x + 1) * per_block);
  float sum = 0;
  for (int64_t i = blockIdx.x * per_block + threadIdx.x * kVector; i < end; i += kBlock * kVector) {
    float v[kVector];
    load_vector(x + i, v);
#pragma unroll
    for (const float value : v) sum += value * value;
  }
  const Sum total = block_sum(static_cast<Sum>(sum));
  if (threadIdx.x == 0) sums[blockIdx.x] = static_cast<float>(total);
}

__global__ void __launch_bounds__(kTotalThreads)
    add_squares_kernel(int64_t count, const float* __restrict__ sums, float* __restrict__ total) {
  begin_kernel();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kTotalThreads) sum += static_cast<double>(sums[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = static_cast<float>(sum);
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
      launch(args.device, add_squares_kernel, 1, kTotalThreads, 0, blocks, sums, total);
    };
    if (aligned16(x) && n % kWide<T> == 0) run_with.template operator()<kWide<T>>();
    else run_with.template operator()<1>();
  });
}

OptimizerCall call_of(const KernelArgs& args) {
  const auto& attrs = args.attrs<OptimizerAttrs>();
  const size_t states = args.out.size();
  OptimizerCall call = optimizer_call(args, attrs);
  call.moment1 = args.in[1].as<float>(), call.to_moment1 = args.out[1].as<float>();
  if (call.adam) call.moment2 = args.in[2].as<float>(), call.to_moment2 = args.out[2].as<float>();
  if (attrs.ema_decay > 0) call.ema = args.in[states - 1].as<float>(), call.to_ema = args.out[states - 1].as<float>();
  return call;
}

void run(const KernelArgs& args) {
  const auto& attrs = args.attrs<OptimizerAttrs>();
  const OptimizerCall call = call_of(args);
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

LINNET_KERNELS(optimizer_step_cuda, {"elements", nullptr, nullptr, run})
LINNET_KERNELS(update_factors_cuda, {"one", nullptr, nullptr, run_factors})
LINNET_KERNELS(sum_of_squares_cuda, {"blocks", nullptr, squares_workspace, run_squares})

}  // namespace linnet
