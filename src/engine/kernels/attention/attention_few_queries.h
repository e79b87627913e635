// Attention of a few queries to many keys: one step of decoding, where packing keys into blocks costs more than the
// products. Queries are computed one by one, so that the bits of each depend on itself and the keys that it sees alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include "engine/kernels/attention/attention.h"

namespace linnet {

constexpr int64_t kFewQueries = 8;

// At most kFewQueries, not causal and without a window; or any, where args asks for independent queries. No dropout.
// With or without starts and a bias.
bool has_few_queries(const AttentionArgs& args);

size_t attention_few_queries_workspace(const AttentionArgs& args, int threads);

// As attention_forward (engine/kernels/attention/attention.h), to rounding. k and v are of one type in memory. `lse`
// may be null. With `key_rows` [batch], sample b attends to keys and values of the sample key_rows[b] instead of its
// own, as tokens of one text do that are samples of their own; of a sample that sees no key it may be negative.
void attention_few_queries(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v,
                           MutableAttentionRows o, float* lse, std::byte* workspace, ThreadPool& pool,
                           const int32_t* key_rows = nullptr);

}  // namespace linnet
