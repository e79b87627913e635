#include <array>
#include "engine/kernels/pointwise/pointwise.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

PointwiseOperand operand_of(const TensorView& in, const TensorView& out) {
  const auto kind = find_broadcast(in.shape(), out.shape());
  if (kind) return {stored(in), in.elements(), *kind};
  return {stored(in), in.elements(), Broadcast::kMiddle, middle_row(in.shape(), out.shape())};
}

int64_t operand_index(const PointwiseOperand& operand, int64_t i, int64_t n) {
  const auto& [data, size, kind, row] = operand;
  switch (kind) {
    case Broadcast::kFull: return i;
    case Broadcast::kSuffix: return i % size;
    case Broadcast::kPrefix: return i / (n / size);
    case Broadcast::kMiddle: return i / (n / size * row) * row + i % row;
    case Broadcast::kScalar: return 0;
  }
  return 0;
}

void run_pointwise_reference(const KernelArgs& args) {
  const Expression& expression = args.attrs<PointwiseAttrs>().expression;
  const TensorView& out = args.out[0];
  const int64_t n = out.elements();
  std::array<PointwiseOperand, kMaxOperands> operands;
  for (size_t k = 0; k < args.in.size(); ++k) operands[k] = operand_of(args.in[k], out);
  for_float(out.type.dtype, [&]<class T>() {
    std::array<T, kMaxOperands> inputs;
    for (int64_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < args.in.size(); ++k)
        inputs[k] = args.in[k].as<const T>()[operand_index(operands[k], i, n)];
      out.as<T>()[i] = evaluate_scalar(expression, inputs.data());
    }
  });
}

void run_pointwise(const KernelArgs& args) {
  std::array<PointwiseOperand, kMaxOperands> operands;
  for (size_t k = 0; k < args.in.size(); ++k) operands[k] = operand_of(args.in[k], args.out[0]);
  pointwise(args.out[0].elements(), args.attrs<PointwiseAttrs>().expression, {operands.data(), args.in.size()},
            mutable_stored(args.out[0]), args.pool);
}

}  // namespace

LINNET_KERNELS(pointwise, {"simd", all_f32_or_bf16, nullptr, run_pointwise},
               {"reference", nullptr, nullptr, run_pointwise_reference})

}  // namespace linnet
