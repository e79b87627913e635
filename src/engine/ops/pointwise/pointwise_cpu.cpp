#include <array>

#include "engine/kernels/pointwise/pointwise.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/stored_operands.h"

namespace linnet {
namespace {

int64_t operand_index(Broadcast kind, int64_t i, int64_t n, int64_t size) {
  switch (kind) {
    case Broadcast::kFull:
      return i;
    case Broadcast::kSuffix:
      return i % size;
    case Broadcast::kPrefix:
      return i / (n / size);
    case Broadcast::kScalar:
      return 0;
  }
  return 0;
}

void run_pointwise_reference(const KernelArgs& args) {
  const Expression& expression = args.node.attrs.as<PointwiseAttrs>().expression;
  const TensorView& out = args.out[0];
  const int64_t n = out.elements();
  std::array<Broadcast, kMaxOperands> kinds{};
  for (size_t k = 0; k < args.in.size(); ++k) kinds[k] = *find_broadcast(args.in[k].shape(), out.shape());
  for_float(out.type.dtype, [&]<class T>() {
    std::array<T, kMaxOperands> inputs;
    for (int64_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < args.in.size(); ++k)
        inputs[k] = args.in[k].as<const T>()[operand_index(kinds[k], i, n, args.in[k].elements())];
      out.as<T>()[i] = evaluate_scalar(expression, inputs.data());
    }
  });
}

void run_pointwise(const KernelArgs& args) {
  std::array<PointwiseOperand, kMaxOperands> operands;
  for (size_t k = 0; k < args.in.size(); ++k)
    operands[k] = {stored(args.in[k]), args.in[k].elements(), *find_broadcast(args.in[k].shape(), args.out[0].shape())};
  pointwise(args.out[0].elements(), args.node.attrs.as<PointwiseAttrs>().expression, {operands.data(), args.in.size()},
            mutable_stored(args.out[0]), args.pool);
}

}  // namespace

LINNET_KERNELS(pointwise, {"simd", all_f32_or_bf16, nullptr, run_pointwise},
               {"reference", nullptr, nullptr, run_pointwise_reference})

}  // namespace linnet
