// Scaled dot-product attention with many heads as one op, without a Tq x Tk matrix (Dao et al. 2022, "FlashAttention").
//
//   s = scale * q k^T + bias;  p = softmax(s, over the visible keys);  o = dropout(p) v;  lse = log sum exp of s
//
// q [B, Tq, H * D], k and v [B, Tk, H_kv * D], H a multiple of H_kv -> o [B, Tq, H * D], lse [B, H, Tq].
// Visible are keys before the sample's length (explicit lengths, i32 [B]); if causal, keys j <= i + Tk - Tq; from the
// query's start on (i32 [B, Tq]), so that documents packed into one row do not see each other; and with a window, which
// needs causal, the last `window` of those. Blocks of keys that no query of a block sees cost nothing. A query that
// sees no key gives zeros.
// distance_bias f32 [H, Tq + Tk - 1] is shared by all samples: entry j - i + Tq - 1 is for query i and key j. It has a
// gradient, and replaces a [H, Tq, Tk] bias that depends on j - i alone (T5). A bias [B, H, Tq + Tk - 1] per sample is
// for rows of different lengths in decoding and has no gradient. q, k, v and their gradients may be strided: a slice of
// a fused projection is read and written in place.
#pragma once
#include <span>
#include "engine/kernels/precision.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct AttentionAttrs {
  int64_t heads = 0, kv_heads = 0;
  double scale = 0;
  bool causal = false, has_lengths = false, has_starts = false, has_bias = false;
  int64_t window = 0;  // 0: none
  float dropout = 0;
  uint64_t dropout_site = 0;
  int64_t first_head = 0;                 // of the whole model's heads, where ranks divide them: dropout counts by it
  Precision precision = Precision::kF32;  // of the products; what they are summed to and the rest is fp32
  // Set by the independent_rows pass; see AttentionArgs::independent_queries. GPU kernels do not support it.
  bool independent_queries = false;
  void fields(FieldVisitor& visit) {
    visit("heads", heads), visit("kv_heads", kv_heads), visit("scale", scale), visit("causal", causal);
    visit("has_lengths", has_lengths), visit("has_starts", has_starts), visit("has_bias", has_bias);
    visit("window", window), visit("dropout", dropout), visit("dropout_site", dropout_site);
    visit("precision", precision), visit("independent_queries", independent_queries);
    visit("first_head", first_head);
  }

  // Optional operands follow the `fixed` first ones in this order: lengths, starts, bias, random.
  size_t operand_count(size_t fixed) const { return fixed + has_lengths + has_starts + has_bias + (dropout > 0); }
  size_t starts_at(size_t fixed) const { return fixed + has_lengths; }
  size_t bias_at(size_t fixed) const { return fixed + has_lengths + has_starts; }
};

// Elements between the biases of two samples; 0 if all share one.
inline int64_t bias_stride(const Shape& bias) { return bias.rank() == 3 ? bias[1] * bias[2] : 0; }

struct ScoreMaskAttrs {
  bool causal = false, has_lengths = false, has_starts = false;
  int64_t window = 0;
  void fields(FieldVisitor& visit) {
    visit("causal", causal), visit("has_lengths", has_lengths), visit("has_starts", has_starts);
    visit("window", window);
  }
};

// q, k, v, ... -> o, lse
// q, k, v, o, lse, do, ... -> dq, dk, dv, [dbias]
constexpr size_t kAttentionFixed = 3, kAttentionGradFixed = 6;
extern const OpDef kAttention, kAttentionGrad, kMaskScores;
void attention_reference(const KernelArgs& args);
void attention_grad_reference(const KernelArgs& args);

struct AttentionOptions {
  int64_t heads = 1, kv_heads = 0;  // 0: as many as heads
  double scale = 0;                 // 0: 1 / sqrt(head size)
  bool causal = false;
  Tensor lengths = {};        // i32 [B]; undefined: every key counts
  Tensor starts = {};         // i32 [B, Tq]; undefined: 0
  Tensor distance_bias = {};  // [H, Tq + Tk - 1] or [B, H, Tq + Tk - 1]; undefined: none
  int64_t window = 0;         // 0: none
  // Scores s become cap * tanh(s / cap), after the scale and before the mask (Gemma 2); 0: none. With a cap or
  // score_bias, attention is decomposed into several nodes and stores the scores.
  double soft_cap = 0;
  Tensor score_bias = {};  // [B, H, Tq, Tk], added to the scaled scores (DeBERTa); undefined: none
  float dropout = 0;
  uint64_t dropout_site = 0;
  Tensor random = {};  // i32 [4], with dropout only
};

Tensor attention(At q, Tensor k, Tensor v, const AttentionOptions& options);

// Adds nodes for the probabilities [B, H, Tq, Tk] of a kAttention node, before dropout, to `args.graph`.
Tensor attention_probabilities(const DecomposeArgs& args);

