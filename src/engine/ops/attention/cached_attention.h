// Attention of tokens to keys and values in a cache (ops/cache): a sample is one token, which names its row of the
// cache and the number of entries. Several samples may be tokens of one text, such as a part of a prompt. CPU only.
//
//   s_j = scale * q k_j, with a soft cap cap * tanh(s_j / cap);  p = softmax(s, over starts <= j < lengths);  o = p v
//
// q [N, 1, H * D], k and v [S, T, H_kv * D], H a multiple of H_kv; rows, lengths i32 [N], starts i32 [N, 1] -> o
// [N, 1, H * D]. A token of length 0 attends to nothing: it gives zeros, and its row is not read.
// q, k and v may be strided. A token has the same bits whatever the other samples are.
#pragma once
#include "engine/ir/graph.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct CachedAttentionAttrs {
  int64_t heads = 0, kv_heads = 0;
  double scale = 0, soft_cap = 0;
  bool has_starts = false;
  void fields(FieldVisitor& visit) {
    visit("heads", heads), visit("kv_heads", kv_heads), visit("scale", scale), visit("has_starts", has_starts);
    visit("soft_cap", soft_cap);
  }
};

extern const OpDef kCachedAttention;

struct CachedAttentionOptions {
  int64_t heads = 1, kv_heads = 0;  // 0: as many as heads
  double scale = 0;                 // 0: 1 / sqrt(head size)
  double soft_cap = 0;              // 0: none
  Tensor rows, lengths;
  Tensor starts = {};  // undefined: 0
};

Tensor cached_attention(At q, Tensor k, Tensor v, const CachedAttentionOptions& options);
}  // namespace linnet
