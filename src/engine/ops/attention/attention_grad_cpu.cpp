#include "engine/kernels/attention/attention.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/attention_problem.h"

namespace linnet {
namespace {

AttentionArgs with_stored_dq(AttentionArgs args, const TensorType& dq) {
  args.dq_in_bf16 = dq.dtype == DType::kBF16;
  return args;
}

size_t attention_grad_workspace(const KernelQuery& query) {
  const AttentionArgs args = attention_sizes(query.attrs<AttentionAttrs>(), query.in[0], query.in[1]);
  return attention_backward_workspace(with_stored_dq(args, query.out[0]), query.threads);
}

void run_attention_grad(const KernelArgs& args) {
  const AttentionArgs call = with_stored_dq(attention_problem(args, kAttentionGradFixed), args.out[0].type);
  float* d_bias = call.biased ? args.out[3].as<float>() : nullptr;
  attention_backward(call, attention_rows(args.in[0]), attention_rows(args.in[1]), attention_rows(args.in[2]),
                     attention_rows(args.in[3]), args.in[4].as<float>(), attention_rows(args.in[5]),
                     mutable_attention_rows(args.out[0]), mutable_attention_rows(args.out[1]),
                     mutable_attention_rows(args.out[2]), d_bias, args.workspace, args.pool);
}

}  // namespace

LINNET_KERNELS(attention_grad, {"flash", has_attention_tiles, attention_grad_workspace, run_attention_grad},
               {"reference", nullptr, nullptr, attention_grad_reference})

}  // namespace linnet