// scores [B, H, Tq, Tk] with -inf for invisible keys, in attention's decomposition. lengths, starts: optional.
Tensor mask_scores(At scores, Tensor lengths, bool causal, Tensor starts = {}, int64_t window = 0);

// Attention of tokens to keys and values in a cache (ops/cache): a sample is one token, which names its row of the
// cache and the number of entries. Several samples may be tokens of one text, such as a part of a prompt. CPU only.
//
//   s_j = scale * q k_j, with a soft cap cap * tanh(s_j / cap);  p = softmax(s, over starts <= j < lengths);  o = p v
//
// q [N, 1, H * D], k and v [S, T, H_kv * D], H a multiple of H_kv; rows, lengths i32 [N], starts i32 [N, 1] -> o
// [N, 1, H * D]. A token of length 0 attends to nothing: it gives zeros, and its row is not read.
// q, k and v may be strided. A token has the same bits whatever the other samples are.
struct CachedAttentionAttrs {
  int64_t heads = 1, kv_heads = 0;  // kv_heads 0: as many as heads
  double scale = 0, soft_cap = 0;   // scale 0: 1 / sqrt(head size); soft_cap 0: none
  bool has_starts = false;
  void fields(FieldVisitor& visit) {
    visit("heads", heads), visit("kv_heads", kv_heads), visit("scale", scale), visit("has_starts", has_starts);
    visit("soft_cap", soft_cap);
  }
};

extern const OpDef kCachedAttention;

constexpr size_t kCachedRows = 3, kCachedLengths = 4, kCachedStarts = 5;  // operands after q, k, v
void cached_attention_reference(const KernelArgs& args);
// starts undefined: 0.
Tensor cached_attention(
    At q, Tensor k, Tensor v, Tensor rows, Tensor lengths, Tensor starts, CachedAttentionAttrs attrs);

// On a GPU: further operands of cuDNN's attention.
// seed: the step's dropout key, from `random` (null: 0); offset: 0; query_lengths: `queries` for each sample;
// key_lengths: `lengths` clamped to [1, keys]. cuDNN gives NaN for a sample without a key (NVIDIA/cudnn-frontend#943),
// so it gets one, and zero_masked_rows() removes the result.
struct AttentionExtras {
  int64_t batch;
  int32_t queries, keys;
  const int32_t *random = nullptr, *lengths = nullptr;
  uint64_t site = 0;
  int64_t *seed = nullptr, *offset = nullptr;
  int32_t *query_lengths = nullptr, *key_lengths = nullptr;
};
void prepare_attention(Device* device, const AttentionExtras& extras);

// Zeroes rows of bf16 results by each sample's number of keys, which may be 0: in dk and dv, rows of masked keys, which
// cuDNN does not write; in o and dq, rows of samples without a key.
struct MaskedRows {
  void* data;             // bf16 [batch, length, width]
  int64_t length, width;  // width is a multiple of 8
  int64_t sample, row;    // strides in elements, multiples of 8; data is aligned to 16 bytes
  bool of_keys;
};
void zero_masked_rows(Device* device, int64_t batch, const int32_t* lengths, std::span<const MaskedRows> results);

// Strided [B, T, width] f32 (last stride 1) to dense bf16, and back.
void pack_bf16(Device* device, const TensorView& from, void* to);
void unpack_bf16(Device* device, const void* from, const TensorView& to);

// T5's buckets of distances between key and query (Raffel et al. 2020): near ones have a bucket each, farther ones
// share buckets that widen logarithmically up to max_distance, beyond which all are in the last.
//
//   -> i32 [queries + keys - 1], entry j - i + queries - 1 for key j and query i, as attention's distance_bias has them
//
// Queries are at positions from `position` (i32 [1]; undefined: 0) on, keys from 0 on. If bidirectional, half of the
// buckets are for keys behind the query; else those count as at its position. With positions i32 [R, 1] the result is
// i32 [R, queries + keys - 1], and each row's queries begin at their own position.
struct DistanceBucketsAttrs {
  int64_t queries = 0, keys = 0, buckets = 32, max_distance = 128;
  bool bidirectional = true, has_position = false;
  void fields(FieldVisitor& visit) {
    visit("queries", queries), visit("keys", keys), visit("buckets", buckets), visit("max_distance", max_distance);
    visit("bidirectional", bidirectional), visit("has_position", has_position);
  }
};

extern const OpDef kDistanceBuckets;

Tensor distance_buckets(
    Graph& graph, DistanceBucketsAttrs attrs, Tensor position = {}, SourceLine where = SourceLine::current());
// Of a key `distance` positions behind the query.
int32_t distance_bucket(int64_t distance, int64_t buckets, int64_t max_distance, bool bidirectional);
}  // namespace linnet
