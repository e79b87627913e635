#include "engine/ops/round_half/round_half.h"
#include "engine/kernels/rounding.h"

namespace linnet {
namespace {
void run_round_half(const KernelArgs& args) {
  round_to_half(args.in[0].elements(), args.in[0].as<float>(), args.out[0].as<float>(), args.pool);
}

void run_round_half_reference(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[0].elements(); ++i) args.out[0].as<T>()[i] = round_to_half(args.in[0].as<T>()[i]);
  });
}
}  // namespace

const OpDef kRoundHalf{.name = "round_half",
    .infer = infer_same_float,
    .may_overwrite = overwrites_any,
    .algebra = always<Algebra::kElementwise>,
    .cheap = true};

Tensor round_half(At x) { return op_result(kRoundHalf, x); }

LINNET_KERNELS(
    round_half, {"simd", all_f32, nullptr, run_round_half}, {"reference", nullptr, nullptr, run_round_half_reference})
}  // namespace linnet
