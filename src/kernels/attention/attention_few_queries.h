// Attention of a few queries to many keys: one step of decoding, where packing keys into blocks costs more than the
// products.
#pragma once
#include <cstddef>

#include "kernels/attention/attention.h"

namespace linnet {

constexpr int64_t kFewQueries = 8;

// At most kFewQueries, no dropout, not causal. With or without starts and a bias.
bool has_few_queries(const AttentionArgs& args);

size_t attention_few_queries_workspace(const AttentionArgs& args, int threads);

// As attention_forward (kernels/attention/attention.h), to rounding.
void attention_few_queries(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v,
                           MutableAttentionRows o, float* lse, std::byte* workspace, ThreadPool& pool);

}  // namespace linnet
