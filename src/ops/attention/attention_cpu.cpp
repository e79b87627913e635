#include "kernels/attention/attention.h"
#include "kernels/attention/attention_few_queries.h"
#include "ops/attention/attention.h"
#include "ops/dropout/dropout.h"
#include "ops/stored_operands.h"

namespace linnet {
namespace {

AttentionArgs sizes(const AttentionAttrs& attrs, const TensorType& q, const TensorType& k) {
  AttentionArgs out{};
  out.batch = q.shape[0], out.query_length = q.shape[1], out.key_length = k.shape[1];
  out.query_heads = attrs.heads, out.kv_heads = attrs.kv_heads, out.head_size = q.shape[2] / attrs.heads;
  out.scale = static_cast<float>(attrs.scale), out.causal = attrs.causal, out.dropout = attrs.dropout;
  out.precision = attrs.precision, out.window = attrs.window, out.biased = attrs.has_bias;
  out.independent_queries = attrs.independent_queries, out.first_head = attrs.first_head;
  return out;
}

AttentionArgs problem(const KernelArgs& args, size_t fixed = kAttentionFixed) {
  const auto& attrs = args.node.attrs.as<AttentionAttrs>();
  AttentionArgs out = sizes(attrs, args.in[0].type, args.in[1].type);
  if (attrs.has_lengths) out.key_lengths = args.in[fixed].as<int32_t>();
  if (attrs.has_starts) out.starts = args.in[attrs.starts_at(fixed)].as<int32_t>();
  if (attrs.has_bias) {
    const TensorView& bias = args.in[attrs.bias_at(fixed)];
    out.distance_bias = bias.as<float>(), out.bias_stride = bias_stride(bias.shape());
  }
  if (attrs.dropout > 0) out.dropout_key = dropout_key(args.in.back().as<int32_t>(), attrs.dropout_site);
  return out;
}

AttentionRows rows(const TensorView& x) { return {stored(x), x.strides[0], x.strides[1]}; }
MutableAttentionRows mutable_rows(const TensorView& x) { return {mutable_stored(x), x.strides[0], x.strides[1]}; }

size_t workspace(const KernelQuery& query) {
  return attention_forward_workspace(sizes(query.node.attrs.as<AttentionAttrs>(), query.in[0], query.in[1]),
                                     query.threads);
}

AttentionArgs with_stored_dq(AttentionArgs args, const TensorType& dq) {
  args.dq_in_bf16 = dq.dtype == DType::kBF16;
  return args;
}

size_t grad_workspace(const KernelQuery& query) {
  const AttentionArgs args = sizes(query.node.attrs.as<AttentionAttrs>(), query.in[0], query.in[1]);
  return attention_backward_workspace(with_stored_dq(args, query.out[0]), query.threads);
}

void run(const KernelArgs& args) {
  attention_forward(problem(args), rows(args.in[0]), rows(args.in[1]), rows(args.in[2]), mutable_rows(args.out[0]),
                    args.out[1].as<float>(), args.workspace, args.pool);
}

void run_grad(const KernelArgs& args) {
  const AttentionArgs call = with_stored_dq(problem(args, kAttentionGradFixed), args.out[0].type);
  float* d_bias = call.biased ? args.out[3].as<float>() : nullptr;
  attention_backward(call, rows(args.in[0]), rows(args.in[1]), rows(args.in[2]), rows(args.in[3]),
                     args.in[4].as<float>(), rows(args.in[5]), mutable_rows(args.out[0]), mutable_rows(args.out[1]),
                     mutable_rows(args.out[2]), d_bias, args.workspace, args.pool);
}

// The kernel's tiles are laid out for heads of up to 256.
bool supports(const KernelQuery& query) {
  const auto& attrs = query.node.attrs.as<AttentionAttrs>();
  return f32_or_reduced(query) && query.in[0].shape[2] / attrs.heads <= 256;
}

bool supports_few(const KernelQuery& query) {
  return f32_or_reduced(query) && query.in[1] == query.in[2] &&
         has_few_queries(sizes(query.node.attrs.as<AttentionAttrs>(), query.in[0], query.in[1]));
}

size_t few_workspace(const KernelQuery& query) {
  return attention_few_queries_workspace(sizes(query.node.attrs.as<AttentionAttrs>(), query.in[0], query.in[1]),
                                         query.threads);
}

void run_few(const KernelArgs& args) {
  attention_few_queries(problem(args), rows(args.in[0]), rows(args.in[1]), rows(args.in[2]), mutable_rows(args.out[0]),
                        args.out[1].as<float>(), args.workspace, args.pool);
}

constexpr Kernel kKernels[] = {{"few_queries", supports_few, few_workspace, run_few},
                               {"flash", supports, workspace, run},
                               {"reference", nullptr, nullptr, attention_reference}};
constexpr Kernel kGradKernels[] = {{"flash", supports, grad_workspace, run_grad},
                                   {"reference", nullptr, nullptr, attention_grad_reference}};

}  // namespace

KernelList attention_kernels() { return kKernels; }
KernelList attention_grad_kernels() { return kGradKernels; }

}  // namespace linnet
