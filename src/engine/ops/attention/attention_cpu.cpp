#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/attention_few_queries.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/attention_problem.h"

namespace linnet {
namespace {

size_t attention_workspace(const KernelQuery& query) {
  return attention_forward_workspace(attention_sizes(query.attrs<AttentionAttrs>(), query.in[0], query.in[1]),
                                     query.threads);
}

void run_attention(const KernelArgs& args) {
  attention_forward(attention_problem(args), attention_rows(args.in[0]), attention_rows(args.in[1]),
                    attention_rows(args.in[2]), mutable_attention_rows(args.out[0]), args.out[1].as<float>(),
                    args.workspace, args.pool);
}

bool supports_few(const KernelQuery& query) {
  return f32_or_reduced(query) && query.in[1] == query.in[2] &&
         has_few_queries(attention_sizes(query.attrs<AttentionAttrs>(), query.in[0], query.in[1]));
}

size_t few_workspace(const KernelQuery& query) {
  return attention_few_queries_workspace(attention_sizes(query.attrs<AttentionAttrs>(), query.in[0], query.in[1]),
                                         query.threads);
}

void run_few(const KernelArgs& args) {
  attention_few_queries(attention_problem(args), attention_rows(args.in[0]), attention_rows(args.in[1]),
                        attention_rows(args.in[2]), mutable_attention_rows(args.out[0]), args.out[1].as<float>(),
                        args.workspace, args.pool);
}

}  // namespace

LINNET_KERNELS(attention, {"few_queries", supports_few, few_workspace, run_few},
               {"flash", has_attention_tiles, attention_workspace, run_attention},
               {"reference", nullptr, nullptr, attention_reference})

}  // namespace linnet
