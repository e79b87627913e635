#include "engine/kernels/pointwise/round_half.h"
#include "engine/ops/round_half/round_half.h"

namespace linnet {
namespace {

void run(const KernelArgs& args) {
  round_to_half(args.in[0].elements(), args.in[0].as<float>(), args.out[0].as<float>(), args.pool);
}

void run_reference(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[0].elements(); ++i) args.out[0].as<T>()[i] = round_to_half(args.in[0].as<T>()[i]);
  });
}

constexpr Kernel kKernels[] = {{"simd", all_f32, nullptr, run}, {"reference", nullptr, nullptr, run_reference}};

}  // namespace

KernelList round_half_kernels() { return kKernels; }

}  // namespace linnet
