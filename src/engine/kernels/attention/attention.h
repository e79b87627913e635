// Attention without the matrix of scores in memory ("flash attention": Dao et al. 2022; Milakov and Gimelshein 2018 for
// the running softmax): o = dropout(softmax(scale * q k^T + mask)) v, block by block, forward and backward. Results
// depend on the shape and the instruction set, never on the number of threads. NaN and infinity in q, k and v reach
// exactly the outputs that see them: masked keys and values may hold anything. q, k, v, o and their gradients may each
// be fp32 or bf16 in memory; the arithmetic is the same, and bf16 results are rounded once, from the finished sum.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include "engine/kernels/precision.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
class ThreadPool;

struct AttentionArgs {
  int64_t batch = 0, query_heads = 0, kv_heads = 0;  // query_heads is a multiple of kv_heads: query head h uses
                                                     // key-value head h / (query_heads / kv_heads)
  int64_t query_length = 0, key_length = 0;
  int64_t head_size = 0;  // 1 to 256
  float scale = 1;
  bool causal = false;                   // query i sees keys j <= i + (key_length - query_length)
  const int32_t* key_lengths = nullptr;  // [batch]: keys at or past the length are masked. nullptr: all are valid
  float dropout = 0;                     // of the probabilities; mask and scale as engine/kernels/random/philox.h says
  uint64_t dropout_key = 0;
  int64_t first_head = 0;                 // dropout counts heads from here on
  Precision precision = Precision::kF32;  // of the products; all else is fp32
  // Query i sees no key before starts[i] of its sample, and with a window only the last `window` keys up to its own,
  // the (i + key_length - query_length)th.
  const int32_t* starts = nullptr;  // [batch, query_length]
  int64_t window = 0;
  // Added to the scaled scores by distance: entry j - i + query_length - 1 for key j, query i. Also set `biased`
  // to compute the size of a workspace, which needs no `distance_bias`.
  bool biased = false;
  const float* distance_bias = nullptr;  // [query_heads, query_length + key_length - 1]
  int64_t bias_stride = 0;               // between the biases of samples; 0: all have one. Forward only.
  bool dq_in_bf16 = false;  // dq is bf16 in memory: sizes the backward pass's workspace, which takes its sums
  // The bits of a query's result depend on no other query or unseen key. Forward only, by attention_few_queries().
  bool independent_queries = false;
  const int32_t* key_rows = nullptr;  // [batch], for attention_few_queries() alone, as soft_cap
  float soft_cap = 0;                 // scores s become soft_cap * tanh(s / soft_cap); 0: none
};

inline int64_t first_key_seen(const AttentionArgs& args, int64_t sample, int64_t i) {
  const int64_t start = args.starts ? args.starts[sample * args.query_length + i] : 0;
  return args.window > 0 ? std::max(start, i + args.key_length - args.query_length - args.window + 1) : start;
}

// Row (b, t) of head h starts at data + b * batch_stride + t * row_stride + h * head_size (elements), so that q, k and
// v may share one [batch, length, 3 * heads * head_size] buffer.
struct AttentionRows {
  StoredFloats data;
  int64_t batch_stride = 0, row_stride = 0;
};
struct MutableAttentionRows {
  MutableStoredFloats data;
  int64_t batch_stride = 0, row_stride = 0;
};

// Bytes of workspace, the same for every instruction set: blocks for every thread, no T x T matrix.
size_t attention_forward_workspace(const AttentionArgs& args, int threads);
size_t attention_backward_workspace(const AttentionArgs& args, int threads);

// lse [batch, query_heads, query_length] is the natural log-sum-exp of the scaled, masked scores, for the backward
// pass. A query that sees no key gives o = 0 and lse = -infinity. `workspace` is 64-byte aligned. Allocates nothing.
void attention_forward(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v,
    MutableAttentionRows o, float* lse, std::byte* workspace, ThreadPool& pool);

// Overwrites the gradients of the sum of o * d_o with respect to q, k and v. dk and dv sum over the query heads that
// share a key-value head. A masked key and a query that sees no key get zero. Writes d_distance_bias if any.
void attention_backward(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v, AttentionRows o,
    const float* lse, AttentionRows d_o, MutableAttentionRows dq, MutableAttentionRows dk, MutableAttentionRows dv,
    float* d_distance_bias, std::byte* workspace, ThreadPool& pool);

// Attention of a few queries to many keys, as in a decoding step, where packing keys costs more than the products. The
// bits of each query depend on itself and the keys that it sees alone.
constexpr int64_t kFewQueries = 8;

// At most kFewQueries, not causal and without a window; or any number, with independent queries. No dropout.
bool has_few_queries(const AttentionArgs& args);

size_t attention_few_queries_workspace(const AttentionArgs& args, int threads);

// As attention_forward(), to rounding, of operands in fp32. `lse` may be null. With args.key_rows, sample b
// attends to the keys and values of sample key_rows[b], as for samples that are tokens of one text; it may be negative
// for a sample that sees no key.
void attention_few_queries(const AttentionArgs& args, AttentionRows q, AttentionRows k, AttentionRows v,
    MutableAttentionRows o, float* lse, std::byte* workspace, ThreadPool& pool);
}  // namespace linnet
